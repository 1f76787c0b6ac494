"""Fig. 6a and 6b, and how many times larger a partial bandit's regret is, round by round."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vfbandits.reproduce.config import number, numbers, whole, whole_numbers
from vfbandits.reproduce.curves import Curves, curves_of, draw_band, dress
from vfbandits.reproduce.drawing import Drawing
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.simulate.plot import CENTRAL, LineStyle, spread_words

NAMES = {"linucb": ("LinUCB", "VFUCB"), "lints": ("LinTS", "VFTS")}
PARTIAL = (LineStyle("#D55E00", (0, (1, 1.2))), LineStyle("#009E73", (0, (6, 1.5, 1, 1.5))))
READINGS = {"deviation": "standard deviation", "variance": "variance"}


def draw(rows: list[Row], config: Settings) -> list[Drawing]:
    """Regret as the paper draws it, up to its horizon; then ratios for both readings."""
    return [
        Drawing(
            "participants",
            "Cumulative regret with 20 %, 80 % and all of the features, log scale, 0.05 read as "
            f"standard deviation; {spread_words(len(whole_numbers(config, 'seeds')))}.",
            _regrets(rows, config),
        ),
        Drawing(
            "ratios",
            "How many times larger the regret of a partial bandit is, over rounds, with 0.05 read "
            "as standard deviation and as variance. The dotted lines are the paper's 10× and its "
            "5000 rounds.",
            _ratios(rows, config),
        ),
    ]


def _regrets(rows: list[Row], config: Settings) -> Figure:
    canvas = Figure(figsize=(11, 4.4), layout="constrained")
    end = min(whole(config, "claim_horizon"), whole(config, "horizon"))
    panels = canvas.subplots(1, 2, sharey=True)
    for panel, (policy, (name, masked)) in zip(panels, NAMES.items(), strict=True):
        panel.set_yscale("log")
        draw_band(panel, _curves(rows, policy, "deviation", "full", end), CENTRAL, f"{masked}, all")
        for ratio, style in zip(numbers(config, "ratios"), PARTIAL, strict=False):
            curves = _curves(rows, policy, "deviation", str(ratio), end)
            draw_band(panel, curves, style, f"partial {name} {ratio:g}")
        dress(panel, name, "round", "cumulative regret")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.legend(frameon=False, handlelength=3.6)
    return canvas


def _ratios(rows: list[Row], config: Settings) -> Figure:
    canvas = Figure(figsize=(11, 4.4), layout="constrained")
    panels = canvas.subplots(1, 2, sharey=True)
    for panel, (reading, words) in zip(panels, READINGS.items(), strict=True):
        _draw_ratios(panel, rows, config, reading)
        dress(panel, f"0.05 as {words}", "round (log scale)", "regret, relative to all features")
        panel.legend(frameon=False, handlelength=3.6, ncols=2, fontsize=8)
    return canvas


def _draw_ratios(panel: Axes, rows: list[Row], config: Settings, reading: str) -> None:
    end = whole(config, "horizon")
    for policy, (name, _) in NAMES.items():
        full = _curves(rows, policy, reading, "full", end)
        for ratio, style in zip(numbers(config, "ratios"), PARTIAL, strict=False):
            partial = _curves(rows, policy, reading, str(ratio), end)
            panel.plot(
                full.rounds,
                partial.mean / full.mean,
                color=style.colour,
                linestyle="-" if policy == "linucb" else "--",
                label=f"{name} {ratio:g}",
            )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.yaxis.set_major_formatter("{x:g}")
    panel.axhline(number(config, "wanted_ratio"), color="0.5", linestyle=":", linewidth=1)
    panel.axvline(whole(config, "claim_horizon"), color="0.5", linestyle=":", linewidth=1)


def _curves(rows: list[Row], policy: str, reading: str, contestant: str, end: int) -> Curves:
    curves = curves_of(rows, "regret", policy=policy, reading=reading, contestant=contestant)
    kept = curves.rounds <= end
    return Curves(curves.rounds[kept], curves.values[:, kept])
