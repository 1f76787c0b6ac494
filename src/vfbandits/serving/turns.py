"""One at a time, by name: whoever looks and then writes must not be overtaken in between."""

import asyncio
from weakref import WeakValueDictionary


class Turns:
    """A lock for each name, kept as long as somebody holds or awaits it.

    >>> turns = Turns()
    >>> mine = turns["a"]
    >>> mine is turns["a"], mine is turns["b"]
    (True, False)
    """

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str | int, asyncio.Lock] = WeakValueDictionary()

    def __getitem__(self, name: str | int) -> asyncio.Lock:
        """The lock of this name."""
        lock = self._locks.get(name)
        if lock is None:
            lock = asyncio.Lock()
            self._locks[name] = lock
        return lock
