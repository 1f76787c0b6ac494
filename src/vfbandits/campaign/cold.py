"""Pending decisions that have left memory: where their records are, and when their waits end.

Sixteen bytes for each, so that no wait is lost however many there are.  All else about them is in
the journal.
"""

from array import array
from bisect import bisect_left
from math import isnan

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.errors import SnapshotError

CLOSED = float("nan")
MIN_CLOSED = 1_024


class Cold:
    """Positions of ``Decided`` records, in the order of the journal, each with the end of its wait.

    >>> cold = Cold()
    >>> for position, due in ((3, 60.0), (5, 70.0), (8, 65.0)):
    ...     cold.add(position, due)
    >>> cold.close(5)
    >>> len(cold), cold.first, cold.over(64.0, most=10), cold.over(70.0, most=10)
    (2, 3, [3], [3, 8])
    """

    __slots__ = ("_dues", "_n_closed", "_next", "_positions", "_set_aside")

    def __init__(self) -> None:
        self._positions = array("q")
        self._dues = array("d")
        self._n_closed = 0
        self._next = float("inf")  # no wait ends before
        self._set_aside: set[int] = set()

    def __len__(self) -> int:
        """How many are pending."""
        return len(self._positions) - self._n_closed

    @property
    def first(self) -> int | None:
        """Position of the oldest one."""
        pairs = zip(self._positions, self._dues, strict=True)
        return next((position for position, due in pairs if not isnan(due)), None)

    @property
    def positions(self) -> list[int]:
        """Of all that are pending, in order."""
        pairs = zip(self._positions, self._dues, strict=True)
        return [position for position, due in pairs if not isnan(due)]

    def due(self, position: int) -> float | None:
        """When the wait of this one ends; None if it is not pending here."""
        place = self._place(position)
        return None if place is None else self._dues[place]

    def add(self, position: int, due: float) -> None:
        """A decision has left memory; decisions leave in the order in which they came."""
        if self._positions and position <= self._positions[-1]:
            raise ValueError(f"positions must grow, got {position} after {self._positions[-1]}")
        self._positions.append(position)
        self._dues.append(due)
        self._next = min(self._next, due)

    def postpone(self, position: int, due: float) -> None:
        """Its wait ends at another time; one that is not here changes nothing."""
        place = self._place(position)
        if place is not None:
            self._dues[place] = due
            self._next = min(self._next, due)

    def close(self, position: int) -> None:
        """Its wait has ended; one that is not here changes nothing."""
        place = self._place(position)
        if place is not None:
            self._dues[place] = CLOSED
            self._n_closed += 1
            self._set_aside.discard(position)
            if self._n_closed > max(MIN_CLOSED, len(self)):
                self._tidy()

    def set_aside(self, position: int) -> None:
        """Do not give this one from ``over`` again, as long as the process lives."""
        self._set_aside.add(position)

    def over(self, now: float, *, most: int) -> list[int]:
        """Positions of decisions whose waits are over, at most ``most``, first ends first."""
        if now < self._next:
            return []
        dues = np.frombuffer(self._dues)
        places = np.flatnonzero(dues <= now)
        places = places[np.argsort(dues[places], kind="stable")]
        found = [self._positions[place] for place in places.tolist()]
        ready = [position for position in found if position not in self._set_aside]
        if not ready:
            later = dues[dues > now]
            self._next = float(later.min()) if len(later) else float("inf")
        return ready[:most]

    def pack(self) -> Matrix:
        """For a snapshot: (n, 2), positions and ends."""
        dues = np.frombuffer(self._dues)
        is_open = ~np.isnan(dues)
        positions = np.frombuffer(self._positions, dtype=np.int64)[is_open]
        return np.column_stack([positions.astype(np.float64), dues[is_open]])

    def unpack(self, rows: Matrix) -> None:
        """Take what a snapshot holds."""
        if rows.ndim != 2 or rows.shape[1] != 2 or not np.isfinite(rows).all():
            raise SnapshotError(f"decisions out of memory need two columns, got {rows.shape}")
        try:
            for position, due in rows.tolist():
                self.add(int(position), due)
        except ValueError as error:
            raise SnapshotError(f"decisions out of memory: {error}") from error

    def _place(self, position: int) -> int | None:
        place = bisect_left(self._positions, position)
        if place == len(self._positions) or self._positions[place] != position:
            return None
        return None if isnan(self._dues[place]) else place

    def _tidy(self) -> None:
        """Drop those that are closed."""
        rows = self.pack()
        self._positions = array("q", [int(position) for position in rows[:, 0].tolist()])
        self._dues = array("d", rows[:, 1].tolist())
        self._n_closed = 0
