"""Regret curves with confidence bands, drawn as the paper draws them: regret on a log scale.

With few seeds a confidence interval is wider than the plot (with two it is 12.7 standard errors to
either side), and so the runs themselves are drawn instead, as thin lines.


Colours are Okabe and Ito's, which colour-blind readers can tell apart, and every line has a dash
pattern of its own, for print.  A masked bandit decides as its central twin does, so the two lines
coincide: the central one is wide and light, the masked one thin, dashed and on top.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import SettingError
from vfbandits.extras import require
from vfbandits.simulate.contestant import Contestant
from vfbandits.simulate.result import StudyResult, half_widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
MIN_SEEDS_OF_BAND = 5

Line: TypeAlias = tuple[Contestant, Matrix]
Dashes: TypeAlias = str | tuple[float, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class LineStyle:
    """How one line looks; higher layers lie on top."""

    colour: str
    dashes: Dashes
    width: float = 2.0
    layer: int = 3


CENTRAL = LineStyle("#56B4E9", "-", width=4.5, layer=2)
FEDERATED = LineStyle("#000000", (0, (4, 3)), width=1.5, layer=4)
_COLOURS = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#0072B2")
_DASHES: tuple[Dashes, ...] = (
    (0, (1, 1.2)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (3, 1, 1, 1, 1, 1)),
    (0, (9, 2)),
    "-",
)


def save_plot(result: StudyResult, path: Path) -> None:
    """Draw ``result`` to a PNG or SVG file, by the ending of ``path``."""
    save_figure(draw(result), path)


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG or SVG, by the ending of ``path``."""
    if path.suffix.removeprefix(".") not in FORMATS:
        raise SettingError(f"a plot's path must end in .png or .svg, got {path.name!r}")
    from matplotlib import rc_context  # noqa: PLC0415

    # No date and no random ids: the same study gives the same bytes.
    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "vfbandits"}):
        figure.savefig(path, dpi=160, metadata=metadata)


def draw(result: StudyResult) -> "Figure":
    """One panel for each kind of policy, all with the same axes."""
    require("matplotlib", extra="experiments", to="plotting")
    from matplotlib.figure import Figure  # noqa: PLC0415  (no pyplot: no window, no global state)

    families: dict[str, list[Line]] = {}
    for contestant, curves in zip(result.study.contestants, result.curves, strict=True):
        families.setdefault(contestant.family, []).append((contestant, curves))
    longest = max(len(lines) for lines in families.values())
    size = (1.2 + 4.6 * len(families), 4.4 + 0.13 * longest)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(families), sharey=True, squeeze=False)[0]
    smallest = _smallest_positive(result)
    for panel, (family, lines) in zip(panels, families.items(), strict=True):
        for (contestant, curves), style in zip(lines, styles([c for c, _ in lines]), strict=True):
            _draw_line(panel, result.rounds, curves, style, smallest)
            panel.lines[-1].set_label(contestant.name.replace("$", r"\$"))
        _dress(panel, family, result.study.horizon)
    panels[0].set_yscale("log")
    panels[0].yaxis.set_major_formatter("{x:g}")
    panels[0].set_ylabel("cumulative regret (log scale)")
    figure.suptitle(_title(result), fontsize=11)
    return figure


def styles(contestants: list[Contestant]) -> list[LineStyle]:
    """A style for each line of a panel, no two alike up to 25 of them."""
    taken: list[LineStyle] = []
    others = 0
    for contestant in contestants:
        if contestant.federated and FEDERATED not in taken:
            taken.append(FEDERATED)
        elif not contestant.federated and contestant.features == "all" and CENTRAL not in taken:
            taken.append(CENTRAL)
        else:
            turn, place = divmod(others, len(_COLOURS))
            taken.append(LineStyle(_COLOURS[place], _DASHES[(place + turn) % len(_DASHES)]))
            others += 1
    return taken


def _draw_line(
    panel: "Axes", rounds: NDArray[np.intp], curves: Matrix, style: LineStyle, smallest: float
) -> None:
    """The spread of the seeds, and on top of it their mean."""
    draw_spread(panel, rounds, curves, style, smallest)
    panel.plot(
        rounds,
        curves.mean(axis=0),
        color=style.colour,
        linestyle=style.dashes,
        linewidth=style.width,
        zorder=style.layer,
    )


def draw_spread(
    panel: "Axes",
    rounds: NDArray[np.intp] | Vector,
    curves: Matrix,
    style: LineStyle,
    smallest: float,
) -> None:
    """How far the seeds, rows of ``curves``, lie apart; nothing is drawn below ``smallest``.

    The band of a 95 % confidence interval of their mean, or each run if they are few.
    """
    halves = half_widths(curves)
    if halves is None:
        return
    if len(curves) < MIN_SEEDS_OF_BAND:
        for run in curves:
            panel.plot(rounds, run, color=style.colour, alpha=0.45, linewidth=0.7, zorder=1)
        return
    mean = curves.mean(axis=0)
    low = np.maximum(mean - halves, smallest)
    panel.fill_between(
        rounds, low, mean + halves, color=style.colour, alpha=0.18, linewidth=0, zorder=1
    )


def spread_words(n_seeds: int) -> str:
    """What a plot shows besides the mean, for its title.

    >>> spread_words(5), spread_words(2), spread_words(1)
    ('mean and 95 % interval of 5 seeds', 'mean and runs of 2 seeds', '')
    """
    if n_seeds < 2:
        return ""
    what = "95 % interval" if n_seeds >= MIN_SEEDS_OF_BAND else "runs"
    return f"mean and {what} of {n_seeds} seeds"


def _dress(panel: "Axes", family: str, horizon: int) -> None:
    panel.set_xlim(0, horizon)
    panel.set_title(family, fontsize=10)
    panel.set_xlabel("round")
    panel.grid(visible=True, which="major", color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    widest = max(len(str(line.get_label())) for line in panel.lines)
    # Below the panel, where it cannot cover a line.
    panel.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.14),
        ncols=2 if widest <= 25 else 1,
        frameon=False,
        handlelength=3.6,
    )


def _smallest_positive(result: StudyResult) -> float:
    """Where bands that reach zero or less end, since a log scale has no zero."""
    values = np.concatenate([curves.mean(axis=0) for curves in result.curves])
    positive = values[values > 0.0]
    return float(positive.min()) / 2.0 if positive.size else 1e-3


def _title(result: StudyResult) -> str:
    study = result.study
    spread = spread_words(study.n_seeds)
    band = f", {spread}" if spread else ""
    size = f"{study.world.split.dim} features of {len(study.world.widths)} participants"
    return f"Cumulative regret{band}\n{size}, {study.world.n_arms} arms"
