"""Play encrypted rounds beside plain ones, and print one line of JSON: medians and agreement."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.contestant import Matrix, Task
from benchmarks.peers.ckks_layout import OFFSETS, Layout
from benchmarks.peers.ckks_model import Model, OpenModel, SealedModel
from benchmarks.peers.ckks_round import EncryptedLinUCB, Played
from benchmarks.peers.ckks_scheme import DEGREE, SECURITY_BITS
from benchmarks.world import sample_world

if TYPE_CHECKING:
    from benchmarks.encrypted_round import EncryptedRound

TASK = Task("LinUCB", dim=100, n_arms=10, seed=0)
MODELS: dict[str, Callable[[Layout, Matrix, Matrix], Model]] = {
    "open": OpenModel,
    "sealed": SealedModel,
}
PARTICIPANTS = 5
# Before anything is learnt Lambda is diagonal, and a round would be cheaper than any other.
LEARNT_ROUNDS = 100
WARM_UP = 3


@dataclass(slots=True)
class PlainTwin:
    """LinUCB by definition: it solves where the encrypted one updates an inverse."""

    Lambda: Matrix
    u: Matrix

    def statistics(self, contexts: Matrix) -> tuple[Matrix, Matrix]:
        """Compute means and squared widths, (n_arms,) each."""
        solved = np.linalg.solve(self.Lambda, np.column_stack([self.u, contexts.T]))
        return contexts @ solved[:, 0], np.einsum("ad,da->a", contexts, solved[:, 1:])

    def learn(self, x: Matrix, reward: float) -> None:
        """Take the reward of one context."""
        self.Lambda += np.outer(x, x)
        self.u += reward * x


@dataclass(frozen=True, slots=True)
class Compared:
    """One round twice: what the encrypted one did, whether the plain one agrees, how closely."""

    played: Played
    is_same_arm: bool
    error: float


def play(kind: str, rounds: int) -> "EncryptedRound":
    """Learn in plain for a while, then play; both learn from the arm of the encrypted round."""
    world, twin = sample_world(TASK), PlainTwin(TASK.ridge * np.eye(TASK.dim), np.zeros(TASK.dim))
    for contexts, means in zip(world.pool[:LEARNT_ROUNDS], world.means, strict=False):
        twin.learn(contexts[0], means[0])
    bandit = _encrypted(kind, twin)
    coming = range(LEARNT_ROUNDS, LEARNT_ROUNDS + WARM_UP + rounds)
    compared = [_compare(bandit, twin, world.pool[t], np.array(world.means[t])) for t in coming]
    return _summarise(compared, bandit.model.ckks.modulus_bits)


def _encrypted(kind: str, twin: PlainTwin) -> EncryptedLinUCB:
    """Start from what the twin has learnt, with zero features up to a dimension that fits."""
    padding = -TASK.dim % OFFSETS
    layout = Layout(n_arms=TASK.n_arms, dim=TASK.dim + padding, n_slots=DEGREE // 2)
    inverse = np.pad(np.linalg.inv(twin.Lambda), (0, padding))
    theta = np.pad(np.linalg.solve(twin.Lambda, twin.u), (0, padding))
    model = MODELS[kind](layout, inverse, theta)
    return EncryptedLinUCB(layout, model, TASK.beta, PARTICIPANTS)


def _compare(
    bandit: EncryptedLinUCB, twin: PlainTwin, contexts: Matrix, rewards: Matrix
) -> Compared:
    means, squared_widths = twin.statistics(contexts)
    arm = int(np.argmax(means + TASK.beta * np.sqrt(squared_widths)))
    played = bandit.play(contexts, rewards)
    errors = (played.means - means, played.squared_widths - squared_widths)
    twin.learn(contexts[played.arm], rewards[played.arm])
    return Compared(played, arm == played.arm, float(np.abs(errors).max()))


def _summarise(compared: list[Compared], modulus_bits: list[int]) -> "EncryptedRound":
    """Take medians; agreement is counted over all rounds, also those that warm up."""
    stages = [one.played.stages for one in compared[WARM_UP:]]
    return {
        "rounds": len(compared),
        "same_arms": sum(one.is_same_arm for one in compared),
        "largest_error": max(one.error for one in compared),
        "seconds": median(sum(stage.seconds.values()) for stage in stages),
        "stages": {
            name: median(stage.seconds[name] for stage in stages) for name in stages[0].seconds
        },
        "cpu_s": median(stage.cpu_s for stage in stages),
        "sent_bytes": compared[0].played.sent_bytes,
        "passive_participants": PARTICIPANTS - 1,
        "poly_modulus_degree": DEGREE,
        "modulus_bits": modulus_bits,
        "security_bits": SECURITY_BITS,
        "tenseal": version("tenseal"),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(play(sys.argv[1], int(sys.argv[2]))) + "\n")
