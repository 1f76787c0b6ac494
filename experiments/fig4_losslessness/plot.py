"""Fig. 4: regret on a log scale, and how far estimates are from the central one."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vfbandits.reproduce.config import whole_numbers
from vfbandits.reproduce.curves import Curves, curves_of, draw_band, dress
from vfbandits.reproduce.drawing import Drawing
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.simulate.plot import CENTRAL, FEDERATED, LineStyle, spread_words

NAMES = {"linucb": ("LinUCB", "VFUCB"), "lints": ("LinTS", "VFTS")}
STYLES = {
    "central": CENTRAL,
    "dense": FEDERATED,
    "blockwise": LineStyle("#E69F00", (0, (1, 2)), width=2.2, layer=5),
    "partial": LineStyle("#D55E00", "-"),
}


def draw(rows: list[Row], config: Settings) -> list[Drawing]:
    """Four panels as in the paper; the lower two on a log scale, where its lines would be 0."""
    canvas = Figure(figsize=(11, 8.2), layout="constrained")
    panels = canvas.subplots(2, 2)
    for line, policy in zip(panels.T, NAMES, strict=True):
        _regret(line[0], rows, policy)
        _norms(line[1], rows, policy)
    n_seeds = len(whole_numbers(config, "seeds"))
    canvas.suptitle(
        f"d = {config['dim']}, K = {config['arms']}, T = {config['horizon']}: "
        f"{spread_words(n_seeds)}",
        fontsize=11,
    )
    caption = (
        "Above: cumulative regret, log scale; the lines of central and masked bandits coincide. "
        "Below: distance of ‖θ̂‖ from the central one's, log scale; masked ones differ by rounding."
    )
    return [Drawing("losslessness", caption, canvas)]


def _regret(panel: Axes, rows: list[Row], policy: str) -> None:
    panel.set_yscale("log")
    for contestant, style in STYLES.items():
        if _has(rows, contestant):
            curves = curves_of(rows, "regret", policy=policy, contestant=contestant)
            draw_band(panel, curves, style, _label(policy, contestant))
    panel.yaxis.set_major_formatter("{x:g}")
    dress(panel, NAMES[policy][0], "round", "cumulative regret")
    panel.legend(frameon=False, handlelength=3.6)


def _norms(panel: Axes, rows: list[Row], policy: str) -> None:
    panel.set_yscale("log")
    for contestant, style in STYLES.items():
        if contestant != "central" and _has(rows, contestant):
            gap = curves_of(rows, "norm_gap", policy=policy, contestant=contestant)
            # An exact zero has no place on a log scale: one rounding error stands for it.
            size = Curves(gap.rounds, np.maximum(np.abs(gap.values), np.finfo(float).eps / 2))
            draw_band(panel, size, style, _label(policy, contestant))
    dress(panel, f"{NAMES[policy][0]}: estimator", "round", "| ‖θ̂‖ − ‖θ̂ central‖ |")
    panel.legend(frameon=False, handlelength=3.6, loc="center right")


def _label(policy: str, contestant: str) -> str:
    plain, masked = NAMES[policy]
    if contestant in ("dense", "blockwise"):
        return f"{masked}, {contestant} mask"
    return f"{contestant} {plain}"


def _has(rows: list[Row], contestant: str) -> bool:
    return any(row["contestant"] == contestant for row in rows)
