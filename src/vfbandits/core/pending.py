"""Decisions that wait for their reward: late, out of order, twice or never.

One record for each: the observation that was made *then*, and what a campaign keeps beside it.  A
reward is learnt once: the same value again changes nothing, another value is refused.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.decision import ArmId, EventId
from vfbandits.core.move import Move
from vfbandits.core.reward import Observation, as_reward
from vfbandits.core.settings import whole
from vfbandits.core.snapshot import AnyArray, LazyList, Record
from vfbandits.errors import RewardError, SettingError, SnapshotError, UnknownDecisionError

NO_REPORTS: Final[Mapping[str, float]] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Pending:
    """A decision that waits for its reward.

    Once it is entered it does not change, since snapshots hold it: what happens to it puts another
    one in its place.

    Attributes
    ----------
    observation
        What is learnt from when the reward comes.
    arm, group, at
        The arm that is shown, why that one, and when; a plain bandit leaves these alone.
    due
        When the wait ends, in seconds since 1970; None if it never does.
    held
        Whether it must be activated before a reward may come.
    logged
        Whether a reward came while nothing was learnt: then none of this decision ever is.
    reports
        Rewards that are summed when the wait ends, by their ids.
    position
        Of its ``Decided`` record in the journal; 0 without one.
    """

    observation: Observation
    arm: ArmId = 0
    group: str = "policy"
    at: float = 0.0
    due: float | None = None
    held: bool = False
    logged: bool = False
    reports: Mapping[str, float] = field(default_factory=lambda: NO_REPORTS)
    position: int = 0

    def is_over(self, now: float) -> bool:
        """Whether the wait has ended."""
        return self.due is not None and now > self.due

    def pack(self) -> tuple[object, ...]:
        """All but the context, for a snapshot."""
        return (
            self.observation.model,
            self.arm,
            self.group,
            self.at,
            self.due,
            self.held,
            self.logged,
            tuple(self.reports.items()),
            self.position,
        )

    @classmethod
    def unpack(cls, packed: object, x: Vector) -> "Pending":
        """The decision that was packed, with its context."""
        match packed:
            case [
                None | int() | str() as model,
                int() | str() as arm,
                str(group),
                at,
                due,
                bool(held),
                bool(logged),
                [*reports],
                int(position),
            ] if not isinstance(model, bool) and not isinstance(arm, bool):
                rewards = dict(map(_report, reports)) if reports else NO_REPORTS
                end = None if due is None else _number(due)
                seen = Observation(x, model)
                return cls(
                    observation=seen,
                    arm=arm,
                    group=group,
                    at=_number(at),
                    due=end,
                    held=held,
                    logged=logged,
                    reports=rewards,
                    position=position,
                )
        raise SnapshotError(
            "a pending decision needs its model, arm, group, times, flags, rewards and position, "
            f"got {type(packed).__name__} of other values"
        )


Evicted: TypeAlias = tuple[EventId, Pending]


class PendingDecisions:
    """Decisions that wait, and the rewards of the latest ones that were settled.

    At most ``max_open`` and ``max_settled`` are kept: past that the oldest leaves, and a reward
    for it is refused as unknown.  Memory does not grow with the number of rounds.
    """

    __slots__ = ("max_open", "max_settled", "open", "settled")

    def __init__(self, *, max_open: int, max_settled: int) -> None:
        self.max_open = whole(max_open, "max_open")
        self.max_settled = whole(max_settled, "max_settled")
        # A plain dict would look past all that was ever deleted to find its oldest entry.
        self.open: OrderedDict[EventId, Pending] = OrderedDict()
        self.settled: OrderedDict[EventId, float] = OrderedDict()

    def new_name(self, name: str) -> str:
        """``name`` if it may name a new decision; numbers are the bandit's own."""
        if not isinstance(name, str) or not name:
            raise SettingError(f"event_id must be text that is not empty, got {name!r}")
        if name in self.open or name in self.settled:
            raise SettingError(f"event_id must be new, got {name!r}, which was used before")
        return name

    def enter(self, event_id: EventId, pending: Pending) -> Evicted | None:
        """Open a decision; returns the oldest one if that had to leave."""
        self.open[event_id] = pending
        return self.open.popitem(last=False) if len(self.open) > self.max_open else None

    def match(self, event_id: EventId, reward: float) -> Observation | None:
        """What to learn from, or None when this very reward was learnt before."""
        pending = self.open.get(event_id)
        if pending is not None:
            return pending.observation
        known = self.settled.get(event_id)
        if known is None:
            raise UnknownDecisionError(
                f"a reward needs an open decision, got id {event_id!r}, which was never made, "
                f"was forgotten, or is older than the {self.max_open} open and "
                f"{self.max_settled} settled ones that are kept"
            )
        if known != reward:
            raise RewardError(
                f"decision {event_id!r} already has the reward {known}, got {reward}; "
                "nothing was changed"
            )
        return None

    def settle(self, event_id: EventId, reward: float) -> None:
        """Close a decision with the reward that was learnt."""
        self.open.pop(event_id, None)
        self.settled[event_id] = reward
        if len(self.settled) > self.max_settled:
            self.settled.popitem(last=False)

    def resize(self, max_open: int) -> list[Evicted]:
        """Keep so many open decisions from now on; returns those that had to leave."""
        self.max_open = whole(max_open, "max_open")
        n_evicted = max(0, len(self.open) - self.max_open)
        return [self.open.popitem(last=False) for _ in range(n_evicted)]

    def forget(self, event_id: EventId) -> None:
        """Drop an open decision whose reward will not come."""
        if event_id not in self.open:
            raise UnknownDecisionError(f"there is no open decision {event_id!r} to forget")
        del self.open[event_id]

    def change(self, event_id: EventId, **changes: object) -> None:
        """Put an open decision with these changes in the place of one."""
        self.open[event_id] = replace(self.open[event_id], **changes)  # type: ignore[arg-type]  # its fields

    def move(self, lifted: Move) -> None:
        """Carry the open observations along when the state moves to another mask or width."""
        for event_id, pending in [*self.open.items()]:
            self.change(event_id, observation=pending.observation.moved(lifted))

    def pack(self) -> tuple[LazyList[object], LazyList[Vector], LazyList[object]]:
        """What waits, the contexts of that, and the rewards of settled decisions."""
        keys, waiting = [*self.open], [*self.open.values()]
        done, rewards = [*self.settled], [*self.settled.values()]
        return (
            LazyList(
                len(keys),
                lambda part: [
                    (key, one.pack()) for key, one in zip(keys[part], waiting[part], strict=True)
                ],
            ),
            LazyList(len(keys), lambda part: [one.observation.x for one in waiting[part]]),
            LazyList(len(done), lambda part: [*zip(done[part], rewards[part], strict=True)]),
        )

    def unpack(self, record: Record, contexts: AnyArray | None) -> None:
        """Take the decisions of a snapshot."""
        opened = record.items("open")
        rows = np.zeros((0, 0)) if contexts is None else contexts
        if len(opened) != len(rows):
            raise SnapshotError(f"{len(opened)} decisions are open, got {len(rows)} contexts")
        for entry, x in zip(opened, rows, strict=True):
            key, packed = _pair(entry)
            self.open[key] = Pending.unpack(packed, np.array(x))
        for entry in record.items("settled"):
            key, reward = _pair(entry)
            self.settled[key] = as_reward(reward)

    def __iter__(self) -> Iterator[EventId]:
        """Ids of the open decisions, oldest first."""
        return iter(self.open)


def _pair(entry: object) -> tuple[EventId, object]:
    match entry:
        case [int() | str() as key, value] if not isinstance(key, bool):
            return key, value
    raise SnapshotError("a decision of a snapshot is an id and a value")


def _report(packed: object) -> tuple[str, float]:
    match packed:
        case [str(reward_id), value]:
            return reward_id, _number(value)
    raise SnapshotError("a reward of a pending decision is an id and a number")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SnapshotError(f"a pending decision needs finite numbers, got {type(value).__name__}")
    return float(value)
