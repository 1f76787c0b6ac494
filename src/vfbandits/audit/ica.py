"""Independent components: columns that are independent and not Gaussian can be recovered."""

import numpy as np
from numpy.typing import NDArray

from vfbandits.audit.components import (
    CONTRASTS,
    best_match,
    chance_of_components,
    fit_marginals,
    independent_components,
    is_recognisable,
    name_by_marginals,
    standardised,
    with_evidence,
)
from vfbandits.audit.result import RED_ERROR, Result, column_errors, exact_columns, named
from vfbandits.audit.view import View
from vfbandits.core.arrays import Vector

MAX_ROWS = 20_000
MAX_LISTED = 6


def independent_columns(view: View, *, seed: int) -> Result:
    """FastICA with two contrasts; public marginals give names, signs and scales.

    A last attacker starts from there and fits directions to the public marginals themselves,
    which also serves columns that are correlated.
    """
    view = view.first(MAX_ROWS)
    errors, unnamed = component_errors(view, seed=seed)
    both = named(np.minimum(errors, unnamed), view.columns)
    alike = [
        name
        for name, error, free in zip(view.columns, errors, unnamed, strict=True)
        if free <= RED_ERROR < error
    ]
    facts = [
        f"{int((errors <= RED_ERROR).sum())} of {view.width} columns recovered to 0.3 standard "
        "deviations, with names, signs and scales from public marginals",
    ]
    if alike:
        shown = ", ".join(alike[:MAX_LISTED]) + ", …" * (len(alike) > MAX_LISTED)
        facts.append(
            f"{len(alike)} more are recovered without their name ({shown}): one insider, or a "
            "guess among columns with like marginals, names them"
        )
    return Result(
        attack="ica",
        title="Independent components",
        level=view.level,
        needs="many masked rows, and public marginals of the columns",
        errors=both,
        exact=exact_columns(both),
        facts=tuple(facts),
        advice="Bring columns near to a Gaussian before masking (ranks to normal quantiles), drop "
        "heavy tails and flags, or send combinations instead of single columns.",
    )


def component_errors(view: View, *, seed: int) -> tuple[Vector, Vector]:
    """Error of each own column with names by marginals, and with names given; best of all tries.

    An attacker answers with the mean, whose error is 1, where it has no evidence for a component:
    so it does for Gaussian columns.  The second is also 1 where it is no clear hit: of many
    directions one is always near to a column.
    """
    known = is_recognisable(view.public, seed=seed)
    own = slice(0, view.width)
    if not known[own].any():
        return np.ones(view.width), np.ones(view.width)
    chance = chance_of_components(*view.masked.shape, seed=seed)
    _, means, spreads = standardised(view.public)
    with_names, without = [], []
    for contrast in CONTRASTS:
        components = independent_components(view.masked, contrast=contrast, seed=seed)
        named_ones = name_by_marginals(components, view.public)
        for guess in (named_ones, fit_marginals(view.masked, named_ones, view.public)):
            credible = with_evidence(guess, known, chance=chance)
            plain = credible * spreads + means
            with_names.append(column_errors(plain[:, own], view.plain))
        without.append(best_match(components, view.plain))
    return np.minimum.reduce(with_names), clear_hits(np.minimum.reduce(without), known[own])


def clear_hits(errors: Vector, known: NDArray[np.bool_]) -> Vector:
    """Errors of components whose names were given, where they cannot be luck; 1 elsewhere."""
    return np.where((errors <= RED_ERROR) & known, errors, 1.0)
