"""The obviously right version: everything from scratch in every round, straight from the paper.

No rank-one update, no cache, no shared code with the library: Lambda and u are summed anew over
all rewards, inverted with ``np.linalg.inv``, and arms are scored one by one.
"""

import math

import numpy as np

TIE = 1e-9


class Textbook:
    """A shared-theta bandit on contexts (n_arms, dim)."""

    def __init__(self, dim, *, ridge=1.0, discount=1.0):
        self.dim, self.ridge, self.discount = dim, ridge, discount
        self.rows, self.rewards = [], []

    def learn(self, x, reward):
        self.rows.append(np.array(x, dtype=float))
        self.rewards.append(float(reward))

    def weights(self):
        ages = np.arange(len(self.rows))[::-1]
        return self.discount**ages

    def prior(self):
        if self.discount == 1.0:
            return self.ridge
        half_life = max(1, math.ceil(math.log(2) / -math.log(self.discount)))
        return self.ridge * self.discount ** (len(self.rows) % half_life)

    @property
    def Lambda(self):
        total = self.prior() * np.eye(self.dim)
        for weight, x in zip(self.weights(), self.rows, strict=True):
            total = total + weight * np.outer(x, x)
        return total

    @property
    def u(self):
        total = np.zeros(self.dim)
        for weight, x, r in zip(self.weights(), self.rows, self.rewards, strict=True):
            total = total + weight * r * x
        return total

    @property
    def theta(self):
        return np.linalg.inv(self.Lambda) @ self.u

    def means(self, X):
        return np.array([x @ self.theta for x in X])

    def widths(self, X):
        inverse = np.linalg.inv(self.Lambda)
        return np.array([math.sqrt(max(x @ inverse @ x, 0.0)) for x in X])

    def covariance(self, X):
        return X @ np.linalg.inv(self.Lambda) @ X.T

    def ucb(self, X, beta):
        return self.means(X) + beta * self.widths(X)


def first_of_the_best(scores, scale):
    """The tie rule, written as a loop."""
    best = max(scores)
    for index, score in enumerate(scores):
        if score >= best - TIE * (abs(best) + scale):
            return index
    raise AssertionError("there is always a best score")
