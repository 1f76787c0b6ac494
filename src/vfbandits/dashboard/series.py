"""Buckets in rings of five seconds, a minute and a quarter of an hour.

An event is counted once, in the finest ring that still reaches back to it; when the bucket's place
there is needed again, the bucket is added to the next coarser ring.  So counting costs the same at
any age, memory is bounded, and a view adds up at most a few hundred buckets.
"""

from collections.abc import Iterator

from vfbandits.dashboard.bucket import Bucket

# A point of a trailing mean looks back over so many steps, also at the window's left end.
TRAILING = 12
# Length of a bucket in seconds, and how many steps the widest window of that length has.
_LEVELS = ((5, 60), (60, 60), (900, 96))


class Series:
    """The rings of one campaign.

    >>> series = Series()
    >>> series.at(12.0) is series.at(14.9), series.at(12.0) is series.at(15.0)
    (True, False)
    """

    def __init__(self) -> None:
        # One place more than a view reads: the oldest must still be there when the newest is added.
        self._rings: list[list[Bucket | None]] = [
            [None] * (steps + TRAILING + 1) for _, steps in _LEVELS
        ]

    def at(self, at: float) -> Bucket | None:
        """The bucket of a time in seconds since 1970; None if that is too long ago."""
        fine = self._rings[0]
        index = int(at // 5)
        bucket = fine[index % len(fine)]
        if bucket is not None and bucket.start == index * 5:
            return bucket
        return self._place(int(at), 0)

    def find(self, at: float) -> Bucket | None:
        """The bucket that was counted in at a time; None if that is too long ago."""
        for (step, _), ring in zip(_LEVELS, self._rings, strict=True):
            index = int(at) // step
            bucket = ring[index % len(ring)]
            if bucket is not None and bucket.start == index * step:
                return bucket
        return None

    def _place(self, at: int, level: int) -> Bucket | None:
        for finer in range(level, len(_LEVELS)):
            step, ring = _LEVELS[finer][0], self._rings[finer]
            index = at // step
            place, start = index % len(ring), index * step
            old = ring[place]
            if old is not None and old.start == start:
                return old
            if old is None or old.start < start:
                ring[place] = new = Bucket(start)
                if old is not None:
                    self._pass_on(old, finer + 1)
                return new
        return None

    def _pass_on(self, old: Bucket, level: int) -> None:
        coarser = self._place(old.start, level)
        if coarser is not None:
            coarser.merge(old)

    def steps(self, now: float, *, minutes: int) -> tuple[list[Bucket], list[Bucket]]:
        """Cut the last minutes into equal steps; the last of them is incomplete.

        Returns those of the window, and the ``TRAILING`` ones before it.
        """
        step, n = step_of(minutes)
        first = int(now // step) - n + 1 - TRAILING
        cut = [Bucket((first + i) * step) for i in range(n + TRAILING)]
        for bucket in self._until(step):
            i = bucket.start // step - first
            if 0 <= i < len(cut):
                cut[i].merge(bucket)
        return cut[TRAILING:], cut[:TRAILING]

    def _until(self, step: int) -> Iterator[Bucket]:
        """All buckets that are not longer than ``step``, coarse ones first."""
        for (length, _), ring in reversed(list(zip(_LEVELS, self._rings, strict=True))):
            if length <= step:
                kept = (bucket for bucket in ring if bucket is not None)
                yield from sorted(kept, key=lambda bucket: bucket.start)


def step_of(minutes: int) -> tuple[int, int]:
    """How long a step of a window is in seconds, and how many there are.

    >>> step_of(5), step_of(60), step_of(1440)
    ((5, 60), (60, 60), (900, 96))
    """
    for step, steps in _LEVELS:
        if minutes * 60 <= step * steps:
            return step, -(-minutes * 60 // step)
    step, steps = _LEVELS[-1]
    return step, steps
