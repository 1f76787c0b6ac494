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
from vfbandits.audit.planted import planted_users
from vfbandits.audit.reidentify import reidentify
from vfbandits.audit.released_means import released_means
from vfbandits.audit.repeated_asks import repeated_asks
from vfbandits.audit.repeated_widths import repeated_widths
from vfbandits.audit.result import Level, Result
from vfbandits.audit.returning import returning_users, single_changes
from vfbandits.audit.shown_arms import shown_arms
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

    ``n_others`` is the number of columns of all other passive participants, by default the
    table's own number.
    """
    steps: list[Step] = []
    for level in levels:
        if level is Level.STATISTICS:
            steps += _on_statistics(table, seed)
        elif level is Level.ARM:
            steps += _on_arms(table, seed)
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
    level = Level.STATISTICS

    def rng(step: int) -> np.random.Generator:
        return np.random.default_rng([seed, list(Level).index(level), step])

    here, there = _halves(table, rng(0))

    def means() -> Result:
        return released_means(here, table.columns, public=there, rng=rng(1))

    def asks() -> Result:
        return repeated_asks(table.values, table.columns, rng=rng(2))

    def planted() -> Result:
        return planted_users(here, table.columns, level=level, public=there, rng=rng(3))

    return [
        Step("released means", level, means),
        Step("repeated asks", level, asks),
        Step("planted users", level, planted),
    ]


def _on_arms(table: AuditTable, seed: int) -> list[Step]:
    level = Level.ARM

    def rng(step: int) -> np.random.Generator:
        return np.random.default_rng([seed, list(Level).index(level), step])

    here, there = _halves(table, rng(0))

    def planted() -> Result:
        return planted_users(here, table.columns, level=level, public=there, rng=rng(1))

    def arms() -> Result:
        return shown_arms(here, table.columns, public=there, rng=rng(2))

    def widths() -> Result:
        return repeated_widths(table.values, table.columns, rng=rng(3))

    return [
        Step("planted users", level, planted),
        Step("shown arms", level, arms),
        Step("repeated widths", level, widths),
    ]


def _halves(table: AuditTable, rng: np.random.Generator) -> tuple[Matrix, Matrix]:
    """Rows that are attacked, and those of other people."""
    here, there = np.array_split(rng.permutation(len(table.values)), 2)
    return table.values[here], table.values[there]
