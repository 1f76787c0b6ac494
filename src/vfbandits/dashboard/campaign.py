"""The dashboard's data of one campaign: buckets, last decisions and rewards, pending estimates."""

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass

from vfbandits.campaign.history import RETRACTED
from vfbandits.campaign.observer import Ranked, RewardSeen
from vfbandits.dashboard.bucket import SETTLED, Bucket
from vfbandits.dashboard.marks import MAX_MARKS
from vfbandits.dashboard.replay import Replay
from vfbandits.dashboard.series import Series
from vfbandits.dashboard.view import LastDecision, Mark

MAX_LAST = 200
MAX_ESTIMATES = 100_000
MAX_SETTLED = 20_000
# Statuses that do not change their event.
_NO_NEWS = frozenset({"repeated", "ignored"})


@dataclass(slots=True)
class Remembered:
    """A decision and its reward so far."""

    seen: Ranked
    reward: float | None = None
    status: str | None = None
    waited_s: float | None = None


class Campaign:
    """One campaign in bounded memory; estimates are kept until their reward comes.

    The last rewards are kept with what was counted for them, so that a retraction can subtract it.

    >>> campaign = Campaign()
    >>> seen = RewardSeen("ads", "a", "tea", "policy", "learnt", 1.0, at=9.0, waited_s=2.0)
    >>> campaign.on_reward(seen)
    >>> campaign.series.at(9.0).statuses
    {'learnt': 1}
    """

    def __init__(self, *, most_estimates: int = MAX_ESTIMATES) -> None:
        self._most_estimates = most_estimates
        self.series = Series()
        self.last: OrderedDict[str, Remembered] = OrderedDict()
        self.estimates: OrderedDict[str, float] = OrderedDict()
        self.settled: OrderedDict[str, tuple[RewardSeen, float | None]] = OrderedDict()
        self.marks: deque[Mark] = deque(maxlen=MAX_MARKS)
        self.replay = Replay()

    def on_ranked(self, seen: Sequence[Ranked]) -> Bucket | None:
        """Count and keep decisions of one round; returns their bucket, None if it is too old."""
        bucket = self.series.at(seen[0].at)
        if bucket is not None:
            bucket.decided(seen)
        last, estimates = self.last, self.estimates
        for one in seen:
            last[one.event_id] = Remembered(one)
            if math.isfinite(one.estimate):
                estimates[one.event_id] = one.estimate
        while len(last) > MAX_LAST:
            last.popitem(last=False)
        while len(estimates) > self._most_estimates:
            estimates.popitem(last=False)
        return bucket

    def on_reward(self, seen: RewardSeen) -> None:
        """Count a reward, and how far it was from its estimate if that is still known."""
        bucket = self.series.at(seen.at)
        if bucket is not None:
            bucket.on_reward(seen)
        if seen.status in SETTLED:
            self._settle(seen, bucket)
        elif seen.status == RETRACTED:
            self._take_back(seen.event_id)
        elif seen.status in ("forgotten", "failed"):
            self.estimates.pop(seen.event_id, None)
        remembered = self.last.get(seen.event_id)
        if remembered is not None and seen.status not in _NO_NEWS:
            _update(remembered, seen)

    def _settle(self, seen: RewardSeen, bucket: Bucket | None) -> None:
        estimate = self.estimates.pop(seen.event_id, None)
        if bucket is None:
            return
        residual = None if estimate is None else seen.value - estimate
        if residual is not None:
            bucket.residuals.add(residual)
        self.settled[seen.event_id] = seen, residual
        if len(self.settled) > MAX_SETTLED:
            self.settled.popitem(last=False)

    def _take_back(self, event_id: str) -> None:
        """Subtract a reward from the bucket that it was counted in."""
        counted = self.settled.pop(event_id, None)
        bucket = None if counted is None else self.series.find(counted[0].at)
        if counted is not None and bucket is not None:
            bucket.take_back(*counted)

    def decisions(self) -> list[LastDecision]:
        """The last decisions, newest first."""
        return [_last_decision(remembered) for remembered in reversed(self.last.values())]


def _update(remembered: Remembered, seen: RewardSeen) -> None:
    if seen.status == RETRACTED:
        remembered.status, remembered.reward = RETRACTED, None
    if remembered.status in SETTLED or remembered.status == RETRACTED:
        return
    remembered.status = seen.status
    remembered.waited_s = seen.waited_s
    if seen.status in SETTLED:
        remembered.reward = seen.value


def _last_decision(remembered: Remembered) -> LastDecision:
    seen = remembered.seen
    return LastDecision(
        event_id=seen.event_id,
        user=seen.user,
        at=seen.at,
        arm=seen.arm,
        choice=seen.choice,
        baseline=seen.baseline,
        group=seen.group,
        estimate=_finite(seen.estimate),
        bonus=_finite(seen.bonus),
        parts=None if seen.parts is None else dict(seen.parts),
        probability=_finite(seen.probability),
        contributors=list(seen.contributors),
        missing=list(seen.missing),
        n_arms=seen.n_arms,
        model_version=seen.model_version,
        latency_ms=1e3 * seen.seconds if seen.seconds > 0.0 else None,
        received_bytes=seen.bytes_received,
        reward=remembered.reward,
        status=remembered.status,
        waited_s=remembered.waited_s,
    )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
