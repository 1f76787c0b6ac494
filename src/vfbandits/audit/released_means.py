"""Released statistics: the estimated rewards of all arms are mixtures of a user's features.

Protocols that never show a row may still release the estimated reward of every arm.  In layouts
``disjoint`` and ``outer`` these are fixed linear functions of one user vector, so independent
components work on them as they do on masked rows, once there are as many arms as features.
"""

from collections.abc import Sequence

import numpy as np

from vfbandits.audit.components import (
    best_match,
    fit_marginals,
    independent_components,
    name_by_marginals,
    standardised,
)
from vfbandits.audit.ica import clear_hits
from vfbandits.audit.result import (
    RED_ERROR,
    Curve,
    Level,
    Result,
    column_errors,
    exact_columns,
    named,
)
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.policy import LinUCB

ROUNDS = 8000
OWN = 2
NOISE = 0.05


def released_means(
    values: Matrix,
    columns: Sequence[str],
    *,
    public: Matrix,
    rng: np.random.Generator,
    arms: tuple[int, ...] = (),
    rounds: int = ROUNDS,
) -> Result:
    """Error against the number of arms of a LinUCB bandit in layout ``disjoint``.

    ``values`` (n, width) are unknown to the attacker, who has two columns of its own besides, and
    sees the means of every decision after the first third.
    """
    width = values.shape[1]
    counts = arms or default_arms(width)
    tries = [mean_errors(values, public, n_arms=count, rng=rng, rounds=rounds) for count in counts]
    unnamed = [float(free.mean()) for _, free in tries]
    with_names = [float(errors.mean()) for errors, _ in tries]
    found = [np.minimum(errors, clear_hits(free, public)) for errors, free in tries]
    errors = named(np.minimum.reduce(found), columns)
    hits = [int(np.count_nonzero(one <= RED_ERROR)) for one in found]
    return Result(
        attack="released_means",
        title="Independent components of released means",
        level=Level.STATISTICS,
        needs="the estimated reward of every arm, many decisions, layout disjoint or outer, and "
        "public marginals",
        errors=errors,
        exact=exact_columns(errors),
        facts=(
            f"columns of {width} recovered to 0.3 standard deviations within {rounds:,} decisions: "
            + ", ".join(f"{n} with {k} arms" for n, k in zip(hits, counts, strict=True)),
            "a decision releases as many numbers as there are arms (outer: arm features), and a "
            "bandit that has learnt for longer blurs them less",
        ),
        advice="Release the chosen arm only; have fewer arms (outer: arm features) than columns.",
        curve=Curve(
            x="arms",
            y="error (standard deviations)",
            at=tuple(map(float, counts)),
            lines={"names given": tuple(unnamed), "names by marginals": tuple(with_names)},
        ),
    )


def default_arms(width: int) -> tuple[int, ...]:
    """A third, a half, one and two times as many as columns.

    >>> default_arms(10)
    (3, 5, 10, 20)
    """
    return tuple(sorted({max(2, width // 3), max(2, width // 2), max(2, width), max(2, 2 * width)}))


def mean_errors(
    values: Matrix,
    public: Matrix,
    *,
    n_arms: int,
    rng: np.random.Generator,
    rounds: int = ROUNDS,
    layout: str = "disjoint",
) -> tuple[Vector, Vector]:
    """Error of each column with names by public marginals, and with names given.

    In layout "outer" there are as many arm features as arms.
    """
    users = values[rng.choice(len(values), rounds, replace=len(values) < rounds)]
    scaled, _, _ = standardised(users)
    own = rng.standard_normal((rounds, OWN))
    seen = _play(np.hstack([own, scaled]), n_arms=n_arms, rng=rng, layout=layout)
    late = slice(rounds // 3, None)
    known = np.column_stack([own[late], np.ones(rounds - rounds // 3)])
    mixed: Matrix = seen[late] - known @ np.linalg.pinv(known) @ seen[late]
    # Means that move while the bandit learns add small directions; features are the large ones.
    _, _, axes = np.linalg.svd(mixed, full_matrices=False)
    mixed = mixed @ axes[: values.shape[1]].T
    components = independent_components(mixed, contrast="logcosh", seed=int(rng.integers(2**31)))
    found = name_by_marginals(components, public)
    fitted = fit_marginals(mixed, found, public)
    truth = scaled[late]
    errors = [column_errors(guess, truth) for guess in (found, fitted)]
    return np.minimum(*errors), best_match(components, truth)


def _play(contexts: Matrix, *, n_arms: int, rng: np.random.Generator, layout: str) -> Matrix:
    """The means that each decision releases, (n, n_arms)."""
    n, dim = len(contexts), contexts.shape[1]
    rows = contexts / np.sqrt(dim)
    theta = rng.standard_normal((n_arms, dim)) / np.sqrt(dim)
    features: Matrix | None = None
    if layout == "outer":
        features = rng.standard_normal((n_arms, n_arms)) / np.sqrt(n_arms)
        theta = features @ theta
    arm_dim = None if features is None else n_arms
    bandit = Bandit(LinUCB(beta=0.5), dim=dim, layout=layout, arm_dim=arm_dim)
    seen = np.empty((n, n_arms))
    noise = rng.standard_normal(n)
    for turn in range(n):
        decision = bandit.decide(rows[turn], arms=range(n_arms), arm_features=features)
        seen[turn] = decision.means
        bandit.reward(decision, float(theta[decision.index] @ rows[turn] + NOISE * noise[turn]))
    return seen
