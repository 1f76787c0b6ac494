"""What is known of the events that wait for a reward: a part of the fold, beside the model.

The bandit keeps what an open decision left to learn from.  The book keeps the rest: until when its
reward is waited for, what came so far, and the settings in force.
"""

import base64
import math
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from vfbandits.core.decision import ArmId, DecisionId
from vfbandits.core.layout import MAX_ARMS
from vfbandits.core.snapshot import Record
from vfbandits.errors import SnapshotError
from vfbandits.store.events import Activated, ArmsDropped, Configured, Decided, Event, Reported

COUNTED = "counted"
LOGGED = "logged"


@dataclass(slots=True)
class Entry:
    """One event that waits; ``reports`` are the rewards that count, by their ids.

    ``logged`` if one came while nothing was learnt: then none of this event ever is.
    """

    arm: ArmId
    group: str
    at: float
    due: float | None
    held: bool
    reports: dict[str, float] = field(default_factory=dict)
    logged: bool = False


class Book:
    """The events that wait, oldest first: at most ``most``, as the bandit keeps them.

    >>> import numpy as np
    >>> book = Book(most=10)
    >>> book.apply(Decided("a", "tea", 0, np.ones(2), due=60.0))
    >>> book.entries["a"].due
    60.0
    >>> book.close("a")
    >>> len(book.entries)
    0
    """

    def __init__(self, *, most: int, max_arms: int = MAX_ARMS) -> None:
        self.most = most
        self.max_arms = max_arms
        self.arms_shown: OrderedDict[ArmId, float] = OrderedDict()
        self.entries: OrderedDict[DecisionId, Entry] = OrderedDict()
        self.settings = b""
        self.n_settings = 0
        self.n_learnt = 0
        self.n_decided = 0  # since the model was loaded; not part of a snapshot

    def apply(self, event: Event) -> None:
        """Take note of an event; those that do not concern the book change nothing."""
        if isinstance(event, Decided):
            entry = Entry(event.arm, event.group, event.at, event.due, event.held)
            self.entries[event.decision_id] = entry
            self.n_decided += 1
            if event.model is not None:
                self._show(event.model, event.at)
            if len(self.entries) > self.most:
                self.entries.popitem(last=False)
        elif isinstance(event, Activated):
            activated = self.entries.get(event.decision_id)
            if activated is not None:
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

    def learnt(self, decision_id: DecisionId) -> None:
        """The model has the event's reward."""
        self.n_learnt += 1
        self.close(decision_id)

    def retracted(self) -> None:
        """A reward was taken back: that makes another version of the model."""
        self.n_learnt += 1

    def close(self, decision_id: DecisionId) -> None:
        """Nothing is waited for any more."""
        self.entries.pop(decision_id, None)

    def pack(self) -> dict[str, object]:
        """For a snapshot."""
        return {
            "settings": base64.b64encode(self.settings).decode(),
            "n_settings": self.n_settings,
            "n_learnt": self.n_learnt,
            "arms_shown": list(self.arms_shown.items()),
            "entries": [
                (key, e.arm, e.group, e.at, e.due, e.held, e.logged, tuple(e.reports.items()))
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
        ]:
            if not isinstance(key, bool) and not isinstance(arm, bool):
                when = None if due is None else _number(due)
                return key, Entry(arm, group, _number(at), when, held, _reports(reports), logged)
    raise SnapshotError("an entry of the book needs an id, an arm, times and reports, got others")


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
