"""Estimates with their intervals, beside the logging policy's own value."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vfbandits.errors import SettingError
from vfbandits.evaluate.evaluation import Estimate
from vfbandits.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
TRUSTED, DOUBTED, LOGGED = "#0072B2", "#E69F00", "0.4"


def save_plot(estimates: Sequence[Estimate], path: Path, *, title: str) -> None:
    """Draw to a PNG or SVG file, by the ending of ``path``; the same estimates, the same bytes."""
    if path.suffix.removeprefix(".") not in FORMATS:
        raise SettingError(f"a plot's path must end in .png or .svg, got {path.name!r}")
    figure = draw(estimates, title=title)
    from matplotlib import rc_context  # noqa: PLC0415

    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "vfbandits"}):
        figure.savefig(path, dpi=160, metadata=metadata)


def draw(estimates: Sequence[Estimate], *, title: str) -> "Figure":
    """A point and an interval per estimator; open points are doubted."""
    require("matplotlib", extra="experiments", to="plotting")
    from matplotlib.figure import Figure  # noqa: PLC0415  (no pyplot: no window, no global state)

    figure = Figure(figsize=(7.0, 1.6 + 0.42 * len(estimates)), layout="constrained")
    panel = figure.subplots()
    for place, one in enumerate(estimates):
        panel.plot([one.logging_value] * 2, [place - 0.4, place + 0.4], color=LOGGED, linestyle=":")
        if one.value is None or one.low is None or one.high is None:
            continue
        colour = DOUBTED if one.doubts else TRUSTED
        panel.plot([one.low, one.high], [place, place], color=colour, linewidth=2.0)
        face = "white" if one.doubts else colour
        panel.plot([one.value], [place], "o", color=colour, markerfacecolor=face)
    labels = [f"{one.estimator} ({one.target})" for one in estimates]
    panel.set_yticks(range(len(estimates)), labels)
    panel.invert_yaxis()
    panel.set_xlabel("reward per round; dotted: logging policy; open: doubted, see the table")
    panel.set_title(title.replace("$", r"\$"), fontsize=10)
    panel.grid(visible=True, axis="x", color="0.9", linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    return figure
