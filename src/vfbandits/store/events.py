"""What happened to a model, in the order in which it happened.

The log of these events is the truth and the model a fold over it (``fold.py``): the same events
in the same order give the same Lambda and u, bit for bit.  A context in here is the masked one
that was chosen then, so a reward that comes late is learnt from what the decision saw.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.decision import ArmId, DecisionId


@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """An arm was chosen.

    Attributes
    ----------
    decision_id
        Text that the application gave, or the bandit's own number.
    arm, index
        The chosen arm, and its position in the caller's order.
    x, model
        What the decision left to learn from (``core.reward.Observation``): the chosen masked
        context, and the arm whose own model it teaches; None where all arms share one.
    probability
        With which the arm was chosen, if that was asked for.
    contributors
        Participants whose features counted; the others' blocks were zeros.
    epoch
        Of the masks that ``x`` is behind.
    user
        Whom the decision was for, in the application's words.
    at
        When, in seconds since 1970; nothing is derived from it.
    root
        Whether the state keeps a root of its inverse from this decision on.
    """

    decision_id: DecisionId
    arm: ArmId
    index: int
    x: Vector = field(repr=False)
    model: ArmId | None = None
    probability: float | None = None
    contributors: tuple[str, ...] = ()
    epoch: int = 0
    user: str | None = field(default=None, repr=False)
    at: float = 0.0
    root: bool = False


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A reward was learnt: it was the first for its decision, which was open."""

    decision_id: DecisionId
    value: float
    at: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Moved:
    """All that was learnt was carried to other masks, and so were the open decisions.

    ``matrix`` is R (new dim, old dim), ``epoch`` that of the new masks, and ``note`` is kept for
    the caller, such as the roster of the new epoch.
    """

    epoch: int
    matrix: Matrix = field(repr=False)
    note: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """An open decision was dropped; its reward will not be learnt."""

    decision_id: DecisionId


Event: TypeAlias = Decided | Rewarded | Moved | Forgotten
