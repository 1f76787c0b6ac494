"""What is known of the events that wait for a reward: a part of the fold, beside the model.

The bandit keeps what an open decision left to learn from.  The book keeps the rest: until when its
reward is waited for, what came so far, and the settings in force.
"""

import base64
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from vfbandits.campaign.cold import Cold
from vfbandits.campaign.events import Activated, ArmsDropped, Configured, Decided, Event, Reported
from vfbandits.core.decision import ArmId, DecisionId
from vfbandits.core.layout import MAX_ARMS
from vfbandits.core.snapshot import Record
from vfbandits.errors import SnapshotError

COUNTED = "counted"
LOGGED = "logged"


@dataclass(slots=True)
class Entry:
    """One event that waits; ``reports`` are the rewards that count, by their ids.

    ``position`` is that of its ``Decided`` in the journal.
    ``logged`` if one came while nothing was learnt: then none of this event ever is.
    """

    arm: ArmId
    group: str
    at: float
    due: float | None
    held: bool
    reports: dict[str, float] = field(default_factory=dict)
    logged: bool = False
    position: int = 0


class Book:
    """The events that wait, oldest first: at most ``most``, as the bandit keeps them.

    Those that had to leave and whose wait ends some time are in ``cold``.

    >>> import numpy as np
    >>> book = Book(most=1)
    >>> for position, name in enumerate("ab", start=1):
    ...     book.apply(Decided(name, "tea", 0, np.ones(2), due=60.0), position)
    >>> book.entries["b"].due, book.cold.positions, book.n_pending
    (60.0, [1], 2)
    >>> book.close("b")
    >>> book.close("a", opened=1)
    >>> book.n_pending
    0
    """

    def __init__(self, *, most: int, max_arms: int = MAX_ARMS) -> None:
        self.most = most
        self.max_arms = max_arms
        self.arms_shown: OrderedDict[ArmId, float] = OrderedDict()
        self.entries: OrderedDict[DecisionId, Entry] = OrderedDict()
        self.cold = Cold()
        self.settings = b""
        self.n_settings = 0
        self.n_learnt = 0
        self.n_decided = 0  # since the model was loaded; not part of a snapshot

    @property
    def n_pending(self) -> int:
        """Events that wait, in memory or not."""
        return len(self.entries) + len(self.cold)

    @property
    def first(self) -> int | None:
        """Position of the oldest decision that waits."""
        cold = self.cold.first
        if cold is not None or not self.entries:
            return cold
        return next(iter(self.entries.values())).position

    def apply(self, event: Event, position: int = 0) -> None:
        """Take note of the event at ``position``; some do not concern the book."""
        if isinstance(event, Decided):
            self.entries[event.decision_id] = Entry(
                event.arm, event.group, event.at, event.due, event.held, position=position
            )
            self.n_decided += 1
            if event.model is not None:
                self._show(event.model, event.at)
            self._evict()
        elif isinstance(event, Activated):
            activated = self.entries.get(event.decision_id)
            if event.opened:
                if event.due is not None:
                    self.cold.postpone(event.opened, event.due)
            elif activated is not None:
                activated.held, activated.due = False, event.due
        elif isinstance(event, Reported):
            reported = self.entries.get(event.decision_id)
            if reported is not None and event.why == COUNTED:
                reported.reports[event.reward_id] = event.value
            elif reported is not None and event.why == LOGGED:
                reported.logged = True
        elif isinstance(event, ArmsDropped):
            for arm in event.arms:
                self.arms_shown.pop(arm, None)
        elif isinstance(event, Configured):
            self.settings = event.settings
            self.n_settings += 1

    def _show(self, arm: ArmId, at: float) -> None:
        """An arm that has a model of its own, or may get one, was shown."""
        self.arms_shown[arm] = at
        self.arms_shown.move_to_end(arm)
        if len(self.arms_shown) > self.max_arms:
            self.arms_shown.popitem(last=False)

    def arms_not_shown_since(self, at: float, *, most: int) -> tuple[ArmId, ...]:
        """Arms of layout "disjoint" that were last shown before ``at``, at most so many."""
        old: list[ArmId] = []
        for arm, shown_at in self.arms_shown.items():
            if shown_at >= at or len(old) == most:
                break
            old.append(arm)
        return tuple(old)

    def learnt(self, decision_id: DecisionId, *, opened: int = 0) -> None:
        """The model has the event's reward; ``opened`` is where it began if it was not here."""
        self.n_learnt += 1
        self.close(decision_id, opened=opened)

    def retracted(self) -> None:
        """A reward was taken back: that makes another version of the model."""
        self.n_learnt += 1

    def close(self, decision_id: DecisionId, *, opened: int = 0) -> None:
        """Nothing is waited for any more."""
        if opened:
            self.cold.close(opened)
        else:
            self.entries.pop(decision_id, None)

    def resize(self, most: int) -> None:
        """Keep so many from now on."""
        self.most = most
        self._evict()

    def _evict(self) -> None:
        while len(self.entries) > self.most:
            _, entry = self.entries.popitem(last=False)
            if entry.due is not None and entry.position:
                self.cold.add(entry.position, entry.due)

    def pack(self) -> dict[str, object]:
        """For a snapshot."""
        return {
            "settings": base64.b64encode(self.settings).decode(),
            "n_settings": self.n_settings,
            "n_learnt": self.n_learnt,
            "arms_shown": list(self.arms_shown.items()),
            "entries": [
                (
                    *(key, e.arm, e.group, e.at, e.due, e.held, e.logged),
                    *(tuple(e.reports.items()), e.position),
                )
                for key, e in self.entries.items()
            ],
        }

    def unpack(self, record: Record) -> None:
        """Take what a snapshot holds."""
        self.settings = _from_base64(record, "settings")
        self.n_settings = record.integer("n_settings")
        self.n_learnt = record.integer("n_learnt")
        for shown in record.items("arms_shown") if record.has("arms_shown") else ():
            match shown:
                case [int() | str() as arm, at]:
                    self.arms_shown[arm] = _number(at)
                case _:
                    raise SnapshotError("the book needs arms with times, got others")
        for packed in record.items("entries"):
            key, entry = _entry(packed)
            self.entries[key] = entry


def _entry(packed: object) -> tuple[DecisionId, Entry]:
    match packed:
        case [
            int() | str() as key,
            int() | str() as arm,
            str(group),
            at,
            due,
            bool(held),
            bool(logged),
            reports,
            *place,
        ]:
            if not isinstance(key, bool) and not isinstance(arm, bool):
                when = None if due is None else _number(due)
                came, position = _reports(reports), _position(place)
                return key, Entry(arm, group, _number(at), when, held, came, logged, position)
    raise SnapshotError("an entry of the book needs an id, an arm, times and reports, got others")


def _position(place: list[object]) -> int:
    """Snapshots of version 0.1.0 have none."""
    match place:
        case []:
            return 0
        case [int(position)]:
            return position
    raise SnapshotError("an entry of the book needs a position, got another")


def _reports(packed: object) -> dict[str, float]:
    reports = {}
    for report in packed if isinstance(packed, list | tuple) else [None]:
        match report:
            case [str(reward_id), value]:
                reports[reward_id] = _number(value)
            case _:
                raise SnapshotError("reports in the book need ids and values, got others")
    return reports


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SnapshotError(f"the book needs finite numbers, got {type(value).__name__}")
    return float(value)


def _from_base64(record: Record, key: str) -> bytes:
    try:
        return base64.b64decode(record.text(key), validate=True)
    except ValueError as error:
        raise SnapshotError(f"the snapshot needs base64 at {key!r}: {error}") from error


def total(reports: Mapping[str, float]) -> float:
    """The sum of rewards, in an order that does not depend on when they came."""
    return float(sum(reports[key] for key in sorted(reports)))
