"""Curves of an attack as images, one for light screens and one for dark ones."""

from dataclasses import dataclass
from io import BytesIO

from vfbandits.audit.result import RED_ERROR, Curve

# Okabe and Ito's colours, lightened where a dark page needs it; every line has its own dashes.
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)))
MARKERS = ("o", "s", "^", "D")


@dataclass(frozen=True, slots=True)
class Theme:
    """Colours of one image."""

    ink: str
    grid: str
    lines: tuple[str, ...]


LIGHT = Theme("#1b1f24", "#d8dee4", ("#0072B2", "#D55E00", "#009E73", "#CC79A7"))
DARK = Theme("#e3e8ee", "#323a44", ("#56B4E9", "#E69F00", "#2fc79b", "#e3a5c7"))


def draw(curve: Curve, theme: Theme) -> bytes:
    """A PNG without a background that can be read on a phone; the same bytes for the same curve."""
    from matplotlib.figure import Figure  # noqa: PLC0415  (an extra, and slow to import)

    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    panel = figure.subplots()
    panel.patch.set_alpha(0.0)
    figure.patch.set_alpha(0.0)
    for place, (name, values) in enumerate(curve.lines.items()):
        panel.plot(
            curve.at,
            values,
            color=theme.lines[place % len(theme.lines)],
            linestyle=DASHES[place % len(DASHES)],
            marker=MARKERS[place % len(MARKERS)],
            markersize=4.5,
            linewidth=1.8,
            label=name,
        )
    panel.axhline(RED_ERROR, color=theme.ink, linewidth=0.8, linestyle=":")
    panel.set_ylim(bottom=0.0)
    panel.set_xlabel(curve.x, color=theme.ink)
    panel.set_ylabel(curve.y, color=theme.ink)
    panel.tick_params(colors=theme.ink)
    panel.grid(visible=True, color=theme.grid, linewidth=0.8)
    panel.set_axisbelow(True)
    panel.spines[["top", "right"]].set_visible(False)
    for side in ("left", "bottom"):
        panel.spines[side].set_color(theme.ink)
    legend = panel.legend(frameon=False, fontsize=9)
    for text in legend.get_texts():
        text.set_color(theme.ink)
    file = BytesIO()
    figure.savefig(file, format="png", dpi=180, metadata={"Software": None})
    return file.getvalue()
