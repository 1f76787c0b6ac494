"""The inbox of a log: what rankers promised, until the log's one writer takes it in.

What every inbox promises, and ``tests/journal/test_inbox.py`` checks:

* What ``put`` has returned for is durable.  Several processes may put at the same time; under one
  key the first event stands, and whoever comes later is told of that one.  So a decision has one
  answer and a reward one value, whichever process was asked.
* ``waiting`` gives in the order of arrival what was not taken yet: an event that was put after
  another one had been acknowledged comes after it.
* What was taken keeps its key until it is pruned.
* What was erased is gone, whether it was taken or not, and its key is free again.
* The inbox of a log that is encrypted is encrypted as well.

An inbox may be used from several threads.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from vfbandits.campaign.events import Activated, Configured, Decided, Reported
from vfbandits.core.decision import EventId
from vfbandits.errors import WireError

# A reward waits as a ``Reported``; in ``Configured`` stand the changes (``pack_change``), not all
# settings.
Arrival: TypeAlias = Decided | Reported | Activated | Configured
QUEUED = "queued"
KEPT_S = 86_400.0


class _Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A change of settings on its way: what, and who asks for it."""

    changes: dict[str, object]
    by: str


def pack_change(changes: dict[str, object], *, by: str) -> bytes:
    """What stands in a ``Configured`` that waits.

    >>> unpack_change(pack_change({"mode": "frozen"}, by="ops"))
    ({'mode': 'frozen'}, 'ops')
    """
    return msgspec.json.encode(_Change(changes, by))


def unpack_change(packed: bytes) -> tuple[dict[str, object], str]:
    """The changes, and who asks for them."""
    try:
        change = msgspec.json.decode(packed, type=_Change)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise WireError(f"wanted a change of settings and who asks for it: {error}") from None
    return change.changes, change.by


@dataclass(frozen=True, slots=True)
class Waiting:
    """An event that was not taken yet; None, with the reason, if it cannot be read."""

    id: int
    event: Arrival | None
    reason: str = ""


def older_than(before: float, found: Iterable[tuple[int, Arrival | None]]) -> Iterator[int]:
    """Numbers of the events, in their order, that came before a time.

    One that cannot be read is as old as the next that can.

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
    """An event for another inbox; None if it cannot be read.

    ``taken`` is when it was taken, in seconds since 1970: infinite if it was set aside, None if it
    waits.
    """

    event: Arrival | None
    taken: float | None


class Inbox(Protocol):
    """Events on their way into a log."""

    def put(self, events: Sequence[Arrival]) -> list[Arrival]:
        """Make events durable; returns for each the one that stands under its key."""
        ...

    def find_many(self, ids: Sequence[EventId]) -> dict[EventId, list[Arrival]]:
        """What waits of several decisions, in order; every id is in the answer."""
        ...

    def waiting(self, most: int) -> list[Waiting]:
        """The first events that wait, in order."""
        ...

    def take(self, ids: Sequence[int]) -> None:
        """These are in the log."""
        ...

    def set_aside(self, ids: Sequence[int]) -> None:
        """These can never be in the log: they wait no more, and are kept for a person to see."""
        ...

    def is_used(self) -> bool:
        """Whether anything waits, or was taken lately."""
        ...

    def prune(self, *, older_s: float, most: int) -> int:
        """Drop what was taken so long ago; returns how many were dropped, at most ``most``."""
        ...

    def retire(self, *, before: float, most: int) -> int:
        """Drop what was set aside and came before a time; returns how many, at most ``most``.

        One that cannot be read is as old as the next that can.
        """
        ...

    def decisions_of(self, user: str) -> list[EventId]:
        """Ids of all decisions for a user that are in it, waiting or taken."""
        ...

    def erase(self, ids: Sequence[EventId]) -> None:
        """Drop all that is in it of these decisions, and what nobody can read; all or nothing."""
        ...

    def copied(self) -> Iterator[Copied]:
        """All that is in it, in order, for a copy."""
        ...

    def close(self) -> None:
        """Give back what is held; safe to call twice."""
        ...
