"""What a study found: curves, a table with confidence intervals, rows for a file."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.simulate.regret import kept_rounds
from vfbandits.simulate.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CSV_HEADER = ("contestant", "seed", "round", "regret")


@dataclass(frozen=True, slots=True)
class Standing:
    """One contestant's line of the table.

    ``half_width`` is of a 95 % confidence interval for the mean; None with one seed, which says
    nothing about spread.  ``ratio`` is to the mean regret of the first contestant with the same
    kind of policy; None if that one had no regret at all.  ``reward`` is the mean of a round, where
    the best arm gives the same in every round; None elsewhere.
    """

    contestant: str
    mean: float
    half_width: float | None
    ratio: float | None
    reward: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StudyResult:
    """``curves[i]`` is the i-th contestant's cumulative regret, (n_seeds, n_kept)."""

    study: Study
    curves: tuple[Matrix, ...] = field(repr=False)

    @property
    def rounds(self) -> NDArray[np.intp]:
        """Round numbers, from 1, of the curves' columns."""
        return kept_rounds(self.study.horizon)

    def table(self) -> list[Standing]:
        """Final regrets, in the contestants' order."""
        finals = [curve[:, -1:] for curve in self.curves]
        means = [float(final.mean()) for final in finals]
        best, horizon = self.study.world.best_reward, self.study.horizon
        first: dict[str, float] = {}
        standings = []
        for contestant, mean, final in zip(self.study.contestants, means, finals, strict=True):
            spread = half_widths(final)
            against = first.setdefault(contestant.family, mean)
            standings.append(
                Standing(
                    contestant.name,
                    mean,
                    None if spread is None else float(spread[0]),
                    mean / against if against > 0.0 else None,
                    None if best is None else best - mean / horizon,
                )
            )
        return standings

    def plot(self) -> "Figure":
        """The curves, as a figure of matplotlib."""
        from vfbandits.simulate.plot import draw  # noqa: PLC0415  (an extra)

        return draw(self)

    def __str__(self) -> str:
        """The table in Markdown."""
        from vfbandits.simulate.output import markdown  # noqa: PLC0415  (it shows results)

        return markdown(self)

    def _repr_html_(self) -> str:
        from vfbandits.simulate.output import html  # noqa: PLC0415

        return html(self)

    def rows(self) -> Iterator[tuple[str, int, int, float]]:
        """(contestant, seed, round, regret), as ``CSV_HEADER`` names them."""
        rounds = self.rounds.tolist()
        for contestant, curves in zip(self.study.contestants, self.curves, strict=True):
            for seed, curve in zip(self.study.seeds, curves, strict=True):
                for number, regret in zip(rounds, curve.tolist(), strict=True):
                    yield contestant.name, seed, number, regret


def half_widths(samples: Matrix) -> Vector | None:
    """Half the width of a 95 % confidence interval for each column's mean, by Student's t.

    Rows are independent repetitions; None if there is only one.
    """
    n = len(samples)
    if n < 2:
        return None
    halves: Vector = stdtrit(n - 1, 0.975) * samples.std(axis=0, ddof=1) / np.sqrt(n)
    return halves
