"""A public world for a parity run: everybody can draw it from the trial's number."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.core.context import Split
from vfbandits.protocol.roster import Terms
from vfbandits.protocol.trial import trial_block

NOISE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class TrialRound:
    """One round: its user, the public block of each participant, and the reward of each arm."""

    user: str
    blocks: Mapping[str, PlainBlock] = field(repr=False)
    rewards: Vector


class TrialWorld:
    """Rewards are linear in the features of all participants, with a little noise.

    >>> world = TrialWorld(7, Split.of({"shop": 2, "bank": 3}), Terms(), n_arms=4)
    >>> first = next(iter(world.rounds(10)))
    >>> first.user, first.blocks["bank"].shape, first.rewards.shape
    ('parity-0', (4, 3), (4,))
    """

    def __init__(self, trial: int, split: Split, terms: Terms, *, n_arms: int) -> None:
        self.arms = tuple(f"arm-{number}" for number in range(n_arms))
        self.arm_features: Matrix | None = None
        self._trial = trial
        self._split = split
        self._per_arm = terms.layout == "per_arm"
        rng = np.random.default_rng([trial, 0])
        if self._per_arm:
            self._response: Matrix = _unit(rng, (split.dim,))
        elif terms.layout == "outer":
            self.arm_features = _unit(rng, (n_arms, terms.arm_dim))
            theta = _unit(rng, (split.dim * terms.arm_dim,)).reshape(split.dim, -1)
            self._response = theta @ self.arm_features.T
        else:
            self._response = _unit(rng, (n_arms, split.dim)).T

    def rounds(self, count: int) -> Iterable[TrialRound]:
        """The first ``count`` rounds."""
        noise = np.random.default_rng([self._trial, 1])
        for number in range(count):
            user = f"parity-{number}"
            keys = [(user, arm) for arm in self.arms] if self._per_arm else [(user,)]
            blocks = {
                name: trial_block(self._trial, name, keys, width=width)
                for name, width in self._split.items()
            }
            expected = (np.hstack(list(blocks.values())) @ self._response).reshape(-1)
            yield TrialRound(user, blocks, expected + NOISE * noise.standard_normal(len(self.arms)))

    def context(self, blocks: Mapping[str, PlainBlock], contributors: Iterable[str]) -> Matrix:
        """What a central bandit sees: all blocks side by side, zeros for absent participants."""
        counted = set(contributors)
        parts = [
            blocks[name] if name in counted else np.zeros_like(blocks[name])
            for name in self._split.names
        ]
        whole: Matrix = np.hstack(parts)
        return whole if self._per_arm else whole[0]


def _unit(rng: np.random.Generator, shape: tuple[int, ...]) -> Matrix:
    """Vectors of length 1 along the last axis."""
    rows = rng.standard_normal(shape)
    unit: Matrix = rows / np.linalg.norm(rows, axis=-1, keepdims=True)
    return unit
