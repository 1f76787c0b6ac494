"""The obviously right version: invert Lambda every round and let NumPy draw the normal.

This is the unit that the bars are stated in.  It is not made slow on purpose: contexts are
scored with one matrix product, and theta comes from the inverse that is needed anyway.
"""

import numpy as np

from benchmarks.contestant import Contestant, Matrix, Task


class _Ridge:
    """Lambda and u, as in the paper; nothing derived is kept from one round to the next."""

    def __init__(self, task: Task) -> None:
        self.precision: Matrix = task.ridge * np.eye(task.dim)
        self.u: Matrix = np.zeros(task.dim)

    def prepare(self, contexts: Matrix) -> Matrix:
        return contexts

    def learn(self, form: Matrix, arm: int, reward: float) -> None:
        context = form[arm]
        self.precision += np.outer(context, context)
        self.u += reward * context


class LinUCB(_Ridge):
    """The largest x'theta + beta * sqrt(x' Lambda^-1 x)."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.beta = task.beta

    def decide(self, form: Matrix) -> int:
        """Score all rows and take the first of the largest."""
        inverse = np.linalg.inv(self.precision)
        widths = np.sqrt(np.sum((form @ inverse) * form, axis=1))
        return int(np.argmax(form @ (inverse @ self.u) + self.beta * widths))


class LinTS(_Ridge):
    """The largest x'theta for theta drawn from N(Lambda^-1 u, v^2 Lambda^-1)."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.variance = task.posterior_scale**2
        self.rng = np.random.default_rng(task.seed + 1)

    def decide(self, form: Matrix) -> int:
        """Draw by the default method of NumPy, a singular value decomposition."""
        inverse = np.linalg.inv(self.precision)
        theta = self.rng.multivariate_normal(inverse @ self.u, self.variance * inverse)
        return int(np.argmax(form @ theta))


def build(task: Task) -> Contestant[Matrix]:
    """Make the textbook's bandit for a task."""
    return LinUCB(task) if task.algorithm == "LinUCB" else LinTS(task)
