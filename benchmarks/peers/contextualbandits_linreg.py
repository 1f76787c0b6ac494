"""contextualbandits: its compiled ridge regression, which we make the theta of all arms.

The library's own bandits keep one regression per arm; ``linreg.LinearRegression`` scores K rows
with one regression, so argmax over its scores *is* shared-theta LinUCB.  The configuration is
the fastest with float64 state: ``method="sm"`` (Sherman-Morrison on one triangle) and no
intercept.  Its float32 default is other work: that state drifts to 1e-3.

Thompson sampling comes twice.  As shipped, ``predict_thompson`` hands Lambda^-1 to a sampler
that expects the inverse of the covariance, and so draws with covariance v^2 Lambda: the
uncertainty grows with the data.  ``build_right_law`` keeps the compiled update and lets NumPy
draw by Cholesky from the right covariance.
"""

import numpy as np
from contextualbandits.linreg import LinearRegression

from benchmarks.contestant import Contestant, Matrix, Task


class _Regression:
    """A regression that has seen one round of nothing: unfitted, it cannot draw.

    A zero context with reward zero changes neither Lambda nor u.
    """

    def __init__(self, task: Task) -> None:
        self.model = LinearRegression(
            lambda_=task.ridge, fit_intercept=False, method="sm", use_float=False
        )
        self.model.fit(np.zeros((1, task.dim)), np.zeros(1))
        self.rng = np.random.default_rng(task.seed + 1)

    def prepare(self, contexts: Matrix) -> Matrix:
        return contexts

    def learn(self, form: Matrix, arm: int, reward: float) -> None:
        self.model.partial_fit(form[arm : arm + 1], np.array([reward]))


class LinUCB(_Regression):
    """The library's own upper bound, argmax ours."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.beta = task.beta

    def decide(self, form: Matrix) -> int:
        """Score all rows in one call."""
        return int(np.argmax(self.model.predict_ucb(form, alpha=self.beta)))


class LinTS(_Regression):
    """Thompson sampling as shipped: one draw for all rows, from the wrong law."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.variance = task.posterior_scale**2

    def decide(self, form: Matrix) -> int:
        """Score all rows under one draw of the library's."""
        scores = self.model.predict_thompson(form, v_sq=self.variance, random_state=self.rng)
        return int(np.argmax(scores))


class LinTSRightLaw(LinTS):
    """The library's update, and a draw from N(theta, v^2 Lambda^-1) by Cholesky."""

    def decide(self, form: Matrix) -> int:
        """Draw from the maintained inverse, of which only the upper triangle is valid.

        NumPy's Cholesky reads the lower one, hence the transpose.
        """
        inverse = vars(self.model)["_invXtX"].T
        theta = self.rng.multivariate_normal(
            self.model.coef_, self.variance * inverse, check_valid="ignore", method="cholesky"
        )
        return int(np.argmax(form @ theta))


def build(task: Task) -> Contestant[Matrix]:
    """Make the bandit as the library ships it."""
    return LinUCB(task) if task.algorithm == "LinUCB" else LinTS(task)


def build_right_law(task: Task) -> Contestant[Matrix]:
    """Make the bandit that draws from the right law; LinTS only."""
    return LinTSRightLaw(task)
