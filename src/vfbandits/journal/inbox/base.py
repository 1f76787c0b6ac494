"""The inbox of a journal: durable events of replicas that the leader has not taken in yet.

Every inbox guarantees the following, which ``tests/journal/test_inbox.py`` checks:

* When ``put`` returns, its events are durable.  Several processes may put at the same time; the
  first event under a key is kept, and later calls with this key get that one.  So a decision has
  one answer and a reward one value, whichever process was asked.
* ``waiting`` gives the events that were not taken yet, in the order of arrival: an event that was
  put after another one was acknowledged follows it.
* A taken event keeps its key until it is pruned.
* An erased event is gone, whether it was taken or not, and its key is free again.
* The inbox of an encrypted journal is encrypted as well.

An inbox may be used from several threads.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from vfbandits.campaign.events import Activated, Configured, Decided, Reported
from vfbandits.core.decision import EventId
from vfbandits.errors import WireError

# A reward waits as a ``Reported``.  A ``Configured`` has the changes only (``pack_change``), not
# all settings.
Arrival: TypeAlias = Decided | Reported | Activated | Configured
QUEUED = "queued"
KEPT_S = 86_400.0


class _Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of settings that waits, and who asks for it."""

    changes: dict[str, object]
    by: str


def pack_change(changes: dict[str, object], *, by: str) -> bytes:
    """The packed settings of a ``Configured`` that waits.

    >>> unpack_change(pack_change({"mode": "frozen"}, by="ops"))
    ({'mode': 'frozen'}, 'ops')
    """
    return msgspec.json.encode(_Change(changes, by))


def unpack_change(packed: bytes) -> tuple[dict[str, object], str]:
    """The changes, and who asks for them."""
    try:
        change = msgspec.json.decode(packed, type=_Change)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"wanted a change of settings and who asks for it, got: {error}") from None
    return change.changes, change.by


@dataclass(frozen=True, slots=True)
class Waiting:
    """An event that was not taken yet; ``event`` is None, with a ``reason``, if unreadable."""

    id: int
    event: Arrival | None
    reason: str = ""


def older_than(before: float, found: Iterable[tuple[int, Arrival | None]]) -> Iterator[int]:
    """Numbers of the events from before a time, in their order.

    An unreadable event counts as old as the next readable one.

    >>> one, two = (Reported(name, 1.0, "", QUEUED, at) for name, at in (("a", 1.0), ("b", 9.0)))
    >>> list(older_than(5.0, [(1, None), (2, one), (3, None), (4, two)]))
    [1, 2]
    """
    unread: list[int] = []
    for number, event in found:
        unread.append(number)
        if event is not None:
            if event.at < before:
                yield from unread
            unread.clear()


class Copied(NamedTuple):
    """An event for another inbox; ``event`` is None if it is unreadable.

    ``taken`` is when it was taken, in seconds since 1970: infinite if it was set aside, None if it
    waits.
    """

    event: Arrival | None
    taken: float | None


class Inbox(Protocol):
    """Events on their way into a journal."""

    def put(self, events: Sequence[Arrival]) -> list[Arrival]:
        """Make events durable; returns for each the event that is kept under its key."""
        ...

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, list[Arrival]]:
        """Waiting events of several decisions, in order; the answer has every id."""
        ...

    def waiting(self, most: int) -> list[Waiting]:
        """The first ``most`` events that wait, in order."""
        ...

    def take(self, ids: Sequence[int]) -> None:
        """Mark events that are in the journal now."""
        ...

    def set_aside(self, ids: Sequence[int]) -> None:
        """Mark events that the journal refused: they wait no longer, and are kept for operators."""
        ...

    def is_used(self) -> bool:
        """Whether there are events that wait, or that were not pruned yet."""
        ...

    def prune(self, *, older_s: float, most: int) -> int:
        """Drop events that were taken ``older_s`` ago or earlier; returns how many, up to ``most``.

        Events that were set aside are kept.
        """
        ...

    def retire(self, *, before: float, most: int) -> int:
        """Drop set-aside events from before a time; returns how many, up to ``most``.

        An unreadable event counts as old as the next readable one.
        """
        ...

    def decisions_of(self, user: str) -> list[EventId]:
        """Ids of all decisions for a user in the inbox, waiting or taken."""
        ...

    def erase(self, ids: Sequence[EventId]) -> None:
        """Delete all events of these decisions, and all unreadable ones; all or nothing."""
        ...

    def copied(self) -> Iterator[Copied]:
        """All events in it, in order, for a copy."""
        ...

    def close(self) -> None:
        """Release all resources; safe to call twice."""
        ...
