"""What the paper says of Fig. 6c, and what the simulator and the user's own file say."""

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.reproduce.claim import Claim, ValueTable
from vfbandits.reproduce.config import number, numbers, whole, word, words
from vfbandits.reproduce.curves import spread
from vfbandits.reproduce.rows import Row, Settings

PLACE = "Fig. 6c"
SHORT_RUN = 5_000
FEW_CLICKS = 100
ADDITION = (
    "with outer addition θ·x = α·u + β·w: the greedy arm is the same for every user, so user "
    "features can help to learn and never to personalise"
)
SAMPLE = (
    "on a 137,139-row sample of the Kaggle-2014 file we found 1.01, 1.02 and 1.03 ± 0.04 for 0.2, "
    "0.8 and 1.0: the arms' click rates differ by a few percent only, and replay on a log that did "
    "not draw arms uniformly is biased"
)


def claims(rows: list[Row], config: Settings) -> list[Claim]:
    """Steps of 0.1 on the file, and in the simulator with either way to build contexts."""
    found = [_on_file(rows, config)]
    found += [_in_simulator(rows, config, context) for context in words(config, "contexts")]
    return found


def tables(rows: list[Row], config: Settings) -> list[ValueTable]:
    """Relative CTR by source, context and share of the features."""
    ratios = numbers(config, "ratios")
    sources = sorted({str(row["source"]) for row in rows}, reverse=True)
    lines = tuple(
        (
            f"{source}, outer {context}",
            *(spread(_values(rows, source, context, r)) for r in ratios),
        )
        for source in sources
        for context in words(config, "contexts")
    )
    best = np.array([float(str(row["best"])) for row in rows if row["best"] is not None])
    header = ("", *(f"{ratio:g} of the features" for ratio in ratios))
    title = f"Relative CTR against a random policy (the best possible: {spread(best)})"
    return [ValueTable(title, header, lines)]


def _on_file(rows: list[Row], config: Settings) -> Claim:
    says = "Relative CTR on Criteo's file rises by about 0.1 from 0.2 to 0.8 and to all features."
    criterion = f"each step at least {number(config, 'wanted_step'):g}"
    if not word(config, "rounds"):
        return Claim.unchecked(
            says,
            place=PLACE,
            criterion=criterion,
            reason="Criteo's terms forbid passing the file on; give your own copy with "
            f"--criteo FILE. {SAMPLE}",
        )
    steps = _steps(rows, config, "file", "addition")
    clicks = min(int(str(row["clicks"])) for row in rows if row["source"] == "file")
    if clicks < FEW_CLICKS:
        return Claim.unchecked(
            says,
            place=PLACE,
            measured=_spell(steps),
            criterion=criterion,
            reason=f"a replay of this file matched {clicks} clicks only; wanted {FEW_CLICKS}",
        )
    return Claim.judged(
        says,
        place=PLACE,
        measured=_spell(steps),
        criterion=criterion,
        holds=bool((steps >= number(config, "wanted_step")).all()),
        reason=SAMPLE,
    )


def _in_simulator(rows: list[Row], config: Settings, context: str) -> Claim:
    says = (
        f"More user features give more clicks (simulator fitted to Criteo's aggregates, outer "
        f"{context})."
    )
    place = "Fig. 6c, appendix D.3" if context == "addition" else "ours"
    steps = _steps(rows, config, "simulator", context)
    wanted = number(config, "wanted_step")
    criterion = f"from the smallest share to all: at least {wanted:g}"
    reason = ADDITION if context == "addition" else "the interaction in the simulator is assumed"
    horizon = whole(config, "horizon")
    if horizon < SHORT_RUN:
        return Claim.unchecked(
            says,
            place=place,
            measured=_spell(steps),
            criterion=criterion,
            reason=f"{horizon} rounds are too few to learn in",
        )
    holds = bool(steps.sum() >= wanted)
    return Claim.judged(
        says, place=place, measured=_spell(steps), criterion=criterion, holds=holds, reason=reason
    )


def _steps(rows: list[Row], config: Settings, source: str, context: str) -> Vector:
    means = [_values(rows, source, context, r).mean() for r in numbers(config, "ratios")]
    return np.diff(means)


def _spell(steps: Vector) -> str:
    return "steps of " + ", ".join(f"{step:+.3f}" for step in steps)


def _values(rows: list[Row], source: str, context: str, ratio: float) -> Vector:
    wanted = (source, context, ratio)
    return np.array(
        [
            float(str(row["relative_ctr"]))
            for row in rows
            if (row["source"], row["context"], row["ratio"]) == wanted
        ]
    )
