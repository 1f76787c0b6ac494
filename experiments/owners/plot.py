"""Relative CTR against the number of participants, a panel for each data set."""

import math

import numpy as np
from matplotlib.figure import Figure

from vfbandits.reproduce.config import whole_numbers, words
from vfbandits.reproduce.curves import dress
from vfbandits.reproduce.drawing import Drawing
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.simulate.plot import LineStyle, draw_spread, spread_words

STYLES = {"linucb": ("LinUCB", "#0072B2", "o"), "lints": ("LinTS", "#D55E00", "s")}
COLUMNS = 3


def draw(rows: list[Row], config: Settings) -> list[Drawing]:
    """All data sets that were played, in one image."""
    there = [name for name in words(config, "sets") if any(row["set"] == name for row in rows)]
    lines = math.ceil(len(there) / COLUMNS)
    canvas = Figure(figsize=(3.8 * min(COLUMNS, len(there)), 3.2 * lines), layout="constrained")
    panels = canvas.subplots(lines, min(COLUMNS, len(there)), squeeze=False).ravel()
    for panel, name in zip(panels, there, strict=False):
        counts = sorted({int(str(row["owners"])) for row in rows if row["set"] == name})
        for policy, (label, colour, marker) in STYLES.items():
            values = np.array([_values(rows, name, policy, count) for count in counts])
            draw_spread(panel, np.array(counts), values.T, LineStyle(colour, "-"), -np.inf)
            panel.plot(counts, values.mean(axis=1), color=colour, marker=marker, label=label)
        dress(panel, name.replace("_", " "), "participants", "relative CTR")
        panel.set_xticks(counts)
        panel.set_ylim(bottom=0.0)
        panel.legend(frameon=False, loc="lower right")
    for panel in panels[len(there) :]:
        panel.set_visible(False)
    caption = (
        "Relative CTR (mean reward over that of uniform random play) as owners join one at a "
        f"time, behind blockwise masks; {spread_words(len(whole_numbers(config, 'seeds')))}, each "
        "of which shuffles the rows."
    )
    return [Drawing("owners", caption, canvas)]


def _values(rows: list[Row], name: str, policy: str, count: int) -> list[float]:
    return [
        float(str(row["relative_ctr"]))
        for row in rows
        if (row["set"], row["policy"], row["owners"]) == (name, policy, count)
    ]
