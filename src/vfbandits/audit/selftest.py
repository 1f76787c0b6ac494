"""The attacks on simulated data, where the truth is known: the figures that the docs cite.

Five participants with 20 columns each; the first is the active one.  Errors are means over the
columns of one passive participant, in standard deviations, where 1 is what guessing the mean gives.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from vfbandits.audit.discrete import discrete_columns
from vfbandits.audit.ica import component_errors
from vfbandits.audit.known_pairs import known_pairs
from vfbandits.audit.moments import errors_by_way, moment_errors
from vfbandits.audit.planted import RELEASES, planted_errors
from vfbandits.audit.released_means import mean_errors
from vfbandits.audit.repeated_asks import repeated_asks
from vfbandits.audit.repeated_widths import width_errors
from vfbandits.audit.result import Level
from vfbandits.audit.returning import returning_users, single_changes
from vfbandits.audit.shown_arms import visit_errors
from vfbandits.audit.view import View, look
from vfbandits.core.arrays import Matrix

WIDTH, PASSIVE = 20, 4
ROWS = 20_000
FEW_ROWS = 5000  # where more rows change nothing, and for second moments of few people
SEEDS = 3
PLANTED_ROUNDS = 21_000  # the first third is left out, and half of the others are planted
MIN_FOR_MEDIAN = 5
MATCHED = "public second moments, matched; {} of the variance shared"
LIKELIEST = "public second moments, most likely; {} of the variance shared"
NOTES = (
    "matched: 5,000 rows are seen and 5,000 people are public; their moments are turned until they "
    "equal the seen ones, with signs by moments with 20 columns of the attacker.",
    "most likely: the stronger attack that vfb audit makes, with 20,000 rows and people.",
    "features Gaussian: an attacker without evidence answers with the mean, whose error is 1.",
)
NAMES = tuple(f"c{j}" for j in range(WIDTH))


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table: what was measured with each seed, by level."""

    attacker: str
    measured: Mapping[str, tuple[float, ...]]
    is_share: bool = False

    def spell(self, level: Level) -> str:
        """The range over the seeds, with the median of many, or a dash.

        >>> Line("", {"mask": (0.031, 0.024)}).spell(Level.MASK)
        '0.02–0.03'
        >>> Line("", {"mask": (1.0, 1.0)}, is_share=True).spell(Level.MASK)
        'exact: 100 % of the columns'
        """
        values = self.measured.get(level)
        if not values:
            return "–"
        if self.is_share:
            return f"exact: {_range([f'{100.0 * value:.0f}' for value in values])} % of the columns"
        ends = _range([_spell(value) for value in values])
        if len(values) < MIN_FOR_MEDIAN:
            return ends
        return f"{ends}, median {_spell(float(np.median(values)))}"


def _spell(value: float) -> str:
    return f"{value:.0e}" if value < 5e-4 else f"{value:.2f}"


def _range(figures: Sequence[str]) -> str:
    ends = sorted(set(figures), key=float)
    return ends[0] if len(ends) == 1 else f"{ends[0]}–{ends[-1]}"


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A line that is not measured yet: ``tries`` gives for each level the value of one seed."""

    attacker: str
    tries: Mapping[Level, Callable[[int], float]] = field(repr=False)
    seeds: tuple[int, ...]
    is_share: bool = False

    def measure(self) -> Line:
        """Run it with every seed."""
        measured = {
            str(level): tuple(run(seed) for seed in self.seeds) for level, run in self.tries.items()
        }
        return Line(self.attacker, measured, self.is_share)


def selftest(*, seed: int = 0, rows: int = ROWS, seeds: int = SEEDS) -> list[Case]:
    """The cases in the order of the table; ``rows`` are attacked, and as many are public."""
    numbers = tuple(range(seed, seed + seeds))
    # How well a random bandit mixes the features differs more than anything else here.
    more = tuple(range(seed, seed + 3 * seeds))
    few = min(rows, FEW_ROWS)

    def on_both(
        attacker: str,
        sample: Callable[[np.random.Generator, int, int], Matrix],
        attack: Callable[[View, int], float],
        *,
        count: int = rows,
        is_share: bool = False,
    ) -> Case:
        def run(level: Level) -> Callable[[int], float]:
            return lambda one: attack(_world(sample, level, count, one), one)

        tries = {level: run(level) for level in (Level.MASK, Level.SUM)}
        return Case(attacker, tries, numbers, is_share)

    return [
        on_both("20 plain–masked pairs", not_gaussian, lambda v, _: _pairs(v, WIDTH)),
        on_both("80 plain–masked pairs", not_gaussian, lambda v, _: _pairs(v, WIDTH * PASSIVE)),
        on_both("nothing; features independent, not Gaussian", not_gaussian, _components),
        on_both("nothing; features Gaussian", gaussian, _components),
        on_both(MATCHED.format("all"), related(1.0), _matched_moments, count=few),
        on_both(MATCHED.format("half"), related(0.5), _matched_moments, count=few),
        on_both(LIKELIEST.format("all"), related(1.0), _moments),
        on_both(LIKELIEST.format("half"), related(0.5), _moments),
        on_both("nothing; flags, one-hot, counts", discrete, _grids, count=few, is_share=True),
        on_both(
            "returning users, one feature changed", gaussian, _returns, count=few, is_share=True
        ),
        *(_means_case("disjoint", n_arms, more) for n_arms in (3, 6, 10, 20)),
        *(_means_case("outer", n_arms, more) for n_arms in (3, 10, 20)),
        *(_asks_case(visits, numbers) for visits in (1, 4, 16, 32)),
        *(_planted_case(policy, n, numbers) for policy in ("LinTS", "LinUCB") for n in (10, 20)),
        *(_arms_case(n, visits, numbers) for n in (10, 20) for visits in (1, 16, 32)),
        *(_widths_case(visits, numbers) for visits in (1, 16, 32)),
    ]


def _world(
    sample: Callable[[np.random.Generator, int, int], Matrix], level: Level, rows: int, seed: int
) -> View:
    rng = np.random.default_rng(seed)
    values = sample(rng, 2 * rows, WIDTH * (1 + PASSIVE))
    values = (values - values.mean(axis=0)) / values.std(axis=0)
    own, block, others = np.split(values, [WIDTH, 2 * WIDTH], axis=1)
    return look(block, NAMES, level=level, rng=rng, others=others, own=own)


def not_gaussian(rng: np.random.Generator, n: int, width: int) -> Matrix:
    """Independent columns: exponential, uniform, Laplace, skewed flags with noise, in turn."""
    kinds = (
        lambda: rng.exponential(size=n),
        lambda: rng.uniform(size=n),
        lambda: rng.laplace(size=n),
        lambda: (rng.random(n) < 0.3) + 0.2 * rng.standard_normal(n),
    )
    return np.stack([kinds[j % len(kinds)]() for j in range(width)], axis=1)


def gaussian(rng: np.random.Generator, n: int, width: int) -> Matrix:
    """Independent and Gaussian, so that every rotation has the same law."""
    return rng.standard_normal((n, width))


def related(share: float) -> Callable[[np.random.Generator, int, int], Matrix]:
    """Gaussian columns with a random covariance, across participants too.

    A ``share`` of the variance of each is a random mixture of as many common factors as there are
    columns; the rest is its own.
    """

    def sample(rng: np.random.Generator, n: int, width: int) -> Matrix:
        weights = rng.standard_normal((width, width))
        weights *= np.sqrt(share) / np.linalg.norm(weights, axis=0)
        common = rng.standard_normal((n, width)) @ weights
        own = np.sqrt(1.0 - share) * rng.standard_normal((n, width))
        return np.asarray(common + own, dtype=np.float64)

    return sample


def discrete(rng: np.random.Generator, n: int, width: int) -> Matrix:
    """Of every 20 columns 8 flags, one-hot groups of 3 and 4, and 5 counts."""
    blocks = []
    for _ in range(width // 20):
        flags = rng.random((n, 8)) < np.linspace(0.05, 0.5, 8)
        groups = [np.eye(size)[rng.integers(size, size=n)] for size in (3, 4)]
        counts = rng.poisson(np.linspace(0.5, 3.0, 5), size=(n, 5))
        blocks += [flags, *groups, counts]
    return np.hstack(blocks).astype(np.float64)


def _pairs(view: View, count: int) -> float:
    result = known_pairs(view, counts=(min(count, view.dim),))
    if result.curve is None:
        raise ValueError("known pairs must give a curve, got none")
    return min(line[-1] for line in result.curve.lines.values())


def _components(view: View, seed: int) -> float:
    errors, unnamed = component_errors(view, seed=seed)
    return float(np.minimum(errors, unnamed).mean())


def _matched_moments(view: View, seed: int) -> float:
    return float(errors_by_way(view, seed=seed)["cross-moments"].mean())


def _moments(view: View, seed: int) -> float:
    return float(moment_errors(view, seed=seed).mean())


def _grids(view: View, seed: int) -> float:
    return len(discrete_columns(view, seed=seed).exact) / view.width


def _returns(view: View, seed: int) -> float:
    later = single_changes(view, rng=np.random.default_rng(seed))
    return len(returning_users(view, later).exact) / view.width


def _means_case(layout: str, n_arms: int, seeds: tuple[int, ...]) -> Case:
    """Names, signs and scales are given to this attacker."""

    def run(seed: int) -> float:
        rng = np.random.default_rng(seed)
        values = not_gaussian(rng, 24_000, 10)
        here, there = np.split(values, 2)
        _, errors = mean_errors(
            here, there, n_arms=n_arms, rng=rng, rounds=len(here), layout=layout
        )
        return float(errors.mean())

    arms = f"{n_arms} arms, {layout}" if layout == "disjoint" else f"{n_arms} arm features, outer"
    attacker = f"means of {arms}; 10 features independent, not Gaussian"
    return Case(attacker, {Level.STATISTICS: run}, seeds)


def _planted_case(policy: str, n_arms: int, seeds: tuple[int, ...]) -> Case:
    def run(level: Level) -> Callable[[int], float]:
        (release,) = (one for one in RELEASES[level] if policy in one)
        return lambda seed: _planted(release, n_arms, seed)

    attacker = (
        f"{PLANTED_ROUNDS // 3:,} planted users, {policy}, {n_arms} arms, disjoint; 10 features "
        "independent, not Gaussian"
    )
    return Case(attacker, {level: run(level) for level in (Level.STATISTICS, Level.ARM)}, seeds)


def _planted(release: str, n_arms: int, seed: int) -> float:
    rng = np.random.default_rng(seed)
    here, there = np.split(not_gaussian(rng, 24_000, 10), 2)
    found = planted_errors(
        here, there, release=release, rng=rng, n_arms=n_arms, rounds=PLANTED_ROUNDS
    )
    return float(found[max(found)].mean())


def _arms_case(n_arms: int, visits: int, seeds: tuple[int, ...]) -> Case:
    def run(seed: int) -> float:
        rng = np.random.default_rng(seed)
        here, there = np.split(not_gaussian(rng, 4000, 10), 2)
        return float(visit_errors(here, there, visits, n_arms=n_arms, rng=rng).mean())

    attacker = (
        f"the arms of one user {visits} times, {n_arms} arms, disjoint, 10 features, parameters "
        "known"
    )
    return Case(attacker, {Level.ARM: run}, seeds)


def _widths_case(visits: int, seeds: tuple[int, ...]) -> Case:
    def run(seed: int) -> float:
        rng = np.random.default_rng(seed)
        return float(width_errors(gaussian(rng, 1000, 16), visits, rng=rng).mean())

    attacker = f"widths of the same row {visits} times, LinUCB, 16 features, covariances known"
    return Case(attacker, {Level.ARM: run}, seeds)


def _asks_case(visits: int, seeds: tuple[int, ...]) -> Case:
    def run(seed: int) -> float:
        rng = np.random.default_rng(seed)
        values = gaussian(rng, 1000, 16)
        names = NAMES[:16]
        result = repeated_asks(values, names, rng=rng, visits=(visits,), units=(1e-11,))
        return float(np.mean(list(result.errors.values())))

    attacker = f"the same row {visits} times, 16 features, parameters known"
    return Case(attacker, {Level.STATISTICS: run}, seeds)
