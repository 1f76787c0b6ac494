"""Re-identification: named rows from elsewhere, with errors in them, find their masked twins."""

import numpy as np
from numpy.typing import NDArray

from vfbandits.audit.components import (
    CONTRASTS,
    independent_components,
    is_recognisable,
    name_by_marginals,
    standardised,
)
from vfbandits.audit.result import Curve, Level, Result, column_errors, exact_columns, named
from vfbandits.audit.rotation import align, axis_signs, covariance, nearest_rotation, procrustes
from vfbandits.audit.view import View, centred
from vfbandits.core.arrays import Matrix

NOISES = (0.1, 0.3, 0.6, 1.0)
MAX_CANDIDATES = 5000
MAX_PEOPLE = 1000
STEPS = 15


def reidentify(
    view: View, *, rng: np.random.Generator, noises: tuple[float, ...] = NOISES
) -> Result:
    """Link a noisy auxiliary table, of a fifth of the people, with the masked rows.

    The first rotation comes from public covariance or independent components.  Then every named
    row takes its nearest masked row, the pairs give a better rotation, and so on.
    """
    view = view.first(MAX_CANDIDATES)
    count = min(MAX_PEOPLE, len(view.masked) // 5)
    people = rng.choice(len(view.masked), count, replace=False)
    spreads = view.joint.std(axis=0)
    starts = _first_rotations(view, seed=int(rng.integers(2**31)))
    chance = 1.0 / len(view.masked)
    credible = max(0.02, 10.0 * chance)
    linked, errors = [], []
    for noise in noises:
        table = view.joint[people] + noise * spreads * rng.standard_normal((count, view.dim))
        places, rotation = _link(view, table, starts)
        linked.append(float(np.mean(places == people)))
        guess = (view.masked @ rotation)[:, : view.width]
        errors.append(column_errors(guess, view.plain))
        if linked[-1] <= credible:
            errors[-1] = np.ones(view.width)  # a rotation that found nobody is worth nothing
    by_column = named(errors[0], view.columns)
    return Result(
        attack="reidentify",
        title="Re-identification from an auxiliary table",
        level=view.level,
        needs=f"a table with names and noisy values of all columns for {count:,} people"
        + (" of every passive participant" if view.level is Level.SUM else "")
        + ", and public marginals",
        errors=by_column,
        exact=exact_columns(by_column),
        facts=(
            "share of the people linked to the right row: "
            + ", ".join(f"{s:.0%} at noise {n:g}" for n, s in zip(noises, linked, strict=True))
            + f" (chance {chance:.2%})",
            f"errors below are those at noise {noises[0]:g}",
        ),
        advice="Answer only about users who agreed, limit distinct users per day, and change masks "
        "often; fewer and less unusual columns make people look more alike.",
        curve=Curve(
            x="noise of the auxiliary table (standard deviations)",
            y="share linked, error",
            at=noises,
            lines={
                "people linked": tuple(linked),
                "error after linking": tuple(float(e.mean()) for e in errors),
            },
        ),
        discloses=max(linked) > credible,
    )


def _first_rotations(view: View, *, seed: int) -> list[Matrix]:
    moments = covariance(view.masked), covariance(view.public)
    starts = [align(*moments, None, axis_signs(view.masked, view.public))]
    _, _, spreads = standardised(view.public)
    spreads = spreads * is_recognisable(view.public, seed=seed)
    seen, _ = centred(view.masked)
    for contrast in CONTRASTS:
        components = independent_components(view.masked, contrast=contrast, seed=seed)
        guess = name_by_marginals(components, view.public) * spreads
        starts.append(nearest_rotation(seen.T @ guess))
    return starts


def _link(view: View, table: Matrix, starts: list[Matrix]) -> tuple[NDArray[np.intp], Matrix]:
    """Places of the nearest masked rows, and the rotation; the closest start wins."""
    found = [_refine(view.masked, table, start) for start in starts]
    _, places, rotation = min(found, key=lambda one: one[0])
    return places, rotation


def _refine(
    masked: Matrix, table: Matrix, rotation: Matrix
) -> tuple[float, NDArray[np.intp], Matrix]:
    """Nearest rows and the rotation, in turns, until nothing moves; and how far rows are apart."""
    squares = np.einsum("ij,ij->i", masked, masked)

    def nearest() -> tuple[float, NDArray[np.intp]]:
        scores = squares - 2.0 * (table @ rotation.T) @ masked.T
        places = scores.argmin(axis=1)
        return float(scores[np.arange(len(table)), places].mean()), places

    distance, places = nearest()
    for _ in range(STEPS):
        before = places
        rotation = procrustes(table, masked[places])
        distance, places = nearest()
        if np.array_equal(places, before):
            break
    return distance, places, rotation
