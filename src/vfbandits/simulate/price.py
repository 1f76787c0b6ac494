"""The price of noise: final regret against ε, between the central bandit and the active one alone.

The benefit of a federation is what its central bandit loses less than a bandit on the active
participant's own features.  Noise leaves a part of it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vfbandits.core.noise import UNIT
from vfbandits.extras import require
from vfbandits.simulate.contestant import ACTIVE, Contestant
from vfbandits.simulate.plot import CENTRAL, FEDERATED, LineStyle, save_figure
from vfbandits.simulate.result import Standing, StudyResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ALONE = LineStyle("#D55E00", (0, (1, 1.2)))


@dataclass(frozen=True, slots=True)
class Price:
    """One contestant with noise.

    ``sigma`` is the deviation of the noise on each number; ``benefit`` the part of the central
    bandit's benefit that is left, None if the study has no bandit of the active participant alone.
    """

    contestant: str
    family: str
    epsilon: float
    sigma: float
    mean: float
    half_width: float | None
    benefit: float | None


def prices(result: StudyResult) -> list[Price]:
    """The contestants with noise, in their order."""
    found = []
    for contestant, standing in _pairs(result):
        noise = contestant.vector_noise
        if noise is None:
            continue
        central, alone = (_mean(result, contestant.family, part) for part in ("all", ACTIVE))
        found.append(
            Price(
                contestant=contestant.name,
                family=contestant.family,
                epsilon=noise.epsilon,
                sigma=noise.sigma,
                mean=standing.mean,
                half_width=standing.half_width,
                benefit=_benefit(standing.mean, central, alone),
            )
        )
    return found


def spell_benefit(price: Price) -> str:
    """The benefit that is left in percent, or a dash."""
    return "–" if price.benefit is None else f"{100.0 * price.benefit:.0f} %"


def markdown(found: list[Price]) -> str:
    """The table, for a page."""
    lines = [
        "",
        f"Noise on each vector; ε is per {UNIT}. The benefit is that of the central bandit over "
        "the active participant alone.",
        "",
        "| contestant | deviation of the noise | final regret | benefit left |",
        "|---|---:|---:|---:|",
        *(
            f"| {one.contestant} | {one.sigma:.3f} | {one.mean:.1f} | {spell_benefit(one)} |"
            for one in found
        ),
    ]
    return "\n".join(lines) + "\n"


def save_price_plot(result: StudyResult, path: Path) -> None:
    """Draw regret against ε to a PNG or SVG file."""
    save_figure(draw_prices(result), path)


def draw_prices(result: StudyResult) -> "Figure":
    """One panel for each kind of policy."""
    require("matplotlib", extra="experiments", to="plotting")
    from matplotlib.figure import Figure  # noqa: PLC0415  (no pyplot: no window, no global state)

    families: dict[str, list[Price]] = {}
    for price in prices(result):
        families.setdefault(price.family, []).append(price)
    figure = Figure(figsize=(1.2 + 4.6 * len(families), 4.2), layout="constrained")
    panels = figure.subplots(1, len(families), sharey=True, squeeze=False)[0]
    for panel, (family, found) in zip(panels, families.items(), strict=True):
        _draw_ends(panel, result, family)
        _draw_prices(panel, found)
        panel.set_title(family, fontsize=10)
        panel.set_xlabel(f"ε per {UNIT} (log scale)")
        panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), frameon=False)
    panels[0].set_ylabel(f"regret after {result.study.horizon} rounds")
    panels[0].set_ylim(bottom=0.0)
    n_seeds = result.study.n_seeds
    spread = f", mean and 95 % interval of {n_seeds} seeds" if n_seeds > 1 else ""
    figure.suptitle(f"The price of noise on vectors{spread}", fontsize=11)
    return figure


def _draw_prices(panel: "Axes", found: list[Price]) -> None:
    found = sorted(found, key=lambda one: one.epsilon)
    epsilons = [one.epsilon for one in found]
    panel.errorbar(
        epsilons,
        [one.mean for one in found],
        yerr=[one.half_width or 0.0 for one in found],
        color=FEDERATED.colour,
        linewidth=FEDERATED.width,
        marker="o",
        capsize=3.0,
        label="federation with noise",
        zorder=FEDERATED.layer,
    )
    panel.set_xscale("log")
    panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    panel.minorticks_off()
    panel.grid(visible=True, color="0.9", linewidth=0.8)
    panel.spines[["top", "right"]].set_visible(False)


def _draw_ends(panel: "Axes", result: StudyResult, family: str) -> None:
    for contestant, standing in _pairs(result):
        if contestant.family != family or contestant.federated:
            continue
        style = CENTRAL if contestant.features == "all" else ALONE
        panel.axhline(
            standing.mean,
            color=style.colour,
            linestyle=style.dashes,
            linewidth=style.width,
            label=contestant.name,
            zorder=style.layer,
        )


def _pairs(result: StudyResult) -> list[tuple[Contestant, Standing]]:
    return list(zip(result.study.contestants, result.table(), strict=True))


def _mean(result: StudyResult, family: str, features: str) -> float | None:
    """Final regret of the first plain bandit of the family with these features."""
    for contestant, standing in _pairs(result):
        seen = (contestant.family, contestant.features, contestant.federated)
        if seen == (family, features, False):
            return standing.mean
    return None


def _benefit(mean: float, central: float | None, alone: float | None) -> float | None:
    if central is None or alone is None or alone <= central:
        return None
    return (alone - mean) / (alone - central)
