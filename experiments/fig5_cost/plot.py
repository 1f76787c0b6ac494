"""Fig. 5: the paper's model above, what was measured below."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vfbandits.reproduce.config import whole, whole_numbers
from vfbandits.reproduce.curves import dress, value
from vfbandits.reproduce.drawing import Drawing
from vfbandits.reproduce.rows import Row, Settings

from . import model
from .evidence import MASKS, NAMES, SENT, time_ratios

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
DASHES = {"central": "-", "dense": "--", "blockwise": ":"}


def draw(rows: list[Row], config: Settings) -> list[Drawing]:
    """Model and measurement in six panels, then the times themselves."""
    canvas = Figure(figsize=(13, 8.4), layout="constrained")
    panels = canvas.subplots(2, 3)
    for panel, policy in zip(panels[0], NAMES, strict=False):
        _model(panel, rows, config, policy)
    _model_bytes(panels[0, 2], config)
    for panel, policy in zip(panels[1], NAMES, strict=False):
        _measured(panel, rows, config, policy)
    _sent(panels[1, 2], rows, config)
    return [
        Drawing(
            "cost",
            "Above, the paper's model: relative operations of VFUCB and VFTS, and gigabytes in "
            f"{config['horizon']} steps. Below, measured: relative CPU time of a round, and bytes "
            "that passive participants send for a decision.",
            canvas,
        ),
        Drawing(
            "time",
            "CPU time of a round (decide and reward, all participants' masking included), for "
            "each number of arms K. LinTS draws the K scores jointly where K ≤ d, and one "
            "parameter where K > d, which is far cheaper: hence the bend.",
            _times(rows, config),
        ),
    ]


def _model(panel: Axes, rows: list[Row], config: Settings, policy: str) -> None:
    for colour, n_arms in zip(COLOURS, whole_numbers(config, "model_arms"), strict=False):
        mine = [
            row
            for row in rows
            if row["kind"] == "model" and row["policy"] == policy and row["arms"] == n_arms
        ]
        dims, ratios = [value(r, "dim") for r in mine], [value(r, "ratio") for r in mine]
        panel.plot(dims, ratios, color=colour, marker=".", label=f"K = {n_arms}")
    plain, masked = NAMES[policy]
    panel.set_xscale("log")
    panel.set_ylim(bottom=1.0)
    dress(panel, f"Model: {masked} / {plain}", "d", "relative operations")
    panel.legend(frameon=False)


def _model_bytes(panel: Axes, config: Settings) -> None:
    dims = whole_numbers(config, "model_dims")
    participants, horizon = whole(config, "participants"), whole(config, "horizon")
    for colour, n_arms in zip(COLOURS, whole_numbers(config, "model_arms"), strict=False):
        sizes = [model.bytes_in_all(dim, n_arms, participants, horizon) / 1e9 for dim in dims]
        panel.plot(dims, sizes, color=colour, marker=".", label=f"K = {n_arms}")
    dress(panel, f"Model: messages of {horizon} steps, M = {participants}", "d", "GB")
    panel.legend(frameon=False)


def _measured(panel: Axes, rows: list[Row], config: Settings, policy: str) -> None:
    for mask in MASKS:
        ratios = time_ratios(rows, policy, mask)
        for colour, n_arms in zip(COLOURS, whole_numbers(config, "arms"), strict=False):
            dims = [dim for dim, arms in ratios if arms == n_arms]
            panel.plot(
                dims,
                [ratios[dim, n_arms] for dim in dims],
                color=colour,
                linestyle=DASHES[mask],
                marker=".",
                label=f"K = {n_arms}, {mask}",
            )
    plain, masked = NAMES[policy]
    panel.set_xscale("log")
    panel.axhline(1.0, color="0.6", linewidth=0.8)
    panel.set_ylim(0.0, 1.25 * panel.get_ylim()[1])  # room for the legend
    dress(panel, f"Measured: {masked} / {plain}", "d", "relative CPU time of a round")
    panel.legend(frameon=False, fontsize=7, ncols=2, handlelength=3.6, loc="upper left")


def _sent(panel: Axes, rows: list[Row], config: Settings) -> None:
    n_arms, participants = (
        max(whole_numbers(config, "arms")),
        max(whole_numbers(config, "sent_participants")),
    )
    for colour, (mask, layout) in zip(COLOURS, SENT, strict=False):
        mine = [
            row
            for row in rows
            if row["kind"] == "bytes"
            and (row["mask"], row["layout"]) == (mask, layout)
            and (row["arms"], row["participants"]) == (n_arms, participants)
        ]
        panel.plot(
            [value(row, "dim") for row in mine],
            [value(row, "bytes") / 1e6 for row in mine],
            color=colour,
            linestyle=DASHES[mask],
            marker=".",
            label=f"{mask}, {layout}",
        )
    panel.set_xscale("log")
    panel.set_yscale("log")
    title = f"Measured: one decision, K = {n_arms}, M = {participants}"
    dress(panel, title, "features of all participants", "MB")
    panel.margins(y=0.2)
    panel.legend(frameon=False, fontsize=8, ncols=2, handlelength=3.6, loc="upper left")


def _times(rows: list[Row], config: Settings) -> Figure:
    canvas = Figure(figsize=(11, 4.6), layout="constrained")
    panels = canvas.subplots(1, 2, sharey=True)
    for panel, (policy, (plain, masked)) in zip(panels, NAMES.items(), strict=True):
        for variant, dashes in DASHES.items():
            for colour, n_arms in zip(COLOURS, whole_numbers(config, "arms"), strict=False):
                times = _times_of(rows, config, policy, variant, n_arms)
                name = plain if variant == "central" else f"{masked} {variant}"
                panel.plot(
                    list(times),
                    [1e3 * seconds for seconds in times.values()],
                    color=colour,
                    linestyle=dashes,
                    label=f"{name}, K = {n_arms}",
                )
        panel.set_xscale("log")
        panel.set_yscale("log")
        dress(panel, plain, "d", "ms of CPU time")
        panel.legend(frameon=False, fontsize=7, handlelength=3.6)
    return canvas


def _times_of(
    rows: list[Row], config: Settings, policy: str, variant: str, n_arms: int
) -> dict[float, float]:
    mine = [
        row
        for row in rows
        if row["kind"] == "time"
        and (row["policy"], row["variant"]) == (policy, variant)
        and (row["arms"], row["participants"]) == (n_arms, config["participants"])
    ]
    return {value(row, "dim"): value(row, "cpu_s") for row in mine}
