"""A decision that was just made becomes an event: what is shown, and what is kept of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import ArmId, Decision
from vfbandits.store.events import Decided


@dataclass(slots=True)
class Kept:
    """What is logged of a decision beside what the bandit learns from; see ``Decided``."""

    arm: ArmId
    index: int
    probability: float | None
    group: str = "policy"
    due: float | None = None
    held: bool = False
    note: bytes = field(default=b"", repr=False)


@dataclass(slots=True)
class Showing:
    """What the caller makes of a decision.

    ``index`` is the arm that is shown whatever is chosen, if any; ``keep`` says what is logged of
    a decision that was just made.
    """

    index: int | None
    keep: Callable[[Decision], Kept]


def decided_of(
    bandit: Bandit, decision: Decision, kept: Kept, *, user: str | None, epoch: int, at: float
) -> Decided:
    """The event of a decision that ``bandit`` has just made."""
    x, model = bandit.observation(decision)
    return Decided(
        decision_id=decision.id,
        arm=kept.arm,
        index=kept.index,
        x=x,
        model=model,
        probability=kept.probability,
        contributors=decision.contributors,
        epoch=epoch,
        user=user,
        at=at,
        root=bandit.has_root,
        group=kept.group,
        due=kept.due,
        held=kept.held,
        note=kept.note,
    )
