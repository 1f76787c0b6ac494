"""Reasons to doubt an estimate, as sentences."""

import re
from collections.abc import Iterable

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.evaluate.replay import Replay
from vfbandits.evaluate.weights import effective_size

FEW_ROUNDS = 100
FEW_REWARDS = 10
HEAVY_SHARE = 0.05
FAR_FROM_ONE = 4.0
MODEL_ERROR = "the interval leaves out the error of the reward model"


_FIGURE = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def merge_doubts(doubts: Iterable[str]) -> dict[str, int]:
    """Merge sentences that differ in their figures only, with ranges; maps each to its count.

    >>> merge_doubts(["one round carries 7% of the weight", "one round carries 12% of the weight"])
    {'one round carries 7 to 12% of the weight': 2}
    """
    alike: dict[tuple[str, ...], list[list[str]]] = {}
    for doubt in doubts:
        alike.setdefault(tuple(_FIGURE.split(doubt)), []).append(_FIGURE.findall(doubt))
    merged: dict[str, int] = {}
    for words, figures in alike.items():
        ranges = [_range(column) for column in zip(*figures, strict=True)]
        text = "".join(part for pair in zip(words, [*ranges, ""], strict=True) for part in pair)
        merged[text] = len(figures)
    return merged


def _range(figures: Iterable[str]) -> str:
    least, *_, most = sorted([*figures] * 2, key=float)
    return least if float(least) == float(most) else f"{least} to {most}"


def doubts_about_replay(replay: Replay) -> tuple[str, ...]:
    """Few matched rounds, or a log that was not uniform."""
    doubts = []
    if not replay.is_uniform:
        doubts.append("the log is not uniform, so replay is biased")
    if replay.n_matched < FEW_ROUNDS:
        doubts.append(f"only {replay.n_matched} of {len(replay.seen)} rounds matched")
    return (*doubts, *_few_rewards(replay.rewards, np.ones(replay.n_matched)))


def doubts_about_weights(
    weights: Vector, rewards: Vector, *, clip: float | None = None
) -> tuple[str, ...]:
    """Weights that a few rounds dominate, that were clipped, or that do not average 1."""
    n, total = len(weights), float(weights.sum())
    if total == 0.0:
        return ("the target never plays a logged arm: there is nothing to estimate from",)
    doubts = []
    size = effective_size(weights)
    if size < FEW_ROUNDS:
        doubts.append(f"effective sample size is {size:.0f} of {n} rounds")
    heaviest = float(weights.max()) / total
    if heaviest > HEAVY_SHARE:
        doubts.append(f"one round carries {heaviest:.0%} of the weight")
    if clip is not None:
        cut = int((weights >= clip).sum())
        if cut:
            doubts.append(f"clipping at {clip:g} cut {cut} weights, which biases the value")
    else:
        error = float(weights.std(ddof=1)) / np.sqrt(n) if n > 1 else np.inf
        if abs(total / n - 1.0) > FAR_FROM_ONE * error + 1e-9:
            doubts.append(
                f"weights average {total / n:.2f}, wanted 1: the log may lack arms that the "
                "target plays, or its probabilities may be wrong"
            )
    return (*doubts, *_few_rewards(rewards, weights))


def doubts_about_model(rewards: Vector, modelled: Vector) -> tuple[str, ...]:
    """A model that predicts the logged arms' rewards, unseen, no better than their mean does."""
    spread = float(((rewards - rewards.mean()) ** 2).sum())
    missed = float(((rewards - modelled) ** 2).sum())
    if missed < spread or spread == 0.0:
        return ()
    return ("the reward model predicts unseen rounds no better than their mean",)


def _few_rewards(rewards: Vector, weights: Vector) -> tuple[str, ...]:
    """Rewards in rounds that carry weight: at least half of what a unit of weight is carried by.

    A target that plays one arm most of the time and any arm now and then gives every reward some
    weight; if the heavy rounds all have the same reward, be it none or the best, the interval is
    narrow and wrong.
    """
    total = float(weights.sum())
    typical = float(weights @ weights) / total if total else 0.0
    heavy = rewards[weights >= 0.5 * typical]
    values, counts = np.unique(heavy, return_counts=True)
    usual = float(values[counts.argmax()]) if heavy.size else 0.0
    count = int((heavy != usual).sum())
    if count >= FEW_REWARDS:
        return ()
    if not count:
        return (
            f"no round of weight has a reward other than {usual:g}: the interval is too narrow",
        )
    return (f"rewards other than {usual:g} in rounds of weight: only {count}",)
