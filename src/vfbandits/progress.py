"""Progress of long work on stderr: a bar on a terminal or in a notebook, else lines."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

EVERY_S = 5.0


class Tell(Protocol):
    """Reports how much is done; ``total`` and ``note`` keep their last value."""

    def __call__(self, done: float, *, total: float | None = None, note: str = "") -> None:
        """Report it."""
        ...


@contextmanager
def progress(what: str, *, total: float | None = None) -> Iterator[Tell]:
    """Yield a function that reports how many of ``total`` are done.

    ``what`` is their name, in the plural; without one the fraction is shown and not the count.
    """
    if not _shows_bars():
        yield Lines(what, total=total, stream=sys.stderr)
        return
    with _bar(what, total) as tell:
        yield tell


def _shows_bars() -> bool:
    """Whether stderr is a terminal, or we run in a notebook, which shows bars of its own."""
    if sys.stderr.isatty():
        return os.environ.get("TERM") != "dumb"
    if "ipykernel" not in sys.modules:
        return False
    from rich.console import Console  # noqa: PLC0415  (slow, and seldom needed)

    return Console(stderr=True).is_jupyter


class Lines:
    """Prints a line every ``every_s`` at most, and none for work that ends sooner.

    >>> times = iter([0.0, 2.0, 6.0, 7.0, 12.0])
    >>> tell = Lines("rounds", total=3000, stream=sys.stdout, clock=times.__next__)
    >>> for done in (400, 1200, 1400, 2400):
    ...     tell(done)
    1,200 of 3,000 rounds, 40 %, about 9 s left
    2,400 of 3,000 rounds, 80 %, about 3 s left
    """

    def __init__(
        self,
        what: str,
        *,
        total: float | None,
        stream: TextIO,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._total = total
        self._stream = stream
        self._every_s = every_s
        self._clock = clock
        self._last = clock()
        self._first: tuple[float, float] | None = None  # time and value of the first report
        self._note = ""

    def __call__(self, done: float, *, total: float | None = None, note: str = "") -> None:
        """Print a line if the last one was long ago."""
        self._total = self._total if total is None else total
        self._note = note or self._note
        now = self._clock()
        self._first = self._first or (now, done)
        if now < self._last + self._every_s:
            return
        self._last = now
        parts = [count(self._what, done, self._total), self._note, *self._share(done, now)]
        print(", ".join(filter(None, parts)), file=self._stream, flush=True)

    def _share(self, done: float, now: float) -> Iterator[str]:
        if not self._total:
            return
        yield f"{100.0 * done / self._total:.0f} %"
        begun, before = self._first or (now, done)
        if before < done < self._total:
            left_s = (now - begun) * (self._total - done) / (done - before)
            yield f"about {duration(left_s)} left"


def count(what: str, done: float, total: float | None) -> str:
    """The count, with the total if that is known.

    >>> count("rounds", 1200, 5000), count("rows", 7, None), count("", 1, 2)
    ('1,200 of 5,000 rounds', '7 rows', '')
    """
    if not what:
        return ""
    return f"{done:,.0f} {what}" if total is None else f"{done:,.0f} of {total:,.0f} {what}"


def duration(seconds: float) -> str:
    """Seconds in the units that a person would use.

    >>> duration(7.2), duration(200.0), duration(7300.0)
    ('7 s', '3 min 20 s', '2 h 1 min')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def _bar(what: str, total: float | None) -> Iterator[Tell]:
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        transient=True,
    )
    with bar:
        task = bar.add_task(count(what, 0, total), total=total, note="")

        def tell(done: float, *, total: float | None = None, note: str = "") -> None:
            if total is not None:
                bar.update(task, total=total)
            if note:
                bar.update(task, note=note)
            told = count(what, done, bar.tasks[0].total)
            bar.update(task, completed=done, description=told)

        yield tell
