"""The policy's rewards against the holdback's, watched throughout.

Every event is given to the holdback with a known probability h, by a number of its own that no
context, arm or reward depends on.  So for an event with reward y

    d = m1 - m0 + (y - m1) / (1 - h)    if the policy decided,
    d = m1 - m0 - (y - m0) / h          if it is of the holdback,

where m1 and m0 are the groups' mean rewards *before* the event, the expectation of d is the amount
by which the policy is better, whatever m1 and m0 are: d minus that is a martingale difference.  A
baseline that drifts, a policy that learns and a holdback that is changed leave this as it is.  The
running mean of d has an anytime-valid interval (``core.anytime``), and so a losing policy may be
stopped at any look.

*Order.*  Events enter in the order of their decisions, each once it and all before it are settled.
In the order of their rewards the argument would fail: a conversion may come soon and its absence is
known at the end of the wait, so that what has come tells of the group that converts sooner.  An
event that gets no reward is left out.  Where waits never end, nothing is compared.

*Variance.*  Of both groups the larger one is taken.  A small holdback with rare conversions has
seen none for a while, and its own variance would be 0.
"""

import math
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

import numpy as np

from vfbandits.core.anytime import ALPHA, standard_errors
from vfbandits.core.arrays import Matrix
from vfbandits.core.snapshot import Record
from vfbandits.errors import SnapshotError

MIN_EVENTS: Final = 100
# Before each group has so many rewards, their means are too rough to centre the next ones.
FIRST_EVENTS: Final = 10
# A second comparison begins again after so many events: it notices a policy that loses after
# it has won for long.
RECENT_EVENTS: Final = 100_000

# So many events may wait to enter; further ones are left out for good.
MAX_WAITING: Final = 2_000_000
# With a smaller holdback, or a smaller rest, nothing is compared.
MIN_HOLDBACK: Final = 0.001

_OPEN, _NOTED, _SETTLED, _LEFT_OUT = range(4)  # what is known of an event
_BASEL: Final = math.pi**2 / 6.0
_N_SUMS: Final = 9
_MIN_TIDY: Final = 1_024


class Difference(NamedTuple):
    """How much more the policy's events bring than the holdback's, per event.

    ``low`` and ``high`` hold at all times together with probability 1 - ``alpha``.  The means are
    plain ones, of the groups' own events.
    """

    n_policy: int
    n_holdback: int
    mean_policy: float
    mean_holdback: float
    difference: float
    low: float
    high: float
    alpha: float


class Sums:
    """What is kept of the rewards of both groups, in constant memory."""

    __slots__ = ("_means", "_n", "_squares", "mean", "n", "weight")

    def __init__(self) -> None:
        self._n = [0, 0]  # of the holdback, and of the policy
        self._means = [0.0, 0.0]
        self._squares = [0.0, 0.0]
        self.n = 0
        self.mean = 0.0
        self.weight = 0.0

    def add(self, value: float, *, holdback: float, is_policy: bool) -> None:
        """Take the reward of the next event; ``holdback`` is the probability of that group."""
        n, means = self._n, self._means
        if n[0] >= FIRST_EVENTS and n[1] >= FIRST_EVENTS:
            difference = means[1] - means[0]
            if is_policy:
                difference += (value - means[1]) / (1.0 - holdback)
            else:
                difference -= (value - means[0]) / holdback
            self.n += 1
            self.mean += (difference - self.mean) / self.n
            self.weight += 1.0 / (holdback * (1.0 - holdback))
        n[is_policy] += 1
        off = value - means[is_policy]
        means[is_policy] += off / n[is_policy]
        self._squares[is_policy] += off * (value - means[is_policy])

    @property
    def n_events(self) -> tuple[int, int]:
        """Of the policy and of the holdback."""
        return self._n[1], self._n[0]

    def difference(self, *, alpha: float, min_events: int) -> Difference | None:
        """As it is now; None while a group has fewer than ``min_events``."""
        (n0, n1), (mean0, mean1) = self._n, self._means
        if self.n == 0 or min(n0, n1) < max(min_events, 2):
            return None
        variance = max(self._squares[0] / (n0 - 1), self._squares[1] / (n1 - 1))
        error = math.sqrt(variance * self.weight) / self.n
        half = error * standard_errors(self.n, alpha=alpha)
        low, high = self.mean - half, self.mean + half
        return Difference(
            n_policy=n1,
            n_holdback=n0,
            mean_policy=mean1,
            mean_holdback=mean0,
            difference=self.mean,
            low=low,
            high=high,
            alpha=alpha,
        )

    def pack(self) -> list[float]:
        """For a snapshot."""
        return [*self._n, *self._means, *self._squares, self.n, self.mean, self.weight]

    @classmethod
    def unpack(cls, packed: list[object]) -> "Sums":
        """From a snapshot."""
        numbers = [one for one in packed if isinstance(one, int | float) and math.isfinite(one)]
        if len(numbers) != len(packed) or len(numbers) != _N_SUMS:
            raise SnapshotError(f"a comparison needs {_N_SUMS} finite numbers, got {len(numbers)}")
        sums = cls()
        sums._n = [int(one) for one in numbers[:2]]
        sums._means, sums._squares = numbers[2:4], numbers[4:6]
        sums.n, sums.mean, sums.weight = int(numbers[6]), numbers[7], numbers[8]
        return sums


class Comparison:
    """Policy against holdback since it was begun; see the module.

    ``since`` is the time of the first event, in seconds since 1970; None before it.

    >>> comparison = Comparison()
    >>> for position in range(1, 2_001):
    ...     comparison.enter(position, holdback=0.5, is_policy=position % 2 == 0, at=5.0)
    ...     comparison.settle(position, float(position % 4 == 1))
    >>> found = comparison.difference()
    >>> found.n_policy, found.mean_policy, round(found.mean_holdback, 9), found.high < 0.0
    (1000, 0.0, 0.5, True)
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.whole = Sums()
        self.recent = Sums()
        self._n_recent = 1  # how often ``recent`` has begun
        # Events that have not entered yet, in the order of their decisions, from ``_head`` on.
        self._positions = array("q")
        self._states = array("b")
        self._values = array("d")
        self._holdbacks = array("d")  # negative for an event of the policy
        self._head = 0

    def __len__(self) -> int:
        """Events that have not entered yet: their reward, or that of an earlier one, is missing."""
        return len(self._positions) - self._head

    def enter(self, position: int, *, holdback: float, is_policy: bool, at: float) -> None:
        """An event was given to one of the groups; positions grow."""
        if len(self) >= MAX_WAITING:
            return
        if self.since is None:
            self.since = at
        self._append(position, _OPEN, 0.0, -holdback if is_policy else holdback)

    def note(self, position: int, value: float) -> None:
        """A reward came that is not learnt; the first one counts when the wait has ended."""
        place = self._place(position)
        if place is not None and self._states[place] == _OPEN:
            self._states[place], self._values[place] = _NOTED, value

    def settle(self, position: int, value: float) -> None:
        """An event has its reward, and no other will come; one that is not here is ignored."""
        place = self._place(position)
        if place is not None:
            self._states[place], self._values[place] = _SETTLED, value
            self._advance()

    def end(self, position: int, default: float | None) -> None:
        """The wait is over and nothing is learnt: a noted reward counts, else the default."""
        place = self._place(position)
        if place is None:
            return
        if self._states[place] == _OPEN and default is None:
            self._states[place] = _LEFT_OUT
        else:
            if self._states[place] == _OPEN and default is not None:
                self._values[place] = default
            self._states[place] = _SETTLED
        self._advance()

    def difference(
        self, *, alpha: float = ALPHA, min_events: int = MIN_EVENTS
    ) -> Difference | None:
        """Of all events that have entered; None before there are enough."""
        return self.whole.difference(alpha=alpha, min_events=min_events)

    def loss(self, *, margin: float, alpha: float, min_events: int) -> Difference | None:
        """How much the policy loses, if that is significantly more than ``margin``; else None.

        However often this is asked, the probability of ever reporting a policy that does not lose
        more is at most ``alpha``: half of it is spent on all events, and half on the stretches of
        ``RECENT_EVENTS``, on the k-th in proportion to 1 / k².
        """
        recent_alpha = 0.5 * alpha / (_BASEL * self._n_recent**2)
        for sums, level in ((self.whole, 0.5 * alpha), (self.recent, recent_alpha)):
            found = sums.difference(alpha=level, min_events=min_events)
            if found is not None and found.high < -margin:
                return found
        return None

    def _advance(self) -> None:
        """Enter the events that are settled, up to the first that is not."""
        states, head = self._states, self._head
        while head < len(states) and states[head] >= _SETTLED:
            if states[head] == _SETTLED:
                holdback = self._holdbacks[head]
                self._take(self._values[head], abs(holdback), is_policy=holdback < 0.0)
            head += 1
        self._head = head
        if head > max(_MIN_TIDY, len(self)):
            for column in (self._positions, self._states, self._values, self._holdbacks):
                del column[:head]
            self._head = 0

    def _take(self, value: float, holdback: float, *, is_policy: bool) -> None:
        if sum(self.recent.n_events) >= RECENT_EVENTS:
            self.recent = Sums()
            self._n_recent += 1
        for sums in (self.whole, self.recent):
            sums.add(value, holdback=holdback, is_policy=is_policy)

    def _append(self, position: int, state: int, value: float, holdback: float) -> None:
        if self._positions and position <= self._positions[-1]:
            raise ValueError(f"positions must grow, got {position} after {self._positions[-1]}")
        self._positions.append(position)
        self._states.append(state)
        self._values.append(value)
        self._holdbacks.append(holdback)

    def _place(self, position: int) -> int | None:
        place = bisect_left(self._positions, position, self._head)
        if place == len(self._positions) or self._positions[place] != position:
            return None
        return place if self._states[place] < _SETTLED else None

    # --- snapshots --------------------------------------------------------------------------------

    def pack(self) -> dict[str, object]:
        """What a snapshot keeps beside the events that have not entered."""
        return {
            "since": self.since,
            "whole": self.whole.pack(),
            "recent": self.recent.pack(),
            "n_recent": self._n_recent,
        }

    def pack_waiting(self) -> Matrix:
        """Events that have not entered: (n, 4), positions, states, rewards and holdbacks."""
        columns = (self._positions, self._states, self._values, self._holdbacks)
        rows = [np.array(column[self._head :], dtype=np.float64) for column in columns]
        return np.column_stack(rows)

    @classmethod
    def unpack(cls, kept: Record, waiting: Matrix) -> "Comparison":
        """From a snapshot."""
        if waiting.ndim != 2 or waiting.shape[1] != 4 or not np.isfinite(waiting).all():
            raise SnapshotError(f"events to compare need four columns, got {waiting.shape}")
        comparison = cls()
        comparison.since = kept.number("since") if kept.has("since") else None
        comparison.whole = Sums.unpack(kept.items("whole"))
        comparison.recent = Sums.unpack(kept.items("recent"))
        comparison._n_recent = kept.integer("n_recent")
        try:
            for position, state, value, holdback in waiting.tolist():
                comparison._append(int(position), int(state), value, holdback)
        except ValueError as error:
            raise SnapshotError(f"events to compare: {error}") from error
        return comparison
