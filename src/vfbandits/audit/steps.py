"""Which attacks are run on a table, in which order; each can be run alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from vfbandits.audit.absent import absent_users, rows_alone
from vfbandits.audit.disclosure import disclosure
from vfbandits.audit.discrete import discrete_columns
from vfbandits.audit.ica import independent_columns
from vfbandits.audit.known_pairs import known_pairs
from vfbandits.audit.moments import second_moments_by_halves
from vfbandits.audit.reidentify import reidentify
from vfbandits.audit.released_means import released_means
from vfbandits.audit.repeated_asks import repeated_asks
from vfbandits.audit.result import Level, Result
from vfbandits.audit.returning import returning_users, single_changes
from vfbandits.audit.table import AuditTable
from vfbandits.audit.view import View, look, simulate_others
from vfbandits.core.arrays import Matrix


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One attack at one level; ``run`` needs no other step."""

    title: str
    level: Level
    run: Callable[[], Result] = field(repr=False)


def plan(
    table: AuditTable, *, levels: Sequence[Level], seed: int, n_others: int | None = None
) -> list[Step]:
    """The steps of an audit; equal arguments give equal results, whichever steps are run.

    ``n_others`` is the number of columns of all other passive participants, the table's own
    number unless told.
    """
    steps: list[Step] = []
    for level in levels:
        if level is Level.STATISTICS:
            steps += _on_statistics(table, seed)
        else:
            steps += _on_rows(table, level, seed, n_others)
    return steps


def _on_rows(table: AuditTable, level: Level, seed: int, n_others: int | None) -> list[Step]:
    number = list(Level).index(level)

    def rng(step: int) -> np.random.Generator:
        return np.random.default_rng([seed, number, step])

    @cache
    def others() -> Matrix | None:
        if level is not Level.SUM or n_others is None:
            return None
        return simulate_others(table.values, n_others, rng=rng(0))

    @cache
    def view() -> View:
        return look(table.values, table.columns, level=level, rng=rng(1), others=others())

    def moments() -> Result:
        return second_moments_by_halves(
            table.values, table.columns, level=level, rng=rng(2), others=others()
        )

    runs: dict[str, Callable[[], Result]] = {
        "lengths and distances": lambda: disclosure(view()),
        "insiders": lambda: known_pairs(view()),
        "independent components": lambda: independent_columns(view(), seed=seed),
        "second moments": moments,
        "discrete columns": lambda: discrete_columns(view(), seed=seed),
        "re-identification": lambda: reidentify(view(), rng=rng(3)),
        "returning users": lambda: returning_users(view(), single_changes(view(), rng=rng(4))),
    }
    if level is Level.SUM:
        runs["absent users"] = lambda: absent_users(
            view(), rows_alone(view(), rng=rng(5)), seed=seed
        )
    return [Step(title, level, run) for title, run in runs.items()]


def _on_statistics(table: AuditTable, seed: int) -> list[Step]:
    def rng(step: int) -> np.random.Generator:
        return np.random.default_rng([seed, list(Level).index(Level.STATISTICS), step])

    def means() -> Result:
        order = rng(0).permutation(len(table.values))
        here, there = np.array_split(order, 2)
        return released_means(
            table.values[here], table.columns, public=table.values[there], rng=rng(1)
        )

    def asks() -> Result:
        return repeated_asks(table.values, table.columns, rng=rng(2))

    level = Level.STATISTICS
    return [Step("released means", level, means), Step("repeated asks", level, asks)]
