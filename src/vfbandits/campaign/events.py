"""What happened to a model, in the order in which it happened.

The journal of these events is the truth and the model a fold over it (``model.py``): the same
events in the same order give the same Lambda and u, bit for bit.  A context in here is the masked
one that was chosen then, so a reward that comes late is learnt from what the decision saw.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.decision import ArmId, EventId
from vfbandits.core.snapshot import Snapshot

# What an ``Administered`` is about.
SETTINGS: Final = "settings"
SETTINGS_FILE: Final = "settings file"
MASKS: Final = "masks"
MEMBERS: Final = "members"
LEADERSHIP: Final = "leadership"
ERASURE: Final = "erasure"
COMPACTION: Final = "compaction"
RETENTION: Final = "retention"
GUARDRAIL: Final = "guardrail"
MODEL: Final = "model"
COPY: Final = "copy"


@dataclass(frozen=True, slots=True, eq=False)
class Offered:
    """What the policy chose among: enough to ask what another one would have chosen.

    Attributes
    ----------
    arms
        In the application's order.
    rows
        Masked contexts, without an intercept: (n_arms, dim) in layout "per_arm", otherwise the
        user's alone, (1, dim).
    arm_features
        (n_arms, arm_dim) in layout "outer", otherwise None.
    """

    arms: tuple[ArmId, ...]
    rows: Matrix = field(repr=False)
    arm_features: Matrix | None = field(default=None, repr=False)


@dataclass(slots=True, eq=False)
class Decided:
    """An arm was chosen.  Immutable by convention: frozen, it would take longer to make.

    Attributes
    ----------
    event_id
        Text that the application gave, or the bandit's own number.
    arm, index
        The arm that is shown, and its position in the caller's order.
    x, model
        What the decision left to learn from (``core.reward.Observation``): the chosen masked
        context, and the arm whose own model it teaches; None where all arms share one.
    probability
        With which the arm was shown, if that was asked for.
    contributors
        Participants whose features counted; the others' blocks were zeros.
    epoch
        Of the masks that ``x`` is behind.
    user
        Whom the decision was for: the id that the application gave.
    at
        When, in seconds since 1970; nothing is derived from it.
    root
        Whether the state keeps a root of its inverse from this decision on.
    group
        Why this arm: "policy", or the reason for which another one is shown than the policy's.
    due
        When the wait for a reward ends, in seconds since 1970; None if it never does.
    held
        Whether it must be activated before a reward may come.
    answer
        The answer that was given, encoded; empty where it is not kept.
    seconds
        From the request to this record, without the commit; 0 if nobody measured it.
    holdback
        Probability with which the event was given to the holdback; 0 where no such choice was made.
    offered
        All arms with their contexts, behind the masks of ``epoch``; None if they are not kept
        (``log_contexts``).
    """

    event_id: EventId
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
    group: str = "policy"
    due: float | None = None
    held: bool = False
    answer: bytes = field(default=b"", repr=False)
    seconds: float = 0.0
    holdback: float = 0.0
    offered: Offered | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Recalled:
    """The observation that was learnt from, where the decision was no longer in memory.

    ``opened`` is the position of its ``Decided``; ``x`` and ``model`` are what that left to learn
    from, carried to the masks in force.
    """

    opened: int
    x: Vector = field(repr=False)
    model: ArmId | None = None


@dataclass(frozen=True, slots=True)
class Rewarded:
    """A reward was learnt: it was the first for its decision, which was open.

    ``reward_id`` is what the application called it; None if nobody sent it: the default, or a sum.
    ``recalled`` is None where the decision was in memory.
    """

    event_id: EventId
    value: float
    at: float = 0.0
    reward_id: str | None = ""
    recalled: Recalled | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, eq=False)
class MasksChanged:
    """All that was learnt was carried to other masks, and so were the open decisions.

    ``matrix`` is R (new dim, old dim), ``epoch`` that of the new masks, and
    ``signed_roster`` the roster of that epoch as its organiser signed it.
    """

    epoch: int
    matrix: Matrix = field(repr=False)
    signed_roster: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """An open decision was dropped; its reward will not be learnt.

    ``opened`` is the position of its ``Decided`` where it was no longer in memory, else 0.
    ``default`` is the reward that a model which is not frozen would have learnt.
    """

    event_id: EventId
    opened: int = field(default=0, repr=False)
    default: float | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Activated:
    """A decision that was held is shown now; its reward may come until ``due``.

    ``opened`` is the position of its ``Decided`` where it was no longer in memory, else 0.
    """

    event_id: EventId
    due: float | None
    at: float = 0.0
    opened: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Reported:
    """A reward came that is not learnt, or not yet.

    ``why`` is "counted" (it is part of a sum), "late", "ignored" (an earlier one counts) or
    "logged" (the model is frozen).
    """

    event_id: EventId
    value: float
    reward_id: str
    why: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Configured:
    """Settings changed; ``settings`` are all of them, in the caller's form."""

    settings: bytes
    at: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Retracted:
    """A reward that was learnt is taken back; its decision stays closed.

    ``x`` and ``model`` are the decision's own (``Decided``), carried to the masks of ``epoch``, so
    that the fold needs no earlier record.  ``value`` is what was learnt, ``by`` who asked for it.

    ``x`` is empty where the model in force no longer holds the reward: it changes nothing, but is
    counted, so that no exported model brings the reward back.
    """

    event_id: EventId
    value: float
    x: Vector = field(repr=False)
    model: ArmId | None = None
    epoch: int = 0
    at: float = 0.0
    by: str = ""


@dataclass(frozen=True, slots=True)
class ArmsDropped:
    """Models of arms that were not shown for long were dropped (layout "disjoint").

    A reward that comes for one of them later starts it from the prior.
    """

    arms: tuple[ArmId, ...]
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class GuardrailTripped:
    """The policy brings significantly less than the holdback: from here on the baseline is shown.

    ``difference`` is what the policy's events bring more than the holdback's, per event, with an
    interval that holds at all times together with probability 1 - ``alpha``.
    """

    n_policy: int
    n_holdback: int
    mean_policy: float
    mean_holdback: float
    difference: float
    low: float
    high: float
    alpha: float
    at: float = 0.0
    by: str = "guardrail"

    def describe(self) -> str:
        """For the audit trail and the page."""
        return (
            f"the baseline is shown: the policy brings {self.mean_policy:.4g} per event, the "
            f"holdback {self.mean_holdback:.4g}; difference {self.difference:.4g} "
            f"({self.low:.4g} to {self.high:.4g}) over {self.n_policy + self.n_holdback} events"
        )


@dataclass(frozen=True, slots=True)
class GuardrailRearmed:
    """The policy decides again, and is compared with the holdback from here on."""

    by: str
    at: float = 0.0

    def describe(self) -> str:
        """For the audit trail and the page."""
        return "the guardrail was re-armed: the policy decides again"


@dataclass(frozen=True, slots=True)
class LossAccepted:
    """The journal was opened although acknowledged records were missing.

    They were acknowledged up to ``expected``, and the journal ended at ``found``.  ``by`` is who
    accepted that, ``why`` what was found.
    """

    expected: int
    found: int
    why: str
    by: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class SetAside:
    """Takes the place of a damaged or missing record, by ``vfb journal repair``.

    ``covered_by`` is the position of a snapshot that holds what the record did to the model; None
    if there was none: then what the record taught is lost, and the fold goes on without it.
    """

    why: str
    covered_by: int | None
    by: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Resized:
    """From here on ``max_pending`` decisions are kept in memory, and older ones are not."""

    max_pending: int


@dataclass(frozen=True, slots=True)
class Erased:
    """Takes the place of a record of a decision whose user was erased.

    ``covered_by`` is the position of a snapshot that holds what the record did to the model; None
    if it never did anything to it: it was still on its way into the journal.
    """

    event_id: EventId
    covered_by: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """An earlier model was put back: what was learnt is that of ``model`` from here on.

    Pending decisions, settings and masks stay.  ``model`` is a bandit without decisions, behind the
    masks of ``epoch``.  ``of`` is the position of this journal that it is the model of, less what
    was retracted since; None if it comes from another journal.
    """

    model: Snapshot = field(repr=False)
    epoch: int
    of: int | None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Administered:
    """Somebody changed something: what, who and when.  Nothing that is learnt depends on it.

    ``what`` is a constant of this module, ``detail`` a text that names no user.  With
    ``SETTINGS_FILE`` it is a JSON object: the settings of the file that differ from now on.
    """

    what: str
    detail: str
    by: str
    at: float = 0.0


Event: TypeAlias = (
    Decided
    | Rewarded
    | MasksChanged
    | Forgotten
    | Activated
    | Reported
    | Configured
    | Retracted
    | ArmsDropped
    | GuardrailTripped
    | GuardrailRearmed
    | LossAccepted
    | SetAside
    | Resized
    | Erased
    | Administered
    | Restored
)

# Records of one decision, as a journal has found them: each with its position.
Found: TypeAlias = list[tuple[int, Event]]
