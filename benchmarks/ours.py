"""vfbandits through its public API: decision objects, input checks and all."""

import numpy as np

import vfbandits as vfb
from benchmarks.contestant import Contestant, Matrix, Task

PARTICIPANTS = 5
Blocks = dict[str, Matrix]


class PlainBandit:
    """``decide`` and ``reward`` of a ``vfb.Bandit``."""

    def __init__(self, task: Task) -> None:
        self.bandit = vfb.Bandit(_policy(task), dim=task.dim, ridge=task.ridge, seed=task.seed + 1)
        self.decision: vfb.Decision

    def prepare(self, contexts: Matrix) -> Matrix:
        """Keep the array."""
        return contexts

    def decide(self, form: Matrix) -> int:
        """Decide, and keep the decision for its reward."""
        self.decision = self.bandit.decide(form)
        return int(self.decision.arm)

    def learn(self, form: Matrix, arm: int, reward: float) -> None:
        """Reward the decision; which arm it was stands in it."""
        del form, arm
        self.bandit.reward(self.decision, reward)


class BlockwiseFederation:
    """``decide`` and ``reward`` of a ``vfb.Federation`` with equal blocks, all in one process."""

    def __init__(self, task: Task) -> None:
        widths = {name: block.shape[1] for name, block in _split(np.empty((1, task.dim))).items()}
        self.federation = vfb.Federation(
            _policy(task), widths=widths, mask="blockwise", ridge=task.ridge, seed=task.seed + 1
        )
        self.decision: vfb.Decision

    def prepare(self, contexts: Matrix) -> Blocks:
        """Give every participant its own columns."""
        return _split(contexts)

    def decide(self, form: Blocks) -> int:
        """Mask, aggregate and decide."""
        self.decision = self.federation.decide(form)
        return int(self.decision.arm)

    def learn(self, form: Blocks, arm: int, reward: float) -> None:
        """Reward the decision; which arm it was stands in it."""
        del form, arm
        self.federation.reward(self.decision, reward)


def build(task: Task) -> Contestant[Matrix]:
    """Make our bandit for a task."""
    return PlainBandit(task)


def build_federation(task: Task) -> Contestant[Blocks]:
    """Make our federation for a task."""
    return BlockwiseFederation(task)


def _policy(task: Task) -> vfb.LinUCB | vfb.LinTS:
    if task.algorithm == "LinUCB":
        return vfb.LinUCB(beta=task.beta)
    return vfb.LinTS(posterior_scale=task.posterior_scale)


def _split(contexts: Matrix) -> Blocks:
    blocks = np.split(contexts, PARTICIPANTS, axis=1)
    return {f"p{i}": np.ascontiguousarray(block) for i, block in enumerate(blocks)}
