"""coba: its own LinUCB and LinTS, which are ours, theta shared by all arms and ridge 1.

With ``features=["a"]`` a context is the arm's own row and nothing is crossed.  The update is
Sherman-Morrison, the draw a Cholesky.  Rows must be Python lists, made before the clock starts;
the library walks them element by element, and that is what a round costs.  Its LinTS takes the
squared scale.  Arms are told apart by identity, since two rows may be equal.
"""

from coba.learners import LinTSLearner, LinUCBLearner

from benchmarks.contestant import Contestant, Matrix, Task

Rows = list[list[float]]


class CobaBandit:
    """One learner of the library; it returns the chosen row, of which we find the position."""

    def __init__(self, task: Task) -> None:
        if task.algorithm == "LinUCB":
            self.learner = LinUCBLearner(alpha=task.beta, features=["a"], seed=task.seed + 1)
        else:
            self.learner = LinTSLearner(
                v=task.posterior_scale**2, features=["a"], seed=task.seed + 1
            )
        self.probability = 1.0

    def prepare(self, contexts: Matrix) -> Rows:
        """Make lists of the rows."""
        rows: Rows = contexts.tolist()
        return rows

    def decide(self, form: Rows) -> int:
        """Ask for a row and its probability."""
        chosen, self.probability = self.learner.predict(None, form)
        return next(arm for arm, row in enumerate(form) if row is chosen)

    def learn(self, form: Rows, arm: int, reward: float) -> None:
        """Pass the reward on, with the probability that the library wants back."""
        self.learner.learn(None, form[arm], reward, self.probability)


def build(task: Task) -> Contestant[Rows]:
    """Make coba's bandit for a task."""
    return CobaBandit(task)
