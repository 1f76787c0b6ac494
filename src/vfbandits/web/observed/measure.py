"""Means with intervals, and how much better one is than another.

All by the normal approximation at 95 %: fair for some dozens of rewards, too narrow for a handful.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from vfbandits.web.observed.bucket import Bucket, Moments
from vfbandits.web.observed.series import TRAILING
from vfbandits.web.observed.view import Band, Lift, Mean, Rewards

_Z = 1.959963984540054
_SURE = 3.0  # how many times its own interval a baseline must be away from zero
BaselineGroup: TypeAlias = Literal["holdback", "shadow"]


def interval(moments: Moments) -> Mean:
    """The mean and its interval.

    >>> sample = Moments()
    >>> for value in (0.0, 1.0, 1.0, 0.0):
    ...     sample.add(value)
    >>> found = interval(sample)
    >>> found.n, found.mean, round(found.high, 3)
    (4, 0.5, 1.066)
    """
    if moments.n == 0:
        return Mean(0)
    mean = moments.mean
    if moments.n == 1:
        return Mean(1, mean)
    half = _Z * math.sqrt(moments.variance / moments.n)
    return Mean(moments.n, mean, mean - half, mean + half)


def lift(policy: Moments, baseline: Moments) -> Lift | None:
    """Policy against baseline; None unless both have two rewards.

    The variances may differ (Welch).  The relative interval is the delta method's, and left out
    where the baseline is so near zero that a share of it would say nothing.
    """
    if policy.n < 2 or baseline.n < 2:
        return None
    a, b = policy.mean, baseline.mean
    var_a, var_b = policy.variance / policy.n, baseline.variance / baseline.n
    half = _Z * math.sqrt(var_a + var_b)
    difference = a - b
    if abs(b) <= _SURE * _Z * math.sqrt(var_b):
        return Lift(difference, difference - half, difference + half)
    relative = difference / abs(b)
    spread = _Z * math.sqrt(var_a + (a / b) ** 2 * var_b) / abs(b)
    return Lift(
        difference,
        difference - half,
        difference + half,
        relative,
        relative - spread,
        relative + spread,
    )


def rewards_of(whole: Bucket, steps: Sequence[Bucket], before: Sequence[Bucket]) -> Rewards:
    """Compare the policy's rewards with the baseline's; ``whole`` is the sum of the steps."""
    group = _baseline_group(whole.rewards)
    policy = whole.rewards.get("policy", Moments())
    baseline = whole.rewards.get(group or "", Moments())
    return Rewards(
        interval(policy),
        interval(baseline),
        group,
        lift(policy, baseline),
        _band("policy", steps, before),
        _band(group or "", steps, before),
    )


def _baseline_group(rewards: Mapping[str, Moments]) -> BaselineGroup | None:
    if "holdback" in rewards:
        return "holdback"
    return "shadow" if "shadow" in rewards else None


def _band(group: str, steps: Sequence[Bucket], before: Sequence[Bucket]) -> Band:
    rewards = [bucket.rewards.get(group) for bucket in (*before, *steps)]
    points = []
    for end in range(len(before) + 1, len(rewards) + 1):
        trailing = Moments()
        for moments in rewards[max(0, end - TRAILING) : end]:
            if moments is not None:
                trailing.merge(moments)
        points.append(interval(trailing))
    return Band(
        [point.mean for point in points],
        [point.low for point in points],
        [point.high for point in points],
    )
