"""Slots for connections: which get one, and which are dropped when there are none left.

A connection is known once a valid key or certificate was shown on it.  Unknown connections make
room for new ones, the oldest first: those from the address of the new one before all others, so
that a flood from one address displaces itself.
"""

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

from vfbandits.http.access.connection_limits import ConnectionLimits
from vfbandits.telemetry.connection_counts import ConnectionCounts

MAX_SCANNED: Final = 1_000  # of connections that cannot be dropped now, before the search ends


class Occupant(Protocol):
    """A connection, as the HTTP protocol sees it."""

    @property
    def is_known(self) -> bool:
        """Whether a valid key or certificate was shown on it."""
        ...

    @property
    def is_answering(self) -> bool:
        """Whether a whole request has arrived and is not answered yet."""
        ...


class Slot:
    """One connection from when it is accepted until it is closed."""

    __slots__ = ("address", "drop", "is_limited", "occupant")

    def __init__(self, address: str, drop: Callable[[], None], *, is_limited: bool) -> None:
        self.address = address
        self.drop = drop
        self.is_limited = is_limited
        self.occupant: Occupant | None = None  # None during a TLS handshake


class Slots:
    """All connections of one server.

    Attributes
    ----------
    limits
        How many in all, and from one address.
    counts
        Where refusals are counted.
    """

    def __init__(self, limits: ConnectionLimits, counts: ConnectionCounts) -> None:
        self.limits = limits
        self.counts = counts
        counts.limit = limits.total
        self._open: set[Slot] = set()
        self._by_address: Counter[str] = Counter()
        # Not known yet, in the order in which they came.
        self._strangers: dict[Slot, None] = {}
        self._strangers_of: dict[str, dict[Slot, None]] = {}

    def take(self, address: str, drop: Callable[[], None], *, is_limited: bool) -> Slot | None:
        """A slot for a connection from ``address``; None, which is counted, if there is none.

        ``drop`` closes the connection if its slot is needed.  One that is not ``is_limited``, as
        that of a trusted proxy, counts in the total only, and keeps its slot.
        """
        if is_limited and self._by_address[address] >= self.limits.per_address:
            if not self._drop_one(self._strangers_of.get(address, {})):
                self.counts.refused["address"] += 1
                return None
        elif len(self._open) >= self.limits.total:
            own = self._strangers_of.get(address, {})
            if not self._drop_one(own) and not self._drop_one(self._strangers):
                self.counts.refused["total"] += 1
                return None
        slot = Slot(address, drop, is_limited=is_limited)
        self._open.add(slot)
        if is_limited:
            self._by_address[address] += 1
            self._strangers[slot] = None
            self._strangers_of.setdefault(address, {})[slot] = None
        self.counts.open = len(self._open)
        return slot

    def release(self, slot: Slot) -> None:
        """The connection is closed; may be called more than once."""
        if slot not in self._open:
            return
        self._open.discard(slot)
        self.counts.open = len(self._open)
        if not slot.is_limited:
            return
        self._forget_stranger(slot)
        self._by_address[slot.address] -= 1
        if not self._by_address[slot.address]:
            del self._by_address[slot.address]

    def drop_strangers(self, count: int) -> int:
        """Close up to ``count`` unknown connections; returns how many were closed."""
        n_dropped = 0
        while n_dropped < count and self._drop_one(self._strangers):
            n_dropped += 1
        return n_dropped

    def _drop_one(self, among: dict[Slot, None]) -> bool:
        """Close the oldest unknown connection without an answer to come; whether there was one."""
        known: list[Slot] = []
        found: Slot | None = None
        for n_scanned, slot in enumerate(among):
            occupant = slot.occupant
            if occupant is not None and occupant.is_known:
                known.append(slot)
            elif occupant is None or not occupant.is_answering:
                found = slot
                break
            elif n_scanned >= MAX_SCANNED:
                break
        for slot in known:  # for good: they are never looked at again
            self._forget_stranger(slot)
        if found is None:
            return False
        self.counts.closed["idle"] += 1
        self.release(found)
        found.drop()
        return True

    def _forget_stranger(self, slot: Slot) -> None:
        if self._strangers.pop(slot, slot) is slot:
            return
        own = self._strangers_of[slot.address]
        del own[slot]
        if not own:
            del self._strangers_of[slot.address]
