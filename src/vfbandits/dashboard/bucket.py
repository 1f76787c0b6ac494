"""Counts of a campaign over one stretch of time; buckets add up."""

import math
from collections.abc import Sequence
from typing import TypeVar

from vfbandits.campaign.observer import Ranked, RewardSeen

# Maximum number of arms by name in a bucket; decisions for others are counted without a name.
MAX_ARMS = 64
# A reward counts once for its event: when it is settled, or when a frozen model passes it by.
SETTLED = frozenset({"learnt", "default", "summed", "logged"})

_SHORTEST_S = 1e-5
_PER_OCTAVE = 4

Key = TypeVar("Key", int, str)


class Moments:
    """How many numbers there were, their sum, and the sum of their squares.

    >>> moments = Moments()
    >>> for value in (1.0, 2.0, 3.0):
    ...     moments.add(value)
    >>> moments.mean, moments.variance
    (2.0, 1.0)
    """

    __slots__ = ("n", "squares", "total")

    def __init__(self) -> None:
        self.n = 0
        self.total = 0.0
        self.squares = 0.0

    def add(self, value: float) -> None:
        """Add a number."""
        self.n += 1
        self.total += value
        self.squares += value * value

    def remove(self, value: float) -> None:
        """Remove a number that was added before."""
        self.n -= 1
        self.total = self.total - value if self.n else 0.0
        self.squares = self.squares - value * value if self.n else 0.0

    def merge(self, other: "Moments") -> None:
        """Add another's numbers."""
        self.n += other.n
        self.total += other.total
        self.squares += other.squares

    @property
    def mean(self) -> float:
        """The mean; there must be a number."""
        return self.total / self.n

    @property
    def variance(self) -> float:
        """The unbiased variance; there must be two numbers."""
        return max(0.0, (self.squares - self.total * self.total / self.n) / (self.n - 1))


class Presence:
    """How often a participant's features counted, how often not, and the sum of its |part|."""

    __slots__ = ("contributed", "missing", "weight")

    def __init__(self) -> None:
        self.contributed = 0
        self.missing = 0
        self.weight = 0.0


class Tally:
    """Decisions of a group, and in how many the policy's choice was known to be the baseline."""

    __slots__ = ("agreed", "compared", "decisions")

    def __init__(self) -> None:
        self.decisions = 0
        self.compared = 0
        self.agreed = 0


class Bucket:
    """Everything that is counted between ``start`` and the next bucket's start."""

    __slots__ = (
        "arms",
        "degraded",
        "groups",
        "latencies",
        "norm",
        "participants",
        "received",
        "residuals",
        "rewards",
        "start",
        "statuses",
    )

    def __init__(self, start: int) -> None:
        self.start = start
        self.arms: dict[str, int] = {}
        self.groups: dict[str, Tally] = {}
        self.latencies: dict[int, int] = {}
        self.participants: dict[str, Presence] = {}
        self.rewards: dict[str, Moments] = {}
        self.residuals = Moments()
        self.statuses: dict[str, int] = {}
        self.degraded = 0
        self.received = 0
        self.norm: float | None = None

    @property
    def decisions(self) -> int:
        """How many there were."""
        return sum(tally.decisions for tally in self.groups.values())

    def decided(self, seen: Sequence[Ranked]) -> None:
        """Count decisions of one round.  A time of zero is one that was not measured."""
        arms, groups = self.arms, self.groups
        for one in seen:
            arm, baseline, group = one.arm, one.baseline, one.group
            if arm in arms:
                arms[arm] += 1
            elif len(arms) < MAX_ARMS:
                arms[arm] = 1
            if group not in groups:
                groups[group] = Tally()
            tally = groups[group]
            tally.decisions += 1
            if baseline:
                tally.compared += 1
                tally.agreed += one.choice == baseline
            if one.parts is not None:
                for name, part in one.parts.items():
                    self.presence(name).weight += abs(part)
        self._gathered(seen[0], len(seen))

    def _gathered(self, one: Ranked, n: int) -> None:
        """Count a round: what is true of one of its decisions is true of all ``n``."""
        if one.seconds > 0.0:
            step = latency_step(one.seconds)
            self.latencies[step] = self.latencies.get(step, 0) + n
        self.received += n * one.bytes_received
        for name in one.contributors:
            self.presence(name).contributed += n
        if one.missing:
            self.degraded += n
            for name in one.missing:
                self.presence(name).missing += n

    def on_reward(self, seen: RewardSeen) -> None:
        """Count a reward."""
        self.statuses[seen.status] = self.statuses.get(seen.status, 0) + 1
        if seen.status in SETTLED:
            moments = self.rewards.get(seen.group)
            if moments is None:
                moments = self.rewards[seen.group] = Moments()
            moments.add(seen.value)

    def take_back(self, seen: RewardSeen, residual: float | None) -> None:
        """Subtract a settled reward that was counted here."""
        self.statuses[seen.status] -= 1
        self.rewards[seen.group].remove(seen.value)
        if residual is not None:
            self.residuals.remove(residual)

    def presence(self, name: str) -> Presence:
        """The counts of one participant."""
        found = self.participants.get(name)
        if found is None:
            found = self.participants[name] = Presence()
        return found

    def merge(self, other: "Bucket") -> None:
        """Add another's counts; its norm, if it has one, replaces this one's."""
        _add(self.arms, other.arms, most=MAX_ARMS)
        _add(self.latencies, other.latencies)
        _add(self.statuses, other.statuses)
        for group, theirs in other.groups.items():
            ours = self.groups.setdefault(group, Tally())
            ours.decisions += theirs.decisions
            ours.compared += theirs.compared
            ours.agreed += theirs.agreed
        for group, moments in other.rewards.items():
            self.rewards.setdefault(group, Moments()).merge(moments)
        for name, presence in other.participants.items():
            mine = self.presence(name)
            mine.contributed += presence.contributed
            mine.missing += presence.missing
            mine.weight += presence.weight
        self.residuals.merge(other.residuals)
        self.degraded += other.degraded
        self.received += other.received
        if other.norm is not None:
            self.norm = other.norm


def _add(counts: dict[Key, int], more: dict[Key, int], *, most: int | None = None) -> None:
    """Add counts; names beyond ``most`` are left out."""
    if not counts:
        counts.update(more)
        return
    for key, n in more.items():
        if key in counts:
            counts[key] += n
        elif most is None or len(counts) < most:
            counts[key] = n


def latency_step(seconds: float) -> int:
    """The step of a logarithmic scale, four to a doubling, that a time falls on.

    >>> latency_step(0.001), latency_step(0.002)
    (26, 30)
    """
    return int(_PER_OCTAVE * math.log2(max(seconds, _SHORTEST_S) / _SHORTEST_S))


def quantile(latencies: dict[int, int], share: float) -> float | None:
    """The time in seconds that ``share`` of them do not exceed; None without any.

    Accurate within a fifth: inside a step the times are taken as uniform.

    >>> round(quantile({26: 99, 60: 1}, 0.5) or 0.0, 4)
    0.001
    """
    wanted = share * sum(latencies.values())
    for step in sorted(latencies):
        here = latencies[step]
        if wanted <= here:
            return float(_SHORTEST_S * 2.0 ** ((step + wanted / here) / _PER_OCTAVE))
        wanted -= here
    return None
