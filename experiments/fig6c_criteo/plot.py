"""Fig. 6c: relative CTR over the share of the user features."""

import numpy as np
from matplotlib.figure import Figure

from vfbandits.reproduce.config import numbers, whole_numbers, words
from vfbandits.reproduce.curves import dress
from vfbandits.reproduce.drawing import Drawing
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.simulate.plot import MIN_SEEDS_OF_BAND, spread_words
from vfbandits.simulate.result import half_widths

COLOURS = {"addition": "#D55E00", "product": "#0072B2"}


def draw(rows: list[Row], config: Settings) -> list[Drawing]:
    """One panel for the simulator and, where there is one, one for the file."""
    sources = sorted({str(row["source"]) for row in rows}, reverse=True)
    canvas = Figure(figsize=(5.5 * len(sources), 4.2), layout="constrained")
    panels = canvas.subplots(1, len(sources), squeeze=False, sharey=True)[0]
    ratios = numbers(config, "ratios")
    for panel, source in zip(panels, sources, strict=True):
        for context in words(config, "contexts"):
            values = np.array([_values(rows, source, context, ratio) for ratio in ratios])
            few = values.shape[1] < MIN_SEEDS_OF_BAND
            halves = None if few else half_widths(values.T)
            if few:
                panel.plot(ratios, values, ".", color=COLOURS[context], alpha=0.45)
            panel.errorbar(
                ratios,
                values.mean(axis=1),
                yerr=halves,
                color=COLOURS[context],
                marker="o",
                capsize=3,
                label=f"outer {context}",
            )
        best = [float(str(row["best"])) for row in rows if row["source"] == source and row["best"]]
        if best:
            panel.axhline(float(np.mean(best)), color="0.4", linestyle=":", label="best possible")
        panel.axhline(1.0, color="0.7", linewidth=1)
        dress(panel, source, "share of the user features", "relative CTR")
        panel.legend(frameon=False)
    caption = (
        "Relative CTR of LinUCB against a random policy, over the share of user features that it "
        f"gets; {spread_words(len(whole_numbers(config, 'seeds')))}. Outer "
        "addition is the paper's context, outer product is what personalises."
    )
    return [Drawing("criteo", caption, canvas)]


def _values(rows: list[Row], source: str, context: str, ratio: float) -> list[float]:
    return [
        float(str(row["relative_ctr"]))
        for row in rows
        if (row["source"], row["context"], row["ratio"]) == (source, context, ratio)
    ]
