"""The one shape that every attack returns, and how bad it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from vfbandits.core.arrays import Matrix, Vector

RED_ERROR = 0.3
AMBER_ERROR = 0.9
EXACT_ERROR = 1e-6


class Level(StrEnum):
    """What the active participant sees of a participant's rows.

    ``mask``: its masked rows.  ``sum``: only the sum of all passive participants' masked rows.
    ``statistics``: no row at all, but the estimated reward of every arm, as protocols on secret
    shares release it.  ``arm``: the arm of each decision, and by LinUCB the widths.
    """

    MASK = "mask"
    SUM = "sum"
    STATISTICS = "statistics"
    ARM = "arm"


class Severity(StrEnum):
    """How much an attack recovered.  There is no "safe": other attacks may do better."""

    RED = "red"
    AMBER = "amber"
    TRIED = "tried"


@dataclass(frozen=True, slots=True)
class Curve:
    """Lines over one axis: ``lines`` has for each name as many values as ``at``."""

    x: str
    y: str
    at: tuple[float, ...]
    lines: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Result:
    """What one attack recovered at one level.

    Attributes
    ----------
    attack
        Short name.
    title
        What the attacker does, in a few words.
    level
        What the attacker sees.
    needs
        What the attacker must have besides.
    errors
        Root mean square error of each column in its standard deviations: 0 is exact, 1 is what
        guessing the mean gives.
    exact
        Columns recovered without an error.
    facts
        What was found, in sentences; never a feature's value.
    advice
        What would reduce it.
    curve
        Error against what the attacker has, where that can grow.
    certificate
        How the attacker knows, without the truth, that it is right.
    discloses
        Whether the level discloses something even where no column is recovered.
    is_universal
        Whether it opens any table, whatever its data, once its needs are met.
    """

    attack: str
    title: str
    level: Level
    needs: str
    errors: Mapping[str, float]
    exact: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    advice: str = ""
    curve: Curve | None = None
    certificate: str | None = None
    discloses: bool = False
    is_universal: bool = False

    @property
    def best(self) -> float:
        """The smallest error of any column; 1 if there is none."""
        return min(self.errors.values(), default=1.0)

    @property
    def severity(self) -> Severity:
        """Red if some column is recovered to 0.3 standard deviations or exactly."""
        if self.exact or self.best <= RED_ERROR:
            return Severity.RED
        if self.discloses or self.best <= AMBER_ERROR:
            return Severity.AMBER
        return Severity.TRIED

    def worst_columns(self, count: int = 5) -> tuple[tuple[str, float], ...]:
        """The most exposed columns, with their errors, worst first."""
        ranked = sorted(self.errors.items(), key=lambda item: item[1])
        return tuple(item for item in ranked[:count] if item[1] <= AMBER_ERROR)


def column_errors(guess: Matrix, truth: Matrix) -> Vector:
    """Root mean square error of each column, in standard deviations of the true one.

    >>> column_errors(np.zeros((2, 1)), np.array([[-1.0], [1.0]]))
    array([1.])
    """
    spreads = truth.std(axis=0)
    errors = np.sqrt(np.mean((guess - truth) ** 2, axis=0))
    scaled: Vector = np.divide(errors, spreads, out=np.ones_like(errors), where=spreads > 0.0)
    return scaled


def named(errors: Vector, columns: Sequence[str]) -> dict[str, float]:
    """Errors by column."""
    return dict(zip(columns, errors.tolist(), strict=True))


def exact_columns(errors: Mapping[str, float]) -> tuple[str, ...]:
    """Columns whose error is rounding."""
    return tuple(column for column, error in errors.items() if error <= EXACT_ERROR)
