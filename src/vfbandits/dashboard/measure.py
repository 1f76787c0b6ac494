"""Means with intervals, and the lift of one mean over another.

The intervals are anytime-valid at 95 % (``core.anytime``): within a window they hold at every look
together, so that looking often is allowed.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeAlias

from vfbandits.core.anytime import standard_errors
from vfbandits.dashboard.bucket import Bucket, Moments
from vfbandits.dashboard.series import TRAILING
from vfbandits.dashboard.view import Band, Lift, Mean, Rewards

_BEST_AT = 500.0  # rewards: a window has fewer than a guardrail sees
_SURE = 3.0  # a baseline must be so many times its own interval away from zero
BaselineGroup: TypeAlias = Literal["holdback", "shadow", "guardrail"]
POLICY: Final = ("policy",)
BASELINES: Final[tuple[BaselineGroup, ...]] = ("holdback", "shadow", "guardrail")


def interval(moments: Moments) -> Mean:
    """The mean and its interval; without one as long as all rewards were the same.

    >>> sample = Moments()
    >>> for value in (0.0, 1.0) * 500:
    ...     sample.add(value)
    >>> found = interval(sample)
    >>> found.n, found.mean, round(found.high, 3)
    (1000, 0.5, 0.549)
    """
    if moments.n == 0:
        return Mean(0)
    mean = moments.mean
    if moments.n == 1 or moments.variance == 0.0:
        return Mean(moments.n, mean)
    half = standard_errors(moments.n, best_at=_BEST_AT) * math.sqrt(moments.variance / moments.n)
    return Mean(moments.n, mean, mean - half, mean + half)


def lift(policy: Moments, baseline: Moments) -> Lift | None:
    """Policy against baseline; None unless both have two rewards, and rewards differ at all.

    The larger of both variances is used, as for the guardrail: a small group with rare rewards may
    have seen none.  The relative interval is the delta method's, and left out if the baseline is so
    near zero that a fraction of it has no meaning.
    """
    if policy.n < 2 or baseline.n < 2:
        return None
    variance = max(policy.variance, baseline.variance)
    if variance == 0.0:
        return None
    a, b = policy.mean, baseline.mean
    var_a, var_b = variance / policy.n, variance / baseline.n
    z = standard_errors(policy.n + baseline.n, best_at=_BEST_AT)
    half = z * math.sqrt(var_a + var_b)
    difference = a - b
    if abs(b) <= _SURE * z * math.sqrt(var_b):
        return Lift(difference, difference - half, difference + half)
    relative = difference / abs(b)
    spread = z * math.sqrt(var_a + (a / b) ** 2 * var_b) / abs(b)
    return Lift(
        difference=difference,
        low=difference - half,
        high=difference + half,
        relative=relative,
        relative_low=relative - spread,
        relative_high=relative + spread,
    )


def rewards_of(whole: Bucket, steps: Sequence[Bucket], before: Sequence[Bucket]) -> Rewards:
    """Compare the policy's rewards with the baseline's; ``whole`` is the sum of the steps."""
    groups = [group for group in BASELINES if group in whole.groups]
    policy = _total(whole, POLICY if "policy" in whole.groups else ())
    baseline = _total(whole, groups)
    return Rewards(
        policy=interval(policy),
        baseline=interval(baseline),
        baseline_groups=groups,
        lift=lift(policy, baseline),
        policy_series=_band(POLICY, steps, before),
        baseline_series=_band(BASELINES, steps, before),
    )


def _total(bucket: Bucket, groups: Iterable[str]) -> Moments:
    total = Moments()
    for group in groups:
        if group in bucket.rewards:
            total.merge(bucket.rewards[group])
    return total


def _band(groups: Sequence[str], steps: Sequence[Bucket], before: Sequence[Bucket]) -> Band:
    """Trailing means, where the groups had decisions lately and no others took their place."""
    buckets = (*before, *steps)
    decided = [any(group in bucket.groups for group in groups) for bucket in buckets]
    last = max((i for i, is_so in enumerate(decided) if is_so), default=-1)
    if not any(bucket.groups for bucket in buckets[last + 1 :]):
        last = len(buckets)  # no decisions at all: rewards of the last ones may still come
    points = []
    for end in range(len(before) + 1, len(buckets) + 1):
        recent = range(max(0, end - TRAILING), end)
        trailing = Moments()
        if end - 1 <= last and any(decided[i] for i in recent):
            for i in recent:
                trailing.merge(_total(buckets[i], groups))
        points.append(interval(trailing))
    return Band(
        [point.mean for point in points],
        [point.low for point in points],
        [point.high for point in points],
    )
