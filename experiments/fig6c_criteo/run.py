"""One cell: a way to build contexts, a share of the features, and a seed.

Without the user's own copy of Criteo's file only the simulator is played, which is fitted to
aggregates of it and has a known optimum.  With it, the paper's replay is run on the file as well.
"""

from pathlib import Path

from vfbandits.core.policy import LinUCB
from vfbandits.datasets.criteo.player import Context
from vfbandits.datasets.criteo.replay import ReplayCell, replay_cell
from vfbandits.datasets.criteo.study import CriteoWorldCell, play_in_world
from vfbandits.datasets.criteo.table import CriteoTable
from vfbandits.errors import SettingError
from vfbandits.reproduce.config import number, numbers, whole, whole_numbers, word, words
from vfbandits.reproduce.rows import Row, Settings

CONTEXTS: dict[str, Context] = {"addition": "addition", "product": "product"}


def cells(config: Settings) -> list[Settings]:
    """Contexts × ratios × seeds, in the simulator and, where there is one, on the file."""
    common = {key: config[key] for key in ("beta", "horizon", "interaction", "rounds")}
    sources = ["simulator", *(["file"] if word(config, "rounds") else [])]
    return [
        {**common, "source": source, "context": context, "ratio": ratio, "seed": seed}
        for seed in whole_numbers(config, "seeds")
        for source in sources
        for context in words(config, "contexts")
        for ratio in numbers(config, "ratios")
    ]


def weight(settings: Settings) -> float:
    """Rough seconds."""
    return 2e-4 * whole(settings, "horizon")


def run_cell(settings: Settings) -> list[Row]:
    """Relative CTR of one run, and the largest that there is where that is known."""
    policy, context = LinUCB(beta=number(settings, "beta")), word(settings, "context")
    if context not in CONTEXTS:
        raise SettingError(f"contexts must be of {', '.join(CONTEXTS)}, got {context!r}")
    ratio, seed = number(settings, "ratio"), whole(settings, "seed")
    row: Row = {
        "source": word(settings, "source"),
        "context": context,
        "ratio": ratio,
        "seed": seed,
    }
    if row["source"] == "file":
        folder = Path(word(settings, "rounds"))
        cell = ReplayCell(folder, policy, ratio, seed, CONTEXTS[context])
        random, tally = CriteoTable.open(folder).facts.click_rate, replay_cell(cell)
        relative = tally.click_rate / random if tally.n_matched else 0.0
        return [{**row, "relative_ctr": relative, "clicks": tally.n_clicks, "best": None}]
    played = play_in_world(
        CriteoWorldCell(
            policy,
            ratio,
            seed,
            whole(settings, "horizon"),
            CONTEXTS[context],
            number(settings, "interaction"),
        )
    )
    relative, best = played.relative_ctr, played.best_relative_ctr
    return [{**row, "relative_ctr": relative, "clicks": None, "best": best}]
