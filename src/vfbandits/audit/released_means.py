"""Released statistics: the estimated rewards of all arms are mixtures of a user's features.

Protocols that never show a row may still release the estimated reward of every arm.  In layouts
``disjoint`` and ``outer`` these are fixed linear functions of one user vector, so independent
components work on them as they do on masked rows, once there are as many arms as features.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from vfbandits.audit.components import (
    best_match,
    chance_of_components,
    fit_marginals,
    independent_components,
    is_recognisable,
    name_by_marginals,
    standardised,
    with_evidence,
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
ARMS_PER_FEATURE = 3  # layout outer


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
    sees the means of every decision; it uses those after the first third, or the last third alone.
    """
    width = values.shape[1]
    counts = arms or default_arms(width)
    tries = [mean_errors(values, public, n_arms=count, rng=rng, rounds=rounds) for count in counts]
    unnamed = [float(free.mean()) for _, free in tries]
    with_names = [float(errors.mean()) for errors, _ in tries]
    known = is_recognisable(public, seed=int(rng.integers(2**31)))
    found = [np.minimum(errors, clear_hits(free, known)) for errors, free in tries]
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

    In layout "outer" ``n_arms`` is the number of arm features, and a catalogue has three times as
    many arms: what is released is then seldom blind to one of the arm features.
    """
    users = values[rng.choice(len(values), rounds, replace=len(values) < rounds)]
    scaled, _, _ = standardised(users)
    own = rng.standard_normal((rounds, OWN))
    seen = _play(np.hstack([own, scaled]), n_arms=n_arms, rng=rng, layout=layout)
    seed = int(rng.integers(2**31))
    known = is_recognisable(public, seed=seed)
    found = [
        _window_errors(seen[late], own[late], scaled[late], public, known=known, seed=seed)
        for late in (slice(rounds // 3, None), slice(2 * rounds // 3, None))
    ]
    named_ones, unnamed = zip(*found, strict=True)
    return np.minimum(*named_ones), np.minimum(*unnamed)


def _window_errors(
    seen: Matrix, own: Matrix, truth: Matrix, public: Matrix, *, known: NDArray[np.bool_], seed: int
) -> tuple[Vector, Vector]:
    """The same for some of the decisions: later ones are fewer, and blurred less by learning."""
    given = np.column_stack([own, np.ones(len(own))])
    mixed: Matrix = seen - given @ np.linalg.pinv(given) @ seen
    # Means that move while the bandit learns add small directions; features are the large ones.
    _, _, axes = np.linalg.svd(mixed, full_matrices=False)
    mixed = mixed @ axes[: truth.shape[1]].T
    components = independent_components(mixed, contrast="logcosh", seed=seed)
    chance = chance_of_components(*mixed.shape, seed=seed)
    found = name_by_marginals(components, public)
    errors = [
        column_errors(with_evidence(guess, known, chance=chance), truth)
        for guess in (found, fit_marginals(mixed, found, public))
    ]
    return np.minimum(*errors), best_match(components, truth)


def _play(contexts: Matrix, *, n_arms: int, rng: np.random.Generator, layout: str) -> Matrix:
    """The means that each decision releases, (n, arms)."""
    n, dim = len(contexts), contexts.shape[1]
    rows = contexts / np.sqrt(dim)
    theta = rng.standard_normal((n_arms, dim)) / np.sqrt(dim)
    features: Matrix | None = None
    arm_dim: int | None = None
    if layout == "outer":
        features = rng.standard_normal((ARMS_PER_FEATURE * n_arms, n_arms)) / np.sqrt(n_arms)
        theta, arm_dim = features @ theta, n_arms
    bandit = Bandit(LinUCB(beta=0.5), dim=dim, layout=layout, arm_dim=arm_dim)
    seen = np.empty((n, len(theta)))
    noise = rng.standard_normal(n)
    for turn in range(n):
        decision = bandit.decide(rows[turn], arms=range(len(theta)), arm_features=features)
        seen[turn] = decision.means
        bandit.reward(decision, float(theta[decision.index] @ rows[turn] + NOISE * noise[turn]))
    return seen
