"""The arms that one user was shown, while an attacker knows the parameters of each time.

A greedy arm says that its estimated reward is not below that of any other: as many half-spaces that
the user's features lie in.  The attacker averages over all features that the half-spaces leave,
weighted by what is public: means and covariances.  The release of the arm does not reveal the
parameters; this is the most that arms alone could reveal.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from vfbandits.audit.components import standardised
from vfbandits.audit.result import Curve, Level, Result, column_errors, exact_columns, named
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.policy import LinGreedy

ROUNDS = 3000
OWN = 2
ARMS = 10
USERS = 100
NOISE = 0.05
STEPS = 1500
VISITS = (1, 4, 16, 32)


def shown_arms(
    values: Matrix,
    columns: Sequence[str],
    *,
    public: Matrix,
    rng: np.random.Generator,
    n_arms: int = ARMS,
    visits: tuple[int, ...] = VISITS,
) -> Result:
    """Error against the number of visits of the same user."""
    seed = int(rng.integers(2**31))  # the same users and the same bandit for all counts
    found = [
        visit_errors(values, public, n, n_arms=n_arms, rng=np.random.default_rng(seed))
        for n in visits
    ]
    errors = named(np.minimum.reduce(found), columns)
    means = tuple(float(one.mean()) for one in found)
    return Result(
        attack="shown_arms",
        title="The arms that one user was shown",
        level=Level.ARM,
        needs="the arms of one user at several times, and the parameters of each time, which this "
        "release does not give; layout disjoint",
        errors=errors,
        exact=exact_columns(errors),
        facts=(
            f"with {n_arms} arms the mean error is {means[0]:.2f} after {visits[0]} and "
            f"{means[-1]:.2f} after {visits[-1]} visits",
        ),
        advice="Limit how often a user is asked for; take LinTS, whose noise blurs what an arm "
        "says.",
        curve=Curve(
            x="visits of the same user",
            y="error (standard deviations)",
            at=tuple(map(float, visits)),
            lines={f"{n_arms} arms": means},
        ),
    )


def visit_errors(
    values: Matrix, public: Matrix, visits: int, *, n_arms: int = ARMS, rng: np.random.Generator
) -> Vector:
    """Error of each column of some of the users ``values`` (n, width) after so many visits."""
    people = np.vstack([public, values])
    scaled, _, _ = standardised(people)
    known, unknown = scaled[: len(public)], scaled[len(public) :]
    users = unknown[rng.choice(len(unknown), USERS, replace=len(unknown) < USERS)]
    own = rng.standard_normal((USERS, OWN))
    thetas = _path(known, visits=visits, n_arms=n_arms, rng=rng)
    slopes, offsets = _half_spaces(thetas, np.hstack([own, users]))
    mean = known.mean(axis=0)
    root = np.linalg.cholesky(np.cov(known.T).reshape(len(mean), -1) + 1e-9 * np.eye(len(mean)))
    # In units of the public covariance, where the prior is a unit Gaussian.
    inside = slopes @ root
    limits = offsets + slopes @ mean
    start = np.linalg.solve(root, (users - mean).T).T
    guess = _average(inside, limits, start, rng=rng) @ root.T + mean
    return column_errors(guess, users)


def _path(known: Matrix, *, visits: int, n_arms: int, rng: np.random.Generator) -> Matrix:
    """Parameters of all arms of a greedy bandit while it learns, (visits, arms, dim)."""
    dim = OWN + known.shape[1]
    truth = rng.standard_normal((n_arms, dim)) / np.sqrt(dim)
    policy = LinGreedy(epsilon=0.2)
    bandit = Bandit(policy, dim=dim, layout="disjoint", seed=int(rng.integers(2**31)))
    times = set(np.linspace(10 * n_arms, ROUNDS - 1, visits + 1)[1:].round().astype(int).tolist())
    path = []
    for turn in range(ROUNDS):
        x = np.concatenate([rng.standard_normal(OWN), known[rng.integers(len(known))]])
        x /= np.sqrt(dim)
        decision = bandit.decide(x, arms=range(n_arms))
        reward = truth[decision.index] @ x + NOISE * rng.standard_normal()
        bandit.reward(decision, float(reward))
        if turn in times:
            states = bandit.states
            nothing = np.zeros(dim)
            now = [states[arm].theta if arm in states else nothing for arm in range(n_arms)]
            path.append(np.array(now))
    return np.array(path)


def _half_spaces(thetas: Matrix, users: Matrix) -> tuple[Matrix, Matrix]:
    """Slopes (users, n, width) and offsets (users, n): slopes·y + offsets is not negative."""
    scores = np.einsum("tad,ud->uta", thetas, users)
    best = scores.argmax(axis=2)
    chosen = thetas[np.arange(len(thetas))[None, :], best]
    gaps = (chosen[:, :, None] - thetas[None]).reshape(len(users), -1, users.shape[1])
    lengths = np.linalg.norm(gaps[..., OWN:], axis=2, keepdims=True)
    gaps = gaps / np.where(lengths > 1e-12, lengths, np.inf)
    return gaps[..., OWN:], np.einsum("und,ud->un", gaps[..., :OWN], users[:, :OWN])


def _average(slopes: Matrix, offsets: Matrix, start: Matrix, *, rng: np.random.Generator) -> Matrix:
    """The mean of a unit Gaussian within half-spaces, user by user, by hit-and-run.

    The walk begins at the truth, the one point that is known to lie within all of them, and its
    first third is left out.
    """
    y, total = start.copy(), np.zeros_like(start)
    slack = np.einsum("unw,uw->un", slopes, y) + offsets
    for step in range(STEPS):
        way = rng.standard_normal(y.shape)
        way /= np.linalg.norm(way, axis=1, keepdims=True)
        speed = np.einsum("unw,uw->un", slopes, way)
        with np.errstate(divide="ignore", invalid="ignore"):
            bounds = -slack / speed
        low = np.where(speed > 1e-12, bounds, -np.inf).max(axis=1)
        high = np.where(speed < -1e-12, bounds, np.inf).min(axis=1)
        # Along the line y + a·way a unit Gaussian is one of mean −y·way and deviation 1.
        middle = -np.vecdot(y, way)
        least, most = ndtr(low - middle), ndtr(high - middle)
        place = least + (most - least) * rng.random(len(y))
        a = np.clip(middle + ndtri(np.clip(place, 1e-12, 1.0 - 1e-12)), low, high)
        y += a[:, None] * way
        slack += a[:, None] * speed
        if step >= STEPS // 3:
            total += y
    return total / (STEPS - STEPS // 3)
