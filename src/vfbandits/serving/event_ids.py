"""Ids of events that the application gave no id."""

from os import urandom

ID_BYTES = 16
BATCH_SIZE = 256


class EventIds:
    """Random ids of 128 bits, drawn from the operating system in batches.

    >>> ids = EventIds()
    >>> len({ids.draw() for _ in range(1000)})
    1000
    """

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: list[str] = []

    def draw(self) -> str:
        """A new id."""
        if not self._ids:
            drawn = urandom(ID_BYTES * BATCH_SIZE).hex()
            step = 2 * ID_BYTES
            self._ids = [drawn[start : start + step] for start in range(0, len(drawn), step)]
        return self._ids.pop()
