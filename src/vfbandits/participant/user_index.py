"""The user of a pseudonym: an index of the owner's own users, in memory.

A pseudonym reveals nothing about its user, so the owner computes the pseudonym of every user that
it has rows of.  The index is not written to the disk and does not leave the process.
"""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from vfbandits.errors import FeatureError
from vfbandits.protocol.pseudonyms import Pseudonyms

MAX_USERS: Final = 20_000_000  # some gigabytes of memory
MIN_WAIT_S: Final = 10.0
WAIT_FACTOR: Final = 20.0  # so that a store is read for at most a twentieth of the time
LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Resolved:
    """The users of an ask: ids of known users, and placeholders for the others."""

    users: tuple[str, ...] = field(repr=False)
    is_known: tuple[bool, ...]


class UserIndex:
    """The users that ``users`` gives, found by their pseudonyms.

    Where the store is read at each lookup (``is_live``), users may be added to it: the index is
    built again some time after it was asked for a pseudonym that it does not have.

    >>> index, names = UserIndex(lambda: ["ann"], is_live=False), Pseudonyms(bytes(32))
    >>> index.build(names)
    1
    >>> index.resolve(names, [names.of("ann"), "ann"])
    Resolved(is_known=(True, False))
    """

    def __init__(
        self,
        users: Callable[[], Iterable[str]],
        *,
        is_live: bool,
        most: int = MAX_USERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._users = users
        self._is_live = is_live
        self._most = most
        self._clock = clock
        self._built: tuple[Pseudonyms, dict[bytes, str]] | None = None
        self._has_missed = False
        self._next_at = 0.0

    def build(self, names: Pseudonyms) -> int:
        """Read all users; returns how many there are.  FeatureError if they cannot be read."""
        start, self._has_missed, self._next_at = self._clock(), False, math.inf
        found: dict[bytes, str] = {}
        digest = names.digest
        try:
            for user in self._users():
                found[digest(user)] = user
                if len(found) > self._most:
                    raise FeatureError(
                        f"an index of users holds at most {self._most}, got more: name a table or "
                        "a view that has the users of this federation only"
                    )
        finally:
            now = self._clock()
            self._next_at = now + max(MIN_WAIT_S, WAIT_FACTOR * (now - start))
        self._built = (names, found)
        return len(found)

    def is_of(self, names: Pseudonyms) -> bool:
        """Whether the index was built for these pseudonyms."""
        return self._built is not None and self._built[0] == names

    def is_due(self, names: Pseudonyms) -> bool:
        """Whether the index should be built again now."""
        if self._clock() < self._next_at:
            return False
        return not self.is_of(names) or (self._is_live and self._has_missed)

    def resolve(self, names: Pseudonyms, pseudonyms: Sequence[str]) -> Resolved:
        """The users of these pseudonyms; FeatureError before the index is built."""
        if self._built is None or self._built[0] != names:
            raise FeatureError("users must be indexed by their pseudonyms, got no index yet")
        find = self._built[1].get
        found = [find(_bytes(pseudonym)) for pseudonym in pseudonyms]
        is_known = tuple([user is not None for user in found])
        if all(is_known):
            return Resolved(tuple([user or "" for user in found]), is_known)
        self._has_missed = True
        # No store is asked for a placeholder; the access record still has an entry about it.
        pairs = zip(found, pseudonyms, strict=True)
        users = [unknown_user(name) if user is None else user for user, name in pairs]
        return Resolved(tuple(users), is_known)


def unknown_user(pseudonym: str) -> str:
    """The placeholder for a user whose pseudonym is not in the index."""
    return f"pseudonym {pseudonym}"


def _bytes(pseudonym: str) -> bytes:
    try:
        return bytes.fromhex(pseudonym)
    except ValueError:
        return b""
