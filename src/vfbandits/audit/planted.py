"""Planted users: what a release reveals of features, learnt from users with known features.

An attacker that knows some users' features (test accounts, a loyalty programme) sees what is
released about them, fits a map from that to the features, and applies it to the others.  It needs
no parameter of the bandit, and works on the arm alone too.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from vfbandits.audit.components import standardised
from vfbandits.audit.result import Curve, Level, Result, column_errors, exact_columns, named
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.policy import LinTS, LinUCB

ROUNDS = 9000
OWN = 2
ARMS = 10
BETA = 0.5
NOISE = 0.05
UNITS = 1000
PENALTIES = (1e-1, 1e1, 1e3)
HELD_OUT = 4  # one planted user in so many chooses the penalty
RELEASES: Mapping[Level, tuple[str, ...]] = {
    Level.ARM: ("the arm (LinTS)", "the arm and widths (LinUCB)"),
    Level.STATISTICS: ("means (LinTS)", "means and widths (LinUCB)"),
}
"""What each level releases, and by which policy."""


def planted_users(
    values: Matrix,
    columns: Sequence[str],
    *,
    level: Level,
    public: Matrix,
    rng: np.random.Generator,
    n_arms: int = ARMS,
    rounds: int = ROUNDS,
) -> Result:
    """Error on users ``values`` (n, width) against the number of planted users, from ``public``.

    Layout ``disjoint``, where an arm is a fixed function of one user's features.
    """
    lines: dict[str, tuple[float, ...]] = {}
    best = np.ones(values.shape[1])
    counts: tuple[int, ...] = ()
    for release in RELEASES[level]:
        found = planted_errors(
            values, public, release=release, rng=rng, n_arms=n_arms, rounds=rounds
        )
        counts = tuple(found)
        lines[release] = tuple(float(errors.mean()) for errors in found.values())
        best = np.minimum(best, np.minimum.reduce(list(found.values())))
    errors = named(best, columns)
    return Result(
        attack="planted_users",
        title="Features by a map that was learnt on planted users",
        level=level,
        needs="features of some users, and what was released about them; layout disjoint",
        errors=errors,
        exact=exact_columns(errors),
        facts=tuple(
            f"with {counts[-1]:,} planted users and {n_arms} arms the mean error is "
            f"{line[-1]:.2f} from {release}"
            for release, line in lines.items()
        ),
        advice="Take LinTS or LinGreedy with the release of the arm, which opens no width.",
        curve=Curve(
            x="planted users",
            y="error (standard deviations)",
            at=tuple(map(float, counts)),
            lines=lines,
        ),
    )


def planted_errors(
    values: Matrix,
    public: Matrix,
    *,
    release: str,
    rng: np.random.Generator,
    n_arms: int = ARMS,
    rounds: int = ROUNDS,
) -> dict[int, Vector]:
    """Error of each column by the number of planted users: a tenth, a third, and all of them.

    Half of the users of all rounds are planted.  The first third of the rounds is left out.
    """
    people = np.vstack([public, values])
    scaled, _, _ = standardised(people)
    is_planted = rng.random(rounds) < 0.5
    planted = rng.integers(len(public), size=rounds)
    victims = len(public) + rng.integers(len(values), size=rounds)
    users = scaled[np.where(is_planted, planted, victims)]
    own = rng.standard_normal((rounds, OWN))
    seen = _play(np.hstack([own, users]), release=release, n_arms=n_arms, rng=rng)
    late = np.arange(rounds) >= rounds // 3
    known, unknown = is_planted & late, ~is_planted & late
    total = int(np.count_nonzero(known))
    found = {}
    for count in sorted({max(1, total // 10), max(1, total // 3), total}):
        guess = _fit(seen[known][:count], users[known][:count], seen[unknown], rng=rng)
        found[count] = column_errors(guess, users[unknown])
    return found


def _play(contexts: Matrix, *, release: str, n_arms: int, rng: np.random.Generator) -> Matrix:
    """What the active participant has of each decision: its own features and what is released."""
    n, dim = len(contexts), contexts.shape[1]
    rows = contexts / np.sqrt(dim)
    theta = rng.standard_normal((n_arms, dim)) / np.sqrt(dim)
    policy = LinUCB(beta=BETA) if "LinUCB" in release else LinTS(0.1, space="arm")
    bandit = Bandit(policy, dim=dim, layout="disjoint", seed=int(rng.integers(2**31)))
    shown = np.zeros(n_arms)
    noise = rng.standard_normal(n)
    seen = []
    for turn in range(n):
        decision = bandit.decide(rows[turn], arms=range(n_arms))
        parts = [contexts[turn, :OWN], np.arange(n_arms) == decision.index]
        if "means" in release:
            parts.append(decision.means)
        if "widths" in release:
            # A width shrinks as an arm is shown; the active participant has counted.
            widths = (decision.scores - decision.means) / BETA
            parts.append(widths * np.sqrt(np.maximum(shown, 1.0)))
        seen.append(np.concatenate(parts))
        shown[decision.index] += 1.0
        reward = theta[decision.index] @ rows[turn] + NOISE * noise[turn]
        bandit.reward(decision, float(reward))
    return np.array(seen)


def _fit(seen: Matrix, truth: Matrix, others: Matrix, *, rng: np.random.Generator) -> Matrix:
    """Features of the others, by ridge regression on random units of a network.

    Some planted users are held out.  They choose the penalty, and a column that is not predicted
    better than by the mean is answered with the mean.
    """
    mean, spread = seen.mean(axis=0), seen.std(axis=0)
    spread = np.where(spread > 0.0, spread, 1.0)
    weights = rng.standard_normal((seen.shape[1], UNITS)) / np.sqrt(seen.shape[1])
    offsets = rng.standard_normal(UNITS)

    def units(rows: Matrix) -> Matrix:
        scaled = np.clip((rows - mean) / spread, -5.0, 5.0)
        hidden = np.tanh(1.5 * scaled @ weights + offsets)
        return np.column_stack([np.ones(len(rows)), scaled, hidden])

    inside, outside = units(seen), units(others)
    test = np.arange(len(seen)) % HELD_OUT == 0
    level = truth.mean(axis=0)
    best: Vector = np.ones(truth.shape[1])
    guess: Matrix = np.tile(level, (len(others), 1))
    for penalty in PENALTIES:
        held = inside[test] @ _ridge(inside[~test], truth[~test] - level, penalty) + level
        errors = column_errors(held, truth[test])
        if (errors < best).any():
            found = outside @ _ridge(inside, truth - level, penalty) + level
            guess = np.where(errors < best, found, guess)
            best = np.minimum(best, errors)
    return guess


def _ridge(rows: Matrix, targets: Matrix, penalty: float) -> Matrix:
    gram = rows.T @ rows
    gram[np.diag_indices_from(gram)] += penalty
    return np.asarray(np.linalg.solve(gram, rows.T @ targets), dtype=np.float64)
