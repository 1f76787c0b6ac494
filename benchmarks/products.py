"""Bare matrix products dressed as contestants, so that they are timed in the same loop."""

import numpy as np

from benchmarks.contestant import Contestant, Matrix, Task

PARTICIPANTS = 5


class SquareProduct:
    """One K x d x d product a round, into memory that is there already."""

    def __init__(self, task: Task) -> None:
        rng = np.random.default_rng(task.seed + 1)
        self.square: Matrix = rng.standard_normal((task.dim, task.dim))
        self.result: Matrix = np.empty((task.n_arms, task.dim))

    def prepare(self, contexts: Matrix) -> Matrix:
        """Keep the array."""
        return contexts

    def decide(self, form: Matrix) -> int:
        """Multiply; no arm is meant by the zero."""
        np.matmul(form, self.square, out=self.result)
        return 0

    def learn(self, form: Matrix, arm: int, reward: float) -> None:
        """Learn nothing."""


class MaskingProduct:
    """The arithmetic of a blockwise mask and no more: M products, one per participant."""

    def __init__(self, task: Task) -> None:
        rng = np.random.default_rng(task.seed + 1)
        width = task.dim // PARTICIPANTS
        self.masks: list[Matrix] = list(rng.standard_normal((PARTICIPANTS, width, width)))

    def prepare(self, contexts: Matrix) -> list[Matrix]:
        """Give every participant its own columns."""
        return [np.ascontiguousarray(part) for part in np.split(contexts, PARTICIPANTS, axis=1)]

    def decide(self, form: list[Matrix]) -> int:
        """Multiply; no arm is meant by the zero."""
        for block, mask in zip(form, self.masks, strict=True):
            np.matmul(block, mask)
        return 0

    def learn(self, form: list[Matrix], arm: int, reward: float) -> None:
        """Learn nothing."""


def build_square(task: Task) -> Contestant[Matrix]:
    """Make the K x d x d product."""
    return SquareProduct(task)


def build_masking(task: Task) -> Contestant[list[Matrix]]:
    """Make the M products of a blockwise mask."""
    return MaskingProduct(task)
