"""Widths of the same row at several times, while an attacker knows the covariance of each time.

LinUCB opens x'Λ⁻¹x of each arm even where the arm alone is released.  Planted users, asked for
between two rewards, give Λ⁻¹: each of their widths is a linear equation in it.  Then every width of
another row is a quadratic equation in its features.
"""

from collections.abc import Sequence

import numpy as np

from vfbandits.audit.components import standardised
from vfbandits.audit.repeated_asks import default_visits, first_fall
from vfbandits.audit.result import (
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
USERS = 40
UNIT = 2.0**-40
"""Squared widths are released in such steps."""
STARTS = 40  # fewer for many columns, where each takes long
MIN_STARTS = 4
STEPS = 120
PRIOR = 1e-4


def repeated_widths(
    values: Matrix,
    columns: Sequence[str],
    *,
    rng: np.random.Generator,
    visits: tuple[int, ...] = (),
) -> Result:
    """Error against the number of visits of the same row."""
    counts = visits or default_visits(values.shape[1])
    found = [width_errors(values, count, rng=rng) for count in counts]
    errors = named(found[-1], columns)
    return Result(
        attack="repeated_widths",
        title="Widths of the same row, asked for many times",
        level=Level.ARM,
        needs="LinUCB, widths of one user at several times, and the covariance of each time "
        "(planted users give it)",
        errors=errors,
        exact=exact_columns(errors),
        facts=(first_fall(counts, found),),
        advice="Take LinTS or LinGreedy, which open no width; limit how often a user is asked for.",
        is_universal=True,
        curve=Curve(
            x="visits of the same user",
            y="error (standard deviations)",
            at=tuple(map(float, counts)),
            lines={"widths (LinUCB)": tuple(float(one.mean()) for one in found)},
        ),
    )


def width_errors(values: Matrix, visits: int, *, rng: np.random.Generator) -> Vector:
    """Error of each column of some users ``values`` (n, width) after so many visits.

    Of several starts that counts which fits best: the attacker sees it.  With fewer equations than
    features a fit says nothing, and the mean is the better answer.
    """
    width = values.shape[1]
    if visits < width:
        return np.ones(width)
    scaled, _, _ = standardised(values)
    users = scaled[rng.choice(len(scaled), USERS, replace=len(scaled) < USERS)]
    own = rng.standard_normal((USERS, OWN))
    forms = _path(scaled, visits=visits, rng=rng)
    rows = np.hstack([own, users])
    squares = np.round(np.einsum("ui,tij,uj->ut", rows, forms, rows) / UNIT) * UNIT
    best, guess = np.full(USERS, np.inf), np.zeros_like(users)
    for _ in range(max(MIN_STARTS, round(STARTS * min(1.0, (16 / width) ** 2)))):
        found, cost = _solve(forms, squares, own, rng.standard_normal(users.shape))
        guess = np.where((cost < best)[:, None], found, guess)
        best = np.minimum(best, cost)
    return np.minimum(column_errors(guess, users), 1.0)


def _path(scaled: Matrix, *, visits: int, rng: np.random.Generator) -> Matrix:
    """Λ⁻¹ of a LinUCB bandit while it learns, (visits, dim, dim)."""
    dim = OWN + scaled.shape[1]
    truth = rng.standard_normal(dim) / np.sqrt(dim)
    bandit = Bandit(LinUCB(beta=0.5), dim=dim)
    times = set(np.linspace(dim, ROUNDS - 1, visits).round().astype(int).tolist())
    path = []
    for turn in range(ROUNDS):
        people = scaled[rng.integers(len(scaled), size=ARMS)]
        contexts = np.hstack([rng.standard_normal((ARMS, OWN)), people]) / np.sqrt(dim)
        if turn in times:
            path.append(np.linalg.inv(bandit.states[None].Lambda) / dim)
        decision = bandit.decide(contexts)
        reward = contexts[decision.index] @ truth + 0.05 * rng.standard_normal()
        bandit.reward(decision, float(reward))
    return np.array(path)


def _solve(forms: Matrix, squares: Matrix, own: Matrix, start: Matrix) -> tuple[Matrix, Vector]:
    """Features (users, width) by Levenberg and Marquardt's method, and what is left of the cost."""
    scale = 1.0 / np.maximum(squares.mean(axis=0), 1e-300)
    y, damping = start.copy(), np.full(len(start), 1.0)
    eye = np.eye(start.shape[1])

    def residuals(y: Matrix) -> tuple[Matrix, Matrix]:
        rows = np.hstack([own, y])
        turned = np.einsum("tij,uj->uti", forms, rows)
        return (np.vecdot(turned, rows[:, None]) - squares) * scale, turned

    left, turned = residuals(y)
    cost = np.vecdot(left, left) + PRIOR**2 * np.vecdot(y, y)
    for _ in range(STEPS):
        slopes = 2.0 * turned[..., OWN:] * scale[:, None]
        gram = slopes.swapaxes(1, 2) @ slopes + PRIOR**2 * eye
        down = np.einsum("utw,ut->uw", slopes, left) + PRIOR**2 * y
        sizes = np.trace(gram, axis1=1, axis2=2) / len(eye)
        step = np.linalg.solve(gram + (damping * sizes)[:, None, None] * eye, down[..., None])
        tried = y - step[..., 0]
        new_left, new_turned = residuals(tried)
        new_cost = np.vecdot(new_left, new_left) + PRIOR**2 * np.vecdot(tried, tried)
        better = new_cost < cost
        y = np.where(better[:, None], tried, y)
        left = np.where(better[:, None], new_left, left)
        turned = np.where(better[:, None, None], new_turned, turned)
        cost = np.where(better, new_cost, cost)
        damping = np.clip(np.where(better, damping / 5.0, damping * 4.0), 1e-15, 1e6)
    return y, cost
