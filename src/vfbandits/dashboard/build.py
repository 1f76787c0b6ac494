"""The figures of a view, from buckets."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from vfbandits.dashboard.bucket import Bucket, quantile
from vfbandits.dashboard.series import Series
from vfbandits.dashboard.view import ArmSeries, Drift, Participant, Totals

MAX_NAMED = 12
_CALM_S = 15.0

Links: TypeAlias = Mapping[str, Mapping[str, object]]


def whole(steps: Sequence[Bucket]) -> Bucket:
    """All steps in one."""
    total = Bucket(steps[0].start)
    for step in steps:
        total.merge(step)
    return total


def totals(total: Bucket, *, per_second: float, waiting: int) -> Totals:
    """The window in numbers."""
    n = total.decisions
    shadow = total.groups.get("shadow")
    compared = sum(tally.compared for tally in total.groups.values())
    agreed = sum(tally.agreed for tally in total.groups.values())
    return Totals(
        decisions=n,
        per_second=per_second,
        p50_ms=milliseconds(total, 0.5),
        p99_ms=milliseconds(total, 0.99),
        degraded=_fraction(total.degraded, n),
        agreement=_fraction(agreed, compared),
        shadow_agreement=None if shadow is None else _fraction(shadow.agreed, shadow.compared),
        received_bytes=total.received,
        waiting=waiting,
        groups={group: tally.decisions for group, tally in sorted(total.groups.items())},
        statuses=dict(sorted(total.statuses.items())),
    )


def lately(series: Series, now: float) -> float:
    """Decisions per second over the last two whole steps of five seconds."""
    fine, _ = series.steps(now, minutes=1)
    return sum(step.decisions for step in fine[-3:-1]) / 10.0


def rates(steps: Sequence[Bucket], now: float, step_s: int) -> list[float | None]:
    """Decisions per second; the incomplete step counts once it is long enough to be steady."""
    per_second: list[float | None] = []
    for step in steps:
        passed = min(float(step_s), now - step.start)
        per_second.append(step.decisions / passed if passed >= min(step_s, _CALM_S) else None)
    return per_second


def milliseconds(bucket: Bucket, share: float) -> float | None:
    """A quantile of the times that decisions took."""
    seconds = quantile(bucket.latencies, share)
    return None if seconds is None else 1e3 * seconds


def arms(total: Bucket, steps: Sequence[Bucket]) -> list[ArmSeries]:
    """The arms that were shown most, most first; then the others together, if there are any."""
    most = sorted(total.arms, key=lambda arm: (-total.arms[arm], arm))[:MAX_NAMED]
    counts = [step.decisions for step in steps]
    named = [
        ArmSeries(
            arm,
            total.arms[arm],
            [_fraction(s.arms.get(arm, 0), n) for s, n in zip(steps, counts, strict=True)],
        )
        for arm in most
    ]
    others = total.decisions - sum(arm.decisions for arm in named)
    if others == 0:
        return named
    rest = [
        _fraction(n - sum(step.arms.get(arm, 0) for arm in most), n)
        for step, n in zip(steps, counts, strict=True)
    ]
    return [*named, ArmSeries(None, others, rest)]


def participants(total: Bucket, links: Links) -> list[Participant]:
    """Participants with a link, in their order, then others that were seen, by name."""
    weight = sum(presence.weight for presence in total.participants.values())
    names = [*links, *sorted(set(total.participants) - set(links))]
    return [_participant(name, total, weight, links.get(name, {})) for name in names]


def _participant(
    name: str, total: Bucket, weight: float, link: Mapping[str, object]
) -> Participant:
    seen = total.presence(name)
    connected, circuit = link.get("connected"), link.get("circuit")
    return Participant(
        name=name,
        share=_fraction(seen.weight, weight),
        availability=_fraction(seen.contributed, seen.contributed + seen.missing),
        contributed=seen.contributed,
        missing=seen.missing,
        width=_integer(link.get("width")),
        connected=connected if isinstance(connected, bool) else None,
        circuit=circuit if isinstance(circuit, str) else None,
        asks=_integer(link.get("asks")),
        answers=_integer(link.get("answers")),
        bytes=_integer(link.get("bytes")),
        latency_ms=_number(link.get("latency_ms")),
        since=_number(link.get("since")),
        missing_ratio=_number(link.get("missing_ratio")),
        norm_ratio=_number(link.get("norm_ratio")),
        mean_shift=_number(link.get("mean_shift")),
        variance_shift=_number(link.get("variance_shift")),
    )


def drift(steps: Sequence[Bucket]) -> Drift:
    """How far rewards were from the estimates, step by step."""
    found = [step.residuals for step in steps]
    return Drift(
        [r.mean if r.n else None for r in found],
        [math.sqrt(r.squares / r.n) if r.n else None for r in found],
        [step.norm for step in steps],
    )


def _fraction(part: float, of: float) -> float | None:
    return part / of if of > 0 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def _integer(value: object) -> int | None:
    number = _number(value)
    return None if number is None else int(number)
