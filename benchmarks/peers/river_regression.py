"""river: its Bayesian linear regression as the theta of all arms.

``bandit.LinUCBDisjoint`` keeps one regression per arm and has no width multiplier, so it cannot
play this game; the regression it is made of can.  ``predict_one`` gives mean and variance of
one row, noise included, and we take the noise off again.  No joint draw is offered: LinTS draws
each arm's score by itself, right in each marginal and independent between arms.  Rows are
dictionaries, made before the clock starts.  The prior's "inverse" is right at ridge 1 only.
"""

import math

import numpy as np
from river.linear_model import BayesianLinearRegression

from benchmarks.contestant import Contestant, Matrix, Task

Rows = list[dict[int, float]]


class RiverBandit:
    """Score = mean + kick * width: the kick is beta, or a normal draw times the scale."""

    def __init__(self, task: Task) -> None:
        self.model = BayesianLinearRegression(alpha=1 / task.ridge, beta=1.0)
        self.task = task
        self.rng = np.random.default_rng(task.seed + 1)

    def prepare(self, contexts: Matrix) -> Rows:
        """Make a dictionary of every row."""
        return [dict(enumerate(row)) for row in contexts.tolist()]

    def decide(self, form: Rows) -> int:
        """Score the rows one by one; the library has no other way to a variance."""
        kicks = self._kicks(len(form))
        scores = [self._score(row, kick) for row, kick in zip(form, kicks, strict=True)]
        return max(range(len(scores)), key=scores.__getitem__)

    def learn(self, form: Rows, arm: int, reward: float) -> None:
        """Fit the chosen row."""
        self.model.learn_one(form[arm], reward)

    def _kicks(self, n_arms: int) -> list[float]:
        if self.task.algorithm == "LinUCB":
            return [self.task.beta] * n_arms
        drawn: list[float] = (self.task.posterior_scale * self.rng.standard_normal(n_arms)).tolist()
        return drawn

    def _score(self, row: dict[int, float], kick: float) -> float:
        law = self.model.predict_one(row, with_dist=True)
        width = math.sqrt(max(law.sigma**2 - 1.0, 0.0))
        score: float = law.mu + kick * width
        return score


def build(task: Task) -> Contestant[Rows]:
    """Make river's bandit for a task."""
    return RiverBandit(task)
