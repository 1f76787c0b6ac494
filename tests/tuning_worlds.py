"""Seeded worlds whose candidates have known values, to be tuned on logs of them."""

import numpy as np

from vfbandits.evaluate import LoggedBandit, target_probabilities
from vfbandits.evaluate.evaluation import EvaluationSettings
from vfbandits.evaluate.target import split_log
from vfbandits.evaluate.tune import TuneSettings, _learn, make_grid, tune

N_ARMS, DIM = 5, 10
NOISE = 0.3
# A young model: with a mature one all candidates that explore little decide alike.
SETTINGS = TuneSettings(evaluation=EvaluationSettings(train_share=0.12))
POLICIES = {
    "linucb": {"beta": [0.03, 0.3, 1.0, 3.0, 10.0]},
    "lingreedy": {"epsilon": [0.0, 0.02, 0.05, 0.1, 0.2]},
    "inverse_gap": {"scale": [1.0, 3.0, 10.0, 30.0]},
}
WHOLE_GRID = make_grid(POLICIES, ridges=[1.0, 30.0])
SMALL_GRID = make_grid(POLICIES)


class TuningWorld:
    """Linear rewards, one model per arm; logged by a policy that knows something."""

    def __init__(self, seed):
        self.rng = np.random.default_rng([seed, 7])
        self.theta = self.rng.standard_normal((N_ARMS, DIM)) / np.sqrt(DIM)

    def log(self, n):
        users = self.rng.standard_normal((n, DIM))
        means = users @ self.theta.T
        liked = np.exp(0.5 * means)
        p = 0.5 * liked / liked.sum(axis=1, keepdims=True) + 0.5 / N_ARMS
        chosen = (p.cumsum(axis=1) > self.rng.random((n, 1))).argmax(axis=1)
        rows = np.arange(n)
        return LoggedBandit.of(
            users,
            chosen,
            rewards=means[rows, chosen] + NOISE * self.rng.standard_normal(n),
            probabilities=p[rows, chosen],
            arms=list(range(N_ARMS)),
        )

    def values(self, log, grid, *, n=2_000):
        """What each candidate, taught by the first part of ``log``, earns from other users."""
        users = np.random.default_rng(99).standard_normal((n, DIM))
        means = users @ self.theta.T
        others = LoggedBandit.of(
            users,
            np.zeros(n, dtype=int),
            rewards=np.zeros(n),
            probabilities=np.ones(n),
            arms=log.arms,
        )
        first, rest = split_log(log, train_share=SETTINGS.evaluation.train_share)
        taught, values = {}, []
        for one in grid:
            learnt = one.ridge, one.discount
            if learnt not in taught:
                taught[learnt] = _learn(first, rest, SETTINGS, learnt)[0]
            bandit = taught[learnt].copy()
            bandit.policy, bandit.floor = one.policy, one.floor
            values.append((target_probabilities(bandit, others) * means).sum(axis=1).mean())
        return np.array(values)


def tuned_worlds(seeds, grid, *, n):
    """For each world whether the true best is in the set, and the set's part of the grid."""
    hits, parts = [], []
    for seed in seeds:
        world = TuningWorld(seed)
        log = world.log(n)
        best = grid[int(world.values(log, grid).argmax())]
        tuning = tune(log, grid, rng=np.random.default_rng(seed), settings=SETTINGS)
        chosen = [one.candidate for one in tuning.in_set]
        hits.append(best in chosen)
        parts.append(len(chosen) / len(grid))
    return hits, parts
