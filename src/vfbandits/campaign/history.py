"""One event, as the journal has it: what was shown, what came, what was learnt."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from vfbandits.campaign.events import (
    Activated,
    Decided,
    Erased,
    Event,
    Forgotten,
    Found,
    MasksChanged,
    Reported,
    Retracted,
    Rewarded,
)
from vfbandits.campaign.model import COUNTED, LOGGED
from vfbandits.core.pending import NO_REPORTS, Pending
from vfbandits.core.reward import Observation
from vfbandits.errors import ConflictError, ErasedEventError

HELD, WAITING, LEARNT, FORGOTTEN = "held", "waiting", "learnt", "forgotten"
RETRACTED = "retracted"


@dataclass(slots=True)
class History:
    """All that the journal has of an event.

    ``due`` is when the wait for a reward ends, or has ended; ``came`` are the rewards that were
    sent, by their ids.  ``position`` is that of the decision, where the journal was asked, and
    ``learnt_at`` that of the reward that was learnt.

    Records after ``read_to`` may be missing, unless that is infinite: the caller has not kept
    others from writing while it read.

    The caller adds what only some events need: ``mask_changes``, with their positions, up to
    ``mask_changes_to``, and whether the model that was taught belongs to an arm that was dropped.
    """

    decided: Decided
    due: float | None
    held: bool
    position: int = 0
    learnt_at: int = 0
    status: str = WAITING
    learnt: float | None = None
    came: dict[str, Reported | Rewarded] = field(default_factory=dict)
    mask_changes: Sequence[tuple[int, MasksChanged]] = field(default=(), repr=False)
    mask_changes_to: int = 0
    is_arm_dropped: bool = False
    read_to: float = math.inf

    @classmethod
    def of(cls, events: Iterable[Event]) -> "History | None":
        """The history that these events make; None if the decision is not among them.

        An ErasedEventError if its user was forgotten: such an event is neither new nor known.

        >>> import numpy as np
        >>> past = History.of([Decided("a", "tea", 0, np.ones(1)), Rewarded("a", 1.0)])
        >>> past.status, past.learnt
        ('learnt', 1.0)
        """
        history = None
        for event in events:
            if isinstance(event, Erased):
                raise ErasedEventError(
                    f"wanted an event that is kept, got {event.event_id!r}, which was erased "
                    "with its user; nothing was changed"
                )
            if isinstance(event, Decided):
                status = HELD if event.held else WAITING
                history = cls(event, event.due, event.held, status=status)
            elif history is not None:
                history.add(event)
        return history

    @classmethod
    def found(cls, events: Found) -> "History | None":
        """The same from what a journal has found, with the position of the decision."""
        history = cls.of(event for _, event in events)
        if history is not None:
            history.position = max(at for at, event in events if isinstance(event, Decided))
            rewarded = (at for at, event in events if isinstance(event, Rewarded))
            history.learnt_at = max(rewarded, default=0)
        return history

    @property
    def is_open(self) -> bool:
        """Whether a reward is still waited for, or an activation."""
        return self.status in (HELD, WAITING)

    def pending(self) -> Pending:
        """The event as it would be in memory; its context is behind the masks of the decision."""
        decided = self.decided
        came = {key: one for key, one in self.came.items() if isinstance(one, Reported)}
        reports = {name: one.value for name, one in came.items() if one.why == COUNTED}
        return Pending(
            observation=Observation(decided.x, decided.model),
            arm=decided.arm,
            group=decided.group,
            at=decided.at,
            due=self.due,
            held=self.held,
            logged=any(one.why == LOGGED for one in came.values()),
            reports=reports or NO_REPORTS,
            position=self.position,
        )

    @property
    def logged(self) -> float | None:
        """The first reward that came while the model was frozen."""
        came = (one for one in self.came.values() if isinstance(one, Reported))
        return next((one.value for one in came if one.why == LOGGED), None)

    def has_mask_changes_to(self, position: int) -> bool:
        """Whether ``mask_changes`` has all that follow the decision, up to this position."""
        return self.mask_changes_to >= position

    def add(self, event: Event) -> None:
        """Add the next event."""
        if isinstance(event, Activated):
            self.held, self.due, self.status = False, event.due, WAITING
        elif isinstance(event, Rewarded):
            self.status, self.learnt = LEARNT, event.value
            if event.reward_id is not None:
                self.came[event.reward_id] = event
        elif isinstance(event, Retracted):
            self.status, self.learnt = RETRACTED, None
        elif isinstance(event, Forgotten):
            self.status = FORGOTTEN
        elif isinstance(event, Reported):
            self.came.setdefault(event.reward_id, event)

    def has(self, reward_id: str, value: float) -> bool:
        """Whether this very reward came before; ConflictError if another one of its id did."""
        before = self.came.get(reward_id)
        if before is None:
            return False
        refuse_other_value(self.decided.event_id, before.value, value, reward_id)
        return True


def refuse_other_value(event_id: object, before: float, value: float, reward_id: str) -> None:
    """The same reward cannot have two values."""
    if before != value:
        which = f"reward {reward_id!r}" if reward_id else "the reward"
        raise ConflictError(
            f"{which} of event {event_id!r} is {before} already, got {value}; nothing was changed"
        )
