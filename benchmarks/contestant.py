"""What every contestant must do, and the task that all of them are given."""

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float64]
Algorithm: TypeAlias = Literal["LinUCB", "LinTS"]
Form = TypeVar("Form")


@dataclass(frozen=True, slots=True)
class Task:
    """One cell of the grid: the problem's size, and the coefficients of both algorithms.

    The coefficients do not change what a round costs.  They are chosen so that the agreement
    check can tell a right sampler from a wrong one: with ``posterior_scale`` twice the standard
    deviation of the noise, most of LinTS's regret comes from its own draws.
    """

    algorithm: Algorithm
    dim: int
    n_arms: int
    seed: int
    beta: float = 0.5
    posterior_scale: float = 0.1
    ridge: float = 1.0


class Contestant(Protocol[Form]):
    """A bandit with one theta for all arms, behind the three calls that the worker makes.

    ``prepare`` is never timed: a contestant gets its contexts in the form that its own API
    takes (lists, dictionaries, text), so no peer pays for not speaking NumPy.
    """

    def prepare(self, contexts: Matrix) -> Form:
        """Turn one round's contexts (n_arms, dim) into the contestant's own form."""
        ...

    def decide(self, form: Form) -> int:
        """Choose an arm, as the position of its row."""
        ...

    def learn(self, form: Form, arm: int, reward: float) -> None:
        """Take the reward of the arm just chosen."""
        ...
