"""LinUCB on encrypted contexts, packed as tightly as we could make it.

Participants encrypt their columns under the key of one of them, who is not the active participant.
The active participant adds the ciphertexts and computes every mean x'theta and squared width
x'Lambda^-1 x of the round in one go; it blinds the terms of these sums, and the key holder decrypts
them, adds them up to the scores and names the arm.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from tenseal import sealapi  # type: ignore[import-not-found]

from benchmarks.contestant import Matrix
from benchmarks.peers.ckks_layout import Layout
from benchmarks.peers.ckks_model import BLINDING, Choice, Model
from benchmarks.peers.ckks_scheme import SCALE, size_bytes


@dataclass(slots=True)
class Stages:
    """CPU seconds by stage, where those who work side by side count once; and of all together.

    One thread that never waits takes its CPU time, and a busy machine is no fault of CKKS.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    cpu_s: float = 0.0

    @contextmanager
    def clock(self, stage: str, *, side_by_side: int = 1) -> Iterator[None]:
        """Time a block, which does the same work for so many participants."""
        start = time.process_time()
        yield
        took = time.process_time() - start
        self.seconds[stage] = took / side_by_side
        self.cpu_s += took


@dataclass(frozen=True, slots=True)
class Played:
    """One round: the arm, the scores it came from, what it took and what each message weighs."""

    arm: int
    means: Matrix
    squared_widths: Matrix
    stages: Stages
    sent_bytes: dict[str, int]


@dataclass(slots=True)
class EncryptedLinUCB:
    """Everyone's part of a round, one after the other in one process."""

    layout: Layout
    model: Model
    beta: float
    n_participants: int
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0), repr=False)

    def play(self, contexts: Matrix, rewards: Matrix) -> Played:
        """Encrypt, decide, decrypt and learn from the chosen arm's reward."""
        stages, ckks = Stages(), self.model.ckks
        with stages.clock("encrypt", side_by_side=self.n_participants):
            blocks = [self._encrypt(block) for block in self._split(contexts)]
        with stages.clock("evaluate"):
            turned, upright = (ckks.add(parts) for parts in zip(*blocks, strict=True))
            y = self.model.times(turned)
            terms = ckks.multiply(self.model.with_theta(y), upright)
            blinding = self.layout.blinding(self.rng, amplitude=BLINDING)
            result = ckks.shift(terms, ckks.encode(blinding, SCALE**3))
        with stages.clock("decrypt"):
            means, squared_widths = self.layout.sums(ckks.decrypt(result))
            arm = int(np.argmax(means + self.beta * np.sqrt(squared_widths.clip(0.0))))
        with stages.clock("learn"):
            choice = Choice(arm, means[arm], squared_widths[arm], rewards[arm])
            sent = self.model.learn(upright, y, choice)
        sent_bytes = {"block": size_bytes(*blocks[0]), "result": size_bytes(result), **sent}
        return Played(arm, means, squared_widths, stages, sent_bytes)

    def _split(self, contexts: Matrix) -> Iterator[Matrix]:
        """Give every participant its columns, and zeros elsewhere."""
        for columns in np.array_split(np.arange(contexts.shape[1]), self.n_participants):
            block = np.zeros((contexts.shape[0], self.layout.dim))
            block[:, columns] = contexts[:, columns]
            yield block

    def _encrypt(self, block: Matrix) -> tuple[sealapi.Ciphertext, sealapi.Ciphertext]:
        encode, encrypt = self.model.ckks.encode, self.model.ckks.encrypt
        turned, upright = self.layout.turned(block), self.layout.upright(block)
        return encrypt(encode(turned)), encrypt(encode(upright))
