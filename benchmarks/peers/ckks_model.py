"""The model that scores encrypted contexts: in the clear, or itself encrypted.

In the clear it is cheap, and a gift to this competitor: it changes by the chosen context, so the
active participant must be told each chosen context in plain, which masks never do.  The sealed one
is what the active participant may hold if nobody is to see a context: ciphertexts of Lambda^-1 and
theta, which each round updates by an outer product.  Its vector y = Lambda^-1 x goes to the key
holder under noise, comes back freshly encrypted and is freed of the noise; without that the
products of one round could not be multiplied in the next.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from tenseal import sealapi  # type: ignore[import-not-found]

from benchmarks.contestant import Matrix
from benchmarks.peers.ckks_layout import SMALL_STEPS, Layout
from benchmarks.peers.ckks_scheme import SCALE, Ckks, size_bytes

BLINDING = 2.0**8


@dataclass(frozen=True, slots=True)
class Choice:
    """The arm that was chosen, and what the update must know of it beside its context."""

    arm: int
    mean: float
    squared_width: float
    reward: float


class Model(Protocol):
    """What a round needs of a model, and the keys that fit it."""

    ckks: Ckks

    def times(self, turned: sealapi.Ciphertext) -> sealapi.Ciphertext:
        """Multiply every encrypted context by Lambda^-1."""
        ...

    def with_theta(self, y: sealapi.Ciphertext) -> sealapi.Ciphertext:
        """Put theta where y is zero."""
        ...

    def learn(
        self, upright: sealapi.Ciphertext, y: sealapi.Ciphertext, choice: Choice
    ) -> dict[str, int]:
        """Take a reward; say what had to be sent for it."""
        ...


class OpenModel:
    """Lambda^-1 and theta in the clear."""

    def __init__(self, layout: Layout, inverse: Matrix, theta: Matrix) -> None:
        self.ckks, self.layout = Ckks(layout.rotations, has_spare=False), layout
        self.inverse, self.theta = inverse.copy(), theta.copy()

    def times(self, turned: sealapi.Ciphertext) -> sealapi.Ciphertext:
        """Encode Lambda^-1, which is new in every round, and multiply."""
        diagonals = [self.ckks.encode(slots) for slots in self.layout.diagonals(self.inverse)]
        return _times(self.ckks, self.layout, diagonals, turned)

    def with_theta(self, y: sealapi.Ciphertext) -> sealapi.Ciphertext:
        """Add theta in plain."""
        theta = np.tile(self.theta, (self.layout.n_arms, 1))
        return self.ckks.shift(y, self.ckks.encode(self.layout.between(theta), SCALE**2))

    def learn(
        self, upright: sealapi.Ciphertext, y: sealapi.Ciphertext, choice: Choice
    ) -> dict[str, int]:
        """Have the chosen context decrypted, and update by Sherman and Morrison's formula."""
        del y
        chosen = self.ckks.multiply(upright, self.ckks.encode(self.layout.one_arm(choice.arm)))
        x = self.layout.first_region(self.ckks.decrypt(chosen))[choice.arm]
        step = self.inverse @ x
        gain = step / (1.0 + x @ step)
        self.theta += gain * (choice.reward - x @ self.theta)
        self.inverse -= np.outer(gain, step)
        return {"chosen": size_bytes(chosen)}


class SealedModel:
    """Lambda^-1 and theta as ciphertexts."""

    def __init__(self, layout: Layout, inverse: Matrix, theta: Matrix) -> None:
        self.ckks, self.layout = Ckks(layout.rotations, has_spare=True), layout
        encode, encrypt = self.ckks.encode, self.ckks.encrypt
        self._inverse = [encrypt(encode(slots)) for slots in layout.diagonals(inverse)]
        self._theta = encrypt(encode(layout.between(self._for_all_arms(theta)), SCALE**2))
        self._rng = np.random.default_rng(0)

    def times(self, turned: sealapi.Ciphertext) -> sealapi.Ciphertext:
        """Multiply ciphertexts by ciphertexts."""
        return _times(self.ckks, self.layout, self._inverse, turned)

    def with_theta(self, y: sealapi.Ciphertext) -> sealapi.Ciphertext:
        """Add theta, encrypted as it is."""
        return self.ckks.add([y, self._theta])

    def learn(
        self, upright: sealapi.Ciphertext, y: sealapi.Ciphertext, choice: Choice
    ) -> dict[str, int]:
        """Have y encrypted afresh under noise, then update both by what it becomes."""
        del upright
        ckks, layout = self.ckks, self.layout
        noise = layout.noise(self._rng, amplitude=BLINDING)
        noisy = ckks.shift(y, ckks.encode(noise, SCALE**2))
        fresh = [
            ckks.encrypt(plain) for plain in self._lay_out(ckks.decrypt(noisy), choice, sign=1)
        ]
        noise_alone = self._lay_out(noise.real, choice, sign=-1)
        turned, windowed, step = map(ckks.shift, fresh, noise_alone)
        self._theta = ckks.add([self._theta, step])
        self._add_outer_product(turned, windowed)
        return {"noisy": size_bytes(noisy), "fresh": size_bytes(*fresh)}

    def _lay_out(self, slots: Matrix, choice: Choice, *, sign: int) -> list[sealapi.Plaintext]:
        """Lay out the chosen arm's vector thrice: for both sides of the product, and for theta."""
        vector = sign * self.layout.vectors(slots)[choice.arm]
        shrink = 1.0 / (1.0 + choice.squared_width)
        root = self._for_all_arms(np.sqrt(shrink) * vector)
        step = self._for_all_arms(shrink * (choice.reward - choice.mean) * vector)
        ckks, layout = self.ckks, self.layout
        return [
            # A diagonal holds (p - iq) where a context holds (x + ix'), and is to be subtracted.
            ckks.encode(-layout.turned(root).conj(), SCALE, level="spare"),
            ckks.encode(layout.windowed(root), ckks.spare_prime, level="spare"),
            ckks.encode(layout.between(step), SCALE**2),
        ]

    def _add_outer_product(self, turned: sealapi.Ciphertext, windowed: sealapi.Ciphertext) -> None:
        ckks, n_arms = self.ckks, self.layout.n_arms
        small = [ckks.rotate(turned, n_arms * step) for step in range(SMALL_STEPS)]
        for large in self.layout.large_steps:
            moved = ckks.rotate(windowed, -n_arms * large)
            for shift in range(large, min(large + SMALL_STEPS, self.layout.n_shifts)):
                product = ckks.spend_spare(ckks.multiply(small[shift - large], moved))
                self._inverse[shift] = ckks.add([self._inverse[shift], product])

    def _for_all_arms(self, vector: Matrix) -> Matrix:
        return np.tile(vector, (self.layout.n_arms, 1))


def _times(
    ckks: Ckks,
    layout: Layout,
    diagonals: Sequence[sealapi.Plaintext] | Sequence[sealapi.Ciphertext],
    turned: sealapi.Ciphertext,
) -> sealapi.Ciphertext:
    small = [ckks.rotate(turned, layout.n_arms * step) for step in range(SMALL_STEPS)]
    large = []
    for step in layout.large_steps:
        products = map(ckks.multiply, small, diagonals[step : step + SMALL_STEPS])
        large.append(ckks.rotate(ckks.add(products), layout.n_arms * step))
    return ckks.add(large)
