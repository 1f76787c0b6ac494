"""Scores become an arm, with a stated rule for ties.

Contexts often have unit length, so in the first round every arm has the same score, and a mask
changes its last bit.  A bare argmax would then pick another arm behind the mask.  Hence the rule:
among the arms whose score is within a relative tolerance of the best, the first in the caller's
order is taken.
"""

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vfbandits.core import kernels
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import NumericalError
from vfbandits.html_page import table

if TYPE_CHECKING:
    from vfbandits.core.policy.base import Scored, ScoreLaw
    from vfbandits.core.sampler import Draws

ArmId: TypeAlias = int | str
EventId: TypeAlias = int | str

TIE_TOLERANCE = 1e-9
MAX_SHOWN = 20
_ENTRIES_PER_BATCH = 1_000_000


def first_best(scores: Vector, magnitude: float) -> int:
    """Index of the first arm that ties with the best.

    Scores are sums of terms up to ``magnitude``, so that is what rounding errors scale with: the
    best score may itself be near zero.

    >>> first_best(np.array([1.0, 2.0, 2.0 + 1e-12]), magnitude=1.0)
    1
    """
    if kernels.compiled is not None:
        index: int = kernels.compiled.first_best(scores, magnitude, TIE_TOLERANCE)
        if index < 0:
            raise NumericalError(f"scores must be finite, got NaN or infinity among {len(scores)}")
        return index
    best = float(scores[scores.argmax()])
    if not math.isfinite(best):
        raise NumericalError(f"scores must be finite, got NaN or infinity among {len(scores)}")
    return int((scores >= best - TIE_TOLERANCE * (abs(best) + magnitude)).argmax())


def choose(scored: "Scored", *, magnitude: float, floor: float, rng: "Draws") -> tuple[int, int]:
    """The chosen arm, and the one that the scores alone would choose (its index, each).

    ``floor`` is the fraction of rounds in which any arm is taken, all alike.
    """
    if scored.probabilities is None:
        best = first_best(scored.values, magnitude)
    else:
        best = _draw(scored.probabilities, rng.random())
    if floor > 0.0 and rng.random() < floor:
        return int(rng.random() * len(scored.values)), best
    return best, best


def _draw(probabilities: Vector, uniform: float) -> int:
    cumulative = np.cumsum(probabilities)
    index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(index, len(probabilities) - 1)


class Propensity:
    """How likely each arm was, worked out when first asked for.

    Exact for policies whose law is known.  For LinTS a Monte Carlo estimate with its own random
    stream, so that asking changes no later decision; the draw that was played counts as one of
    the draws, so the chosen arm never gets zero.  That stream is ``seed``: of the bandit, and the
    decision's own id.
    """

    __slots__ = ("_best", "_floor", "_magnitude", "_resolved", "_scored", "_seed")

    def __init__(
        self,
        scored: "Scored",
        best: int,
        magnitude: float,
        floor: float,
        seed: tuple[int, EventId],
    ) -> None:
        self._scored = scored
        self._best = best
        self._magnitude = magnitude
        self._floor = floor
        self._seed = seed
        self._resolved: tuple[Vector, Vector] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it can be worked out; not so for a draw on secret shares."""
        return self._resolved is not None or getattr(self._scored.law, "is_known", True)

    def probabilities(self) -> Vector:
        """One probability per arm, (n_arms,)."""
        return self._resolve()[0]

    def errors(self) -> Vector:
        """Standard error of each probability: zero where it is exact, (n_arms,)."""
        return self._resolve()[1]

    def _resolve(self) -> tuple[Vector, Vector]:
        if self._resolved is None:
            self._resolved = self._work_out(self._scored)
            del self._scored  # frees what the law keeps alive
        return self._resolved

    def _work_out(self, scored: "Scored") -> tuple[Vector, Vector]:
        n_arms = len(scored.values)
        errors = np.zeros(n_arms)
        if scored.law is not None:
            shares = self._count_wins(scored.law, n_arms) / (scored.law.n_draws + 1.0)
            errors = np.sqrt(shares * (1.0 - shares) / scored.law.n_draws)
        elif scored.probabilities is not None:
            shares = scored.probabilities
        else:
            shares = np.zeros(n_arms)
            shares[self._best] = 1.0
        if not self._floor:
            return shares, errors
        keep = 1.0 - self._floor
        return keep * shares + self._floor / n_arms, keep * errors

    def _count_wins(self, law: "ScoreLaw", n_arms: int) -> Vector:
        seed, key = self._seed
        rng = np.random.default_rng((seed, _stream(key)))
        wins = np.zeros(n_arms)
        wins[self._best] = 1.0
        left = law.n_draws
        while left:
            count = min(left, max(1, _ENTRIES_PER_BATCH // n_arms))
            winners = _first_best_rows(law.draw_scores(rng, count), self._magnitude)
            wins += np.bincount(winners, minlength=n_arms)
            left -= count
        return wins


def _stream(key: EventId) -> int:
    """Of a decision's own Monte Carlo: the same id gives the same draws in every process."""
    if isinstance(key, int):
        return key
    return int.from_bytes(blake2b(key.encode(errors="surrogatepass"), digest_size=8).digest())


def _first_best_rows(scores: Matrix, magnitude: float) -> NDArray[np.intp]:
    best = scores.max(axis=1, keepdims=True)
    keep = np.asarray(scores >= best - TIE_TOLERANCE * (np.abs(best) + magnitude))
    winners: NDArray[np.intp] = keep.argmax(axis=1)
    return winners


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One round's choice.  Keep it, or its ``id``, until the reward comes.

    Attributes
    ----------
    id
        Names the decision when its reward comes.
    arm
        The chosen arm: its id, or its position where the caller gave no ids.
    index
        Position of the chosen arm in the caller's order.
    scores, means
        The policy's scores and the estimated rewards, one per arm.
    contributors
        Participants whose features counted; the others' blocks were zeros.

    Examples
    --------
    >>> import vfbandits as vfb
    >>> bandit = vfb.Bandit(vfb.LinGreedy(epsilon=0.3), dim=1, seed=1)
    >>> decision = bandit.decide([[1.0], [2.0], [3.0]])
    >>> decision
    Decision(id=0, arm=0, index=0, contributors=('all',))
    >>> decision.probabilities.round(3)
    array([0.8, 0.1, 0.1])
    """

    id: EventId
    arm: ArmId
    index: int
    scores: Vector = field(repr=False)
    means: Vector = field(repr=False)
    contributors: tuple[str, ...]
    propensity: Propensity = field(repr=False)

    @property
    def probability(self) -> float:
        """Probability with which the chosen arm was chosen; never zero."""
        return float(self.propensity.probabilities()[self.index])

    @property
    def probability_error(self) -> float:
        """Standard error of ``probability``: zero where it is exact."""
        return float(self.propensity.errors()[self.index])

    @property
    def probabilities(self) -> Vector:
        """Probability of each arm of the round, (n_arms,)."""
        return self.propensity.probabilities().copy()

    def _repr_html_(self) -> str:
        """The best arms by score, and always the chosen one."""
        if np.isnan(self.scores).all():  # on secret shares nobody knows them
            said = f"Decision {self.id}: arm {self.arm}; contributors: "
            released = [("released", "arm"), ("position", f"{self.index}")]
            return table(released, caption=f"{said}{', '.join(self.contributors)}.")
        best = np.argsort(-self.scores, kind="stable")[:MAX_SHOWN].tolist()
        shown = best if self.index in best else [self.index, *best[:-1]]
        chances = self.propensity.probabilities()
        rows = [
            (
                f"{index} (chosen: {self.arm})" if index == self.index else f"{index}",
                f"{self.scores[index]:.4g}",
                f"{self.means[index]:.4g}",
                f"{chances[index]:.3g}",
            )
            for index in shown
        ]
        n_arms = len(self.scores)
        said = f"Decision {self.id}: arm {self.arm}; contributors: {', '.join(self.contributors)}."
        if n_arms > len(shown):
            said += f" {len(shown)} of {n_arms} arms are shown."
        return table(
            [("position", "score", "estimated reward", "probability"), *rows], caption=said
        )
