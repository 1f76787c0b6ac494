"""Vowpal Wabbit: a different algorithm, shown for orientation only.

It has neither LinUCB nor LinTS: it learns by first-order steps, O(K d) a round, and keeps no
Lambda.  In their place stand ``--squarecb`` (gap-weighted exploration) and ``--bag`` (bootstrap,
its stand-in for a posterior).  ``--regcbopt``, its optimism, learnt far less here.  Rows are text,
written before the clock starts; parsing is timed, because an example belongs to the learner and
its label cannot be taken back, so examples cannot be made ahead and used twice.
"""

from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np
from vowpalwabbit import Workspace

from benchmarks.contestant import Contestant, Matrix, Task

if TYPE_CHECKING:
    from vowpalwabbit import Example

OPTIONS = {"LinUCB": "--squarecb --gamma_scale 500", "LinTS": "--bag 5 --greedify"}


class VowpalBandit:
    """Parse, predict, label, learn: the parsed examples serve both calls of a round."""

    def __init__(self, task: Task) -> None:
        self.learner = Workspace(
            f"--cb_explore_adf {OPTIONS[task.algorithm]} --cb_type mtr --noconstant --quiet "
            f"--random_seed {task.seed + 1}"
        )
        self.rng = np.random.default_rng(task.seed + 1)
        self.examples: list[Example] = []
        self.probability = 1.0

    def prepare(self, contexts: Matrix) -> str:
        """Write the rows in the library's text format."""
        return "\n".join(
            "| " + " ".join(f"{i}:{value:.9g}" for i, value in enumerate(row))
            for row in contexts.tolist()
        )

    def decide(self, form: str) -> int:
        """Sample from the probabilities that the library returns."""
        self.examples = self.learner.parse(form)
        weights = self.learner.predict(self.examples)
        draw = self.rng.random() * sum(weights)
        arm = next((i for i, end in enumerate(accumulate(weights)) if draw < end), 0)
        self.probability = weights[arm]
        return arm

    def learn(self, form: str, arm: int, reward: float) -> None:
        """Label the chosen example with its cost; ``form`` was parsed already."""
        del form
        self.examples[arm].set_label_string(f"0:{-reward}:{self.probability}")
        self.learner.learn(self.examples)
        self.learner.finish_example(self.examples)


def build(task: Task) -> Contestant[str]:
    """Make Vowpal Wabbit's bandit for a task."""
    return VowpalBandit(task)
