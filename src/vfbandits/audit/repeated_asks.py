"""The same row asked for again and again, while an attacker knows the parameter of each time.

Every release is one linear equation about the row.  The parameter can be had without breaking a
rule: planted users, whose rows the attacker knows, asked for between two rewards.
"""

from collections.abc import Sequence

import numpy as np

from vfbandits.audit.components import standardised
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

ROUNDS = 3000
OWN = 4
ARMS = 10
USERS = 200
UNITS = (1e-11, 1e-6, 1e-3)


def repeated_asks(
    values: Matrix,
    columns: Sequence[str],
    *,
    rng: np.random.Generator,
    visits: tuple[int, ...] = (),
    units: tuple[float, ...] = UNITS,
) -> Result:
    """Error against the number of visits, for means that are released rounded to ``units``."""
    width = values.shape[1]
    counts = visits or default_visits(width)
    scaled, _, _ = standardised(values)
    users = scaled[rng.choice(len(scaled), USERS, replace=len(scaled) < USERS)]
    path = _path(scaled, visits=max(counts), rng=rng)
    found = {
        unit: [visit_errors(users, path, count, unit=unit) for count in counts] for unit in units
    }
    errors = named(found[units[0]][-1], columns)
    return Result(
        attack="repeated_asks",
        title="The same row asked for many times",
        level=Level.STATISTICS,
        needs="estimated rewards of one user at several times, and the parameter of each time "
        "(planted users give it)",
        errors=errors,
        exact=exact_columns(errors),
        facts=(first_fall(counts, found[units[0]]),),
        advice="Limit how often a user is asked for, release the arm only, or round what leaves.",
        is_universal=True,
        curve=Curve(
            x="visits of the same user",
            y="error (standard deviations)",
            at=tuple(map(float, counts)),
            lines={f"rounded to {u:g}": tuple(float(e.mean()) for e in found[u]) for u in units},
        ),
    )


def default_visits(width: int) -> tuple[int, ...]:
    """From one to twice as many as columns.

    >>> default_visits(16)
    (1, 4, 8, 16, 32)
    """
    return tuple(sorted({1, max(1, width // 4), max(1, width // 2), width, 2 * width}))


def first_fall(counts: Sequence[int], errors: Sequence[Vector]) -> str:
    """After how many visits a column is known, in words.

    >>> first_fall((1, 4), [np.array([0.9, 1.0]), np.array([0.1, 1.0])])
    'the first column falls to 0.3 standard deviations after 4 visits'
    """
    falls = [count for count, one in zip(counts, errors, strict=True) if one.min() <= RED_ERROR]
    if not falls:
        return f"no column falls to 0.3 standard deviations within {counts[-1]} visits"
    return f"the first column falls to 0.3 standard deviations after {falls[0]} visits"


def visit_errors(users: Matrix, path: Matrix, visits: int, *, unit: float) -> Vector:
    """Error of each column of ``users`` (n, width) after some visits, spread over ``path``.

    Least squares with the public prior: mean 0, deviation 1.
    """
    theta = path[np.linspace(0, len(path) - 1, visits).round().astype(np.intp)]
    released = np.round(users @ theta.T / unit) * unit
    noise = np.sqrt(unit**2 / 12.0 + 1e-22)
    equations = np.vstack([theta / noise, np.eye(users.shape[1])])
    right = np.vstack([released.T / noise, np.zeros((users.shape[1], len(users)))])
    guess: Matrix = np.linalg.lstsq(equations, right, rcond=None)[0].T
    return column_errors(guess, users)


def _path(scaled: Matrix, *, visits: int, rng: np.random.Generator) -> Matrix:
    """Parameters of a LinUCB bandit while it learns: those of the unknown columns, (times, width).

    The attacker's own columns are taken out of what is released, so that they do not count.
    """
    width = scaled.shape[1]
    dim = width + OWN
    truth = rng.standard_normal(dim) / np.sqrt(dim)
    bandit = Bandit(LinUCB(beta=0.5), dim=dim)
    path = []
    every = max(1, ROUNDS // (2 * visits))
    for turn in range(ROUNDS):
        people = scaled[rng.integers(len(scaled), size=ARMS)]
        contexts = np.hstack([rng.standard_normal((ARMS, OWN)), people]) / np.sqrt(dim)
        decision = bandit.decide(contexts)
        reward = contexts[decision.index] @ truth + 0.05 * rng.standard_normal()
        bandit.reward(decision, float(reward))
        if turn % every == every // 2:
            path.append(bandit.states[None].theta[OWN:] / np.sqrt(dim))
    return np.array(path)
