"""A decision that was just made becomes an event: what is shown, and what is kept of it."""

from collections.abc import Callable
from typing import NamedTuple

from vfbandits.campaign.events import Decided
from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import ArmId, Decision


class Kept(NamedTuple):
    """What is logged of a decision beside what the bandit learns from; see ``Decided``."""

    arm: ArmId
    place: int
    probability: float | None
    group: str = "policy"
    due: float | None = None
    held: bool = False
    note: bytes = b""
    seconds: float = 0.0


class Showing(NamedTuple):
    """What the caller makes of a decision.

    ``forced`` is the arm that is shown whatever is chosen, if any; ``keep`` says what is logged of
    a decision that was just made.
    """

    forced: int | None
    keep: Callable[[Decision], Kept]


def decided_of(
    bandit: Bandit, decision: Decision, kept: Kept, *, user: str | None, epoch: int, at: float
) -> Decided:
    """The event of a decision that ``bandit`` has just made."""
    x, model = bandit.observation(decision)
    arm, place, probability, group, due, held, note, seconds = kept
    return Decided(
        decision.id,
        arm,
        place,
        x,
        model,
        probability,
        decision.contributors,
        epoch,
        user,
        at,
        bandit.has_root,
        group,
        due,
        held,
        note,
        seconds,
    )
