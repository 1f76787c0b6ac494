"""The arithmetic of a masked LinUCB round, bare: what any transport between it has to carry.

Every participant draws the same world from the same seed and keeps its own columns, so that the
processes agree without a word and a test can put the contexts together again.
"""

from dataclasses import dataclass, field

import numpy as np

from benchmarks.contestant import Matrix

POOL_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class RoundShape:
    """Participants, the active one first, and what they decide on: (n_arms, dim) a round."""

    n_participants: int
    n_arms: int
    dim: int

    @property
    def size_bytes(self) -> int:
        """What one masked block weighs."""
        return 8 * self.n_arms * self.dim


@dataclass(slots=True)
class Participant:
    """Blocks (POOL_ROUNDS, n_arms, width), played over and over, and a share (dim, width)."""

    blocks: Matrix
    share: Matrix = field(repr=False)
    played: int = 0

    def masked_block(self) -> Matrix:
        """Mask this participant's block of the next round: (n_arms, dim)."""
        block = self.blocks[self.played % POOL_ROUNDS]
        self.played += 1
        masked: Matrix = block @ self.share.T
        return masked


def sample_contexts(shape: RoundShape, *, seed: int = 0) -> Matrix:
    """Draw plain contexts (POOL_ROUNDS, n_arms, dim), with rows of unit norm."""
    drawn = np.random.default_rng(seed).standard_normal((POOL_ROUNDS, shape.n_arms, shape.dim))
    unit: Matrix = drawn / np.linalg.norm(drawn, axis=2, keepdims=True)
    return unit


def make_participant(shape: RoundShape, position: int, *, seed: int = 0) -> Participant:
    """Give participant ``position`` its columns of the contexts and of a dense mask."""
    normal = np.random.default_rng([seed, 1]).standard_normal((shape.dim, shape.dim))
    columns = np.array_split(np.arange(shape.dim), shape.n_participants)[position]
    return Participant(
        np.ascontiguousarray(sample_contexts(shape, seed=seed)[:, :, columns]),
        np.ascontiguousarray(np.linalg.qr(normal).Q[:, columns]),
    )
