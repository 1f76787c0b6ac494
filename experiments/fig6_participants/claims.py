"""What the paper says of Fig. 6a and 6b, and what the rows say.

N(0, 0.05) may mean a standard deviation or a variance of 0.05; the paper does not say.  The ratio
of regrets depends on it, and on when one looks, so both readings are judged.
"""

from vfbandits.core.arrays import Vector
from vfbandits.reproduce.claim import Claim, ValueTable
from vfbandits.reproduce.config import number, numbers, whole, whole_numbers
from vfbandits.reproduce.curves import curves_of, horizon_gap, spread
from vfbandits.reproduce.rows import Row, Settings

NAMES = {"linucb": ("LinUCB", "Fig. 6a"), "lints": ("LinTS", "Fig. 6b")}
READINGS = {"deviation": "standard deviation", "variance": "variance"}


def claims(rows: list[Row], config: Settings) -> list[Claim]:
    """The order of regrets, and how many times larger they are, by policy and reading."""
    found = []
    for policy in NAMES:
        found.append(_more_is_better(rows, config, policy))
        found += [
            _ten_times(rows, config, policy, ratio, reading)
            for reading in READINGS
            for ratio in numbers(config, "ratios")
        ]
    return found


def tables(rows: list[Row], config: Settings) -> list[ValueTable]:
    """How the ratios grow with the number of rounds, for both readings of the noise."""
    shown = whole_numbers(config, "shown")
    ratios = []
    for reading, words in READINGS.items():
        for policy, (name, _) in NAMES.items():
            for ratio in numbers(config, "ratios"):
                values = [
                    f"{_regret(rows, policy, reading, str(ratio), at).mean() / full.mean():.1f}×"
                    for at in shown
                    for full in [_regret(rows, policy, reading, "full", at)]
                ]
                ratios.append((f"{name} {ratio:g}, 0.05 as {words}", *values))
    at = min(whole(config, "claim_horizon"), whole(config, "horizon"))
    contestants = ["full", *(str(ratio) for ratio in numbers(config, "ratios"))]
    finals = [
        (
            f"{name}, 0.05 as {words}",
            *(spread(_regret(rows, policy, reading, contestant, at)) for contestant in contestants),
        )
        for reading, words in READINGS.items()
        for policy, (name, _) in NAMES.items()
    ]
    return [
        ValueTable(f"Regret after {at} rounds", ("", *contestants), tuple(finals)),
        ValueTable(
            "Regret with a part of the features, relative to all of them, after T rounds",
            ("partial bandit", *(f"T = {at}" for at in shown)),
            tuple(ratios),
        ),
    ]


def _more_is_better(rows: list[Row], config: Settings, policy: str) -> Claim:
    name, place = NAMES[policy]
    at = min(whole(config, "claim_horizon"), whole(config, "horizon"))
    full, *partial = (
        _regret(rows, policy, "deviation", contestant, at)
        for contestant in ("full", *(str(r) for r in sorted(numbers(config, "ratios"))[::-1]))
    )
    ordered = 0
    for seed in range(len(full)):
        regrets = [full[seed], *(values[seed] for values in partial)]
        ordered += regrets == sorted(regrets)
    says = f"{name} has less regret the more features it gets: full, then 0.8, then 0.2."
    criterion, measured = "in every seed", f"in {ordered} of {len(full)} seeds, after {at} rounds"
    gap = horizon_gap(config)
    if gap:
        return Claim.unchecked(
            says, place=place, measured=measured, criterion=criterion, reason=gap
        )
    holds = ordered == len(full)
    return Claim.judged(says, place=place, measured=measured, criterion=criterion, holds=holds)


def _ten_times(rows: list[Row], config: Settings, policy: str, ratio: float, reading: str) -> Claim:
    name, place = NAMES[policy]
    wanted, horizon = number(config, "wanted_ratio"), whole(config, "claim_horizon")
    at = min(horizon, whole(config, "horizon"))
    full = _regret(rows, policy, reading, "full", at)
    partial = _regret(rows, policy, reading, str(ratio), at)
    times = partial.mean() / full.mean()
    says = (
        f"Full {name} has {wanted:g} times less regret than with {ratio:.0%} of the features "
        f"(0.05 read as {READINGS[reading]})."
    )
    measured = f"{times:.1f}× after {at} rounds ({spread(partial)} to {spread(full)})"
    criterion = f"at least {wanted:g}× after {horizon} rounds"
    gap = horizon_gap(config)
    if gap:
        return Claim.unchecked(
            says, place=place, measured=measured, criterion=criterion, reason=gap
        )
    return Claim.judged(
        says,
        place=place,
        measured=measured,
        criterion=criterion,
        holds=bool(times >= wanted),
        reason="" if times >= wanted else _later(rows, config, policy, ratio, reading),
    )


def _later(rows: list[Row], config: Settings, policy: str, ratio: float, reading: str) -> str:
    """Whether the ratio is reached at all, in as many rounds as were run."""
    full = curves_of(rows, "regret", policy=policy, reading=reading, contestant="full")
    partial = curves_of(rows, "regret", policy=policy, reading=reading, contestant=str(ratio))
    times = partial.mean / full.mean
    reached = full.rounds[times >= number(config, "wanted_ratio")]
    if reached.size:
        return f"reached after {reached[0]:.0f} rounds"
    return f"not reached in {full.rounds[-1]:.0f} rounds either, where it is {times[-1]:.1f}×"


def _regret(rows: list[Row], policy: str, reading: str, contestant: str, at: int) -> Vector:
    return curves_of(rows, "regret", policy=policy, reading=reading, contestant=contestant).at(at)
