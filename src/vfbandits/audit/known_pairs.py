"""Insiders: users whose plain row the attacker knows besides the masked one."""

import numpy as np

from vfbandits.audit.result import RED_ERROR, Curve, Result, column_errors, exact_columns, named
from vfbandits.audit.rotation import align, covariance, procrustes
from vfbandits.audit.view import View
from vfbandits.core.arrays import Matrix

MAX_ROWS = 5000


def known_pairs(view: View, *, counts: tuple[int, ...] = ()) -> Result:
    """Error against the number of insiders, who are the first rows of the view.

    Three attackers: ``minimum norm`` takes from a row what lies in the insiders' span and the mean
    of the rest; ``Procrustes`` takes the rotation nearest to the pairs; ``public covariance`` adds
    what is public, mean and covariance, and takes the direction of each axis from the pairs.
    """
    counts = counts or default_counts(view.dim)
    view = view.first(MAX_ROWS)
    last = min(max(counts), len(view.masked) // 2)
    counts = tuple(count for count in counts if count <= last)
    test = slice(last, None)
    lines: dict[str, list[float]] = {}
    best: dict[int, dict[str, float]] = {}
    for count in counts:
        found = {
            name: column_errors(guess[:, : view.width], view.plain[test])
            for name, guess in _attackers(view, count, test).items()
        }
        for name, errors in found.items():
            lines.setdefault(name, []).append(float(errors.mean()))
        best[count] = named(np.minimum.reduce(list(found.values())), view.columns)
    falls = [count for count in counts if min(best[count].values()) <= RED_ERROR]
    everything = [count for count in counts if max(best[count].values()) <= RED_ERROR]
    final = best[counts[-1]]
    facts = [
        f"{view.dim} insiders open the mask for everybody, whatever the data",
        f"the number of insiders that opens a first column to 0.3 standard deviations is {falls[0]}"
        if falls
        else f"no column falls to 0.3 standard deviations with up to {counts[-1]} insiders",
    ]
    if everything:
        facts.append(f"the number that opens all columns to it is {everything[0]}")
    return Result(
        attack="known_pairs",
        title="Insiders whose rows are known",
        level=view.level,
        needs="plain rows of some users who are asked for: staff, test accounts, planted users; "
        "for one of the lines the public mean and covariance",
        errors=final,
        exact=exact_columns(final),
        facts=tuple(facts),
        advice="Limit who is asked for and how often, and change masks often, so that pairs of one "
        "mask do not add up.",
        is_universal=True,
        curve=Curve(
            x="insiders",
            y="error (standard deviations)",
            at=tuple(map(float, counts)),
            lines={name: tuple(line) for name, line in lines.items()},
        ),
    )


def default_counts(dim: int) -> tuple[int, ...]:
    """From one insider to as many as a row has numbers.

    >>> default_counts(20)
    (1, 2, 5, 10, 15, 20)
    """
    parts = (dim // 10, dim // 4, dim // 2, 3 * dim // 4, dim)
    return tuple(sorted({1, *(max(1, part) for part in parts)}))


def _attackers(view: View, count: int, test: slice) -> dict[str, Matrix]:
    plain, masked, seen = view.joint[:count], view.masked[:count], view.masked[test]
    mean, middle = view.public.mean(axis=0), view.masked.mean(axis=0)
    # Pairs are exact and moments are not: the more rows there are, the less pairs need to give way.
    crosses = ((masked - middle).T * len(view.masked) ** 0.5, (plain - mean).T)
    rotation = align(covariance(view.masked), covariance(view.public), crosses)
    reached = np.linalg.pinv(plain) @ plain
    return {
        "minimum norm": seen @ np.linalg.pinv(masked) @ plain + mean - mean @ reached,
        "Procrustes": seen @ procrustes(plain, masked),
        "public covariance": (seen - middle) @ rotation + mean,
    }
