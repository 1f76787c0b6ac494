"""A tuning's files: rows for programs, a picture for people."""

import csv
from pathlib import Path
from typing import TYPE_CHECKING

from vfbandits.evaluate.plot import DOUBTED, LOGGED, TRUSTED
from vfbandits.evaluate.tune import Rated, Tuning
from vfbandits.extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEFT_OUT = "0.65"
FIGURES = (
    *("value", "low", "high", "gain", "gain_low", "gain_high", "behind", "behind_low"),
    *("behind_high", "p_value", "in_set", "explores", "effective_size"),
)


def as_record(one: Rated) -> dict[str, object]:
    """A candidate with its figures, as ``--json`` prints it."""
    candidate = one.candidate
    return {
        "candidate": candidate.label,
        "policy": candidate.parameters,
        "floor": candidate.floor,
        "ridge": candidate.ridge,
        "discount": candidate.discount,
        **{name: getattr(one, name) for name in FIGURES},
        "doubts": list(one.doubts),
    }


def write_csv(tuning: Tuning, path: Path) -> None:
    """One row per candidate, the best first; doubts are joined by semicolons."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["candidate", *FIGURES, "doubts"])
        for one in tuning.rated:
            figures = [getattr(one, name) for name in FIGURES]
            writer.writerow([one.candidate.label, *figures, "; ".join(one.doubts)])


def save_plot(tuning: Tuning, path: Path, *, title: str) -> None:
    """Draw to a PNG or SVG file, by the ending of ``path``; the same tuning, the same bytes."""
    figure = draw(tuning, title=title)
    from matplotlib import rc_context  # noqa: PLC0415

    metadata = {"Date": None} if path.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "vfbandits"}):
        figure.savefig(path, dpi=160, metadata=metadata)


def draw(tuning: Tuning, *, title: str) -> "Figure":
    """Two panels, a point and an interval per candidate in each: values, and how far behind."""
    require("matplotlib", extra="experiments", to="plotting")
    from matplotlib.figure import Figure  # noqa: PLC0415  (no pyplot: no window, no global state)

    rated = tuning.rated
    figure = Figure(figsize=(9.0, 1.7 + 0.25 * len(rated)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, one in enumerate(rated):
        colour = (DOUBTED if one.doubts else TRUSTED) if one.in_set else LEFT_OUT
        face = "white" if one.doubts else colour
        for panel, (low, middle, high) in (
            (left, (one.low, one.value, one.high)),
            (right, (one.behind_low, one.behind, one.behind_high)),
        ):
            if low is not None and high is not None:
                panel.plot([low, high], [place, place], color=colour, linewidth=2.0)
            panel.plot([middle], [place], "o", color=colour, markerfacecolor=face, markersize=5)
    left.axvline(tuning.logging_value, color=LOGGED, linestyle=":")
    left.set_yticks(range(len(rated)), [one.candidate.label for one in rated], fontsize=8)
    for label, one in zip(left.get_yticklabels(), rated, strict=True):
        label.set_color("black" if one.in_set else "0.5")
    left.invert_yaxis()
    left.set_xlabel("reward per round; dotted: the log", fontsize=9)
    doubted = "; open: doubted" if any(one.doubts for one in rated) else ""
    right.set_xlabel(f"behind the highest; grey: not the best{doubted}", fontsize=9)
    for panel in (left, right):
        panel.tick_params(axis="x", labelsize=8)
        panel.grid(visible=True, axis="x", color="0.9", linewidth=0.8)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(title.replace("$", r"\$"), fontsize=10)
    return figure
