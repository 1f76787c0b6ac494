"""Rounds played so far, counted across processes: the progress of a run."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
EVERY_S = 0.1
_sink: Callable[[int], None] | None = None


def count_into(sink: Callable[[int], None] | None) -> None:
    """Give the number of rounds played since the last call to ``sink``, now and then."""
    global _sink  # noqa: PLW0603  (a process has one sink)
    _sink = sink


@contextmanager
def counting_into(sink: Callable[[int], None] | None) -> Iterator[None]:
    """``count_into`` within a block."""
    before = _sink
    count_into(sink)
    try:
        yield
    finally:
        count_into(before)


def counted(rounds: Iterable[T]) -> Iterator[T]:
    """The same rounds, each counted when the next one is asked for.

    >>> counts = []
    >>> with counting_into(counts.append):
    ...     played = list(counted("abc"))
    >>> played, sum(counts)
    (['a', 'b', 'c'], 3)
    """
    if _sink is None:
        yield from rounds
        return
    number, last = 0, time.monotonic()
    for one in rounds:
        yield one
        number += 1
        if (now := time.monotonic()) >= last + EVERY_S:
            _sink(number)
            number, last = 0, now
    _sink(number)
