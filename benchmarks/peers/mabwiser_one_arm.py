"""MABWiser: a bandit of one arm, whose K expectations we compare ourselves.

The library means disjoint LinUCB: one context for all arms, one regression per arm.  Nearest to
shared theta is its single regression asked for K rows at once, as a bandit with one arm does.
LinUCB's scores are then the textbook's.  LinTS draws a fresh theta for every row, so arms are
independent given the data; each marginal is right, the joint law is not ours.  The regression
starts from ``l2_lambda * I`` in place of an inverse, which is right at ridge 1 and only there.
"""

import numpy as np
from mabwiser.mab import MAB, LearningPolicy

from benchmarks.contestant import Contestant, Matrix, Task


class MabwiserBandit:
    """The single arm is called 0; it must be fitted before it can be asked."""

    def __init__(self, task: Task) -> None:
        policy = (
            LearningPolicy.LinUCB(alpha=task.beta, l2_lambda=task.ridge)
            if task.algorithm == "LinUCB"
            else LearningPolicy.LinTS(alpha=task.posterior_scale, l2_lambda=task.ridge)
        )
        self.mab = MAB(arms=[0], learning_policy=policy, seed=task.seed + 1, n_jobs=1)
        self.decisions = np.zeros(1, dtype=np.int64)
        # A zero context with reward zero changes neither Lambda nor u.
        self.mab.fit(self.decisions, np.zeros(1), np.zeros((1, task.dim)))

    def prepare(self, contexts: Matrix) -> Matrix:
        """Keep the array, which the library takes."""
        return contexts

    def decide(self, form: Matrix) -> int:
        """Compare the expectations of the K rows."""
        expectations = [row[0] for row in self.mab.predict_expectations(form)]
        return max(range(len(expectations)), key=expectations.__getitem__)

    def learn(self, form: Matrix, arm: int, reward: float) -> None:
        """Fit the chosen row."""
        self.mab.partial_fit(self.decisions, np.array([reward]), form[arm : arm + 1])


def build(task: Task) -> Contestant[Matrix]:
    """Make MABWiser's bandit for a task."""
    return MabwiserBandit(task)
