"""Curves over rounds, one for each seed, out of rows and onto a canvas."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import SettingError
from vfbandits.reproduce.config import whole
from vfbandits.reproduce.rows import Row, Settings, Value
from vfbandits.simulate.plot import LineStyle, draw_spread
from vfbandits.simulate.result import half_widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Values (n_seeds, n_rounds) at ``rounds``, seeds in order."""

    rounds: Vector
    values: Matrix = field(repr=False)

    @property
    def mean(self) -> Vector:
        """Over the seeds."""
        mean: Vector = self.values.mean(axis=0)
        return mean

    def at(self, number: int) -> Vector:
        """Each seed's value after round ``number``, which must be a kept one."""
        (places,) = np.nonzero(self.rounds == number)
        if not places.size:
            raise SettingError(f"round must be one that was kept, got {number}")
        return self.values[:, places[0]]


def kept_rounds(horizon: int, count: int, *others: int) -> NDArray[np.intp]:
    """Round numbers from 1 at which curves are kept: about ``count``, evenly, the last, ``others``.

    >>> kept_rounds(10, 3, 5)
    array([ 3,  5,  6,  9, 10])
    """
    step = max(1, horizon // count)
    more = [number for number in (*others, horizon) if number <= horizon]
    return np.union1d(np.arange(step, horizon + 1, step), more).astype(np.intp)


def curves_of(rows: list[Row], key: str, **chosen: Value) -> Curves:
    """The curves of ``key`` in those rows that have it and what is ``chosen``."""
    picked = [row for row in rows if key in row and all(row.get(k) == v for k, v in chosen.items())]
    if not picked:
        raise SettingError(f"rows must hold some with {chosen}, got none")
    by_seed: dict[float, dict[float, float]] = {}
    for row in picked:
        by_seed.setdefault(value(row, "seed"), {})[value(row, "round")] = value(row, key)
    rounds = sorted(next(iter(by_seed.values())))
    values = [[by_seed[seed][r] for r in rounds] for seed in sorted(by_seed)]
    return Curves(np.array(rounds), np.array(values))


def value(row: Row, key: str) -> float:
    """A number of a row."""
    found = row.get(key)
    if not isinstance(found, int | float):
        raise SettingError(f"{key} must be a number in every row, got {found!r}")
    return float(found)


def spread(values: Vector) -> str:
    """Mean over seeds, with half a 95 % confidence interval where there are several.

    >>> spread(np.array([1.0, 2.0, 3.0])), spread(np.array([2.0]))
    ('2.00 ± 2.48', '2.00')
    """
    halves = half_widths(values[:, None])
    mean = f"{_short(float(values.mean()))}"
    return mean if halves is None else f"{mean} ± {_short(float(halves[0]))}"


def _short(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}" if value < 1 else f"{value:.2f}"


def draw_band(panel: "Axes", curves: Curves, style: LineStyle, label: str) -> None:
    """Mean of the seeds, and the band of its 95 % confidence interval or, if few, the runs."""
    mean = curves.mean
    positive = mean[mean > 0.0]
    # A log scale has no zero: bands that reach it end at half the smallest mean.
    is_log = panel.get_yscale() == "log" and positive.size
    least = float(positive.min()) / 2.0 if is_log else -np.inf
    draw_spread(panel, curves.rounds, curves.values, style, least)
    panel.plot(
        curves.rounds,
        mean,
        color=style.colour,
        linestyle=style.dashes,
        linewidth=style.width,
        zorder=style.layer,
        label=label,
    )


def dress(panel: "Axes", title: str, xlabel: str, ylabel: str) -> None:
    """Title, names of the axes, and a quiet grid."""
    panel.set_title(title, fontsize=10)
    panel.set_xlabel(xlabel)
    panel.set_ylabel(ylabel)
    panel.grid(visible=True, which="major", color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)


def horizon_gap(config: Settings) -> str:
    """Why a claim about the paper's horizon cannot be judged; empty if it can.

    >>> horizon_gap({"horizon": 200, "claim_horizon": 5000})
    'this run has 200 rounds; the claim is about 5000'
    """
    horizon, wanted = whole(config, "horizon"), whole(config, "claim_horizon")
    if horizon >= wanted:
        return ""
    return f"this run has {horizon} rounds; the claim is about {wanted}"
