"""Gaussian noise on a participant's vectors before they are masked, with its price ε.

One vector, a row of norm at most ``clip``, is released as row + N(0, σ²I).  Any two such rows are
at most 2·clip apart, so σ = 2·clip·s(ε, δ) makes the release (ε, δ)-differentially private, with
s from dp-accounting's exact analysis of the Gaussian mechanism.  The unit of ε is one *vector*:

* The noise of a vector is drawn once.  It is a function of a secret key, the row's name, its
  values and the terms, so that an event that is repeated, a retry and a mask change release
  the same noisy vector, and nothing more is spent.
* Another vector of the same user (a feature changed, another arm in layout per_arm, other terms)
  gets other noise and is another release.  n of them spend ``epsilon_of(n)``.

Not hidden: that a user is known, since rows of unknown users are zeros and are counted.

Rows and noise are rounded to one grid.  A sum of floats would otherwise tell by its last bits
which rows it can come from (Mironov 2012); on a grid it is the ideal mechanism, rounded.
"""

import hmac
import math
import os
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_256
from typing import Final, TypeGuard

import numpy as np

from vfbandits.core.arrays import PlainBlock, Vector
from vfbandits.core.mask import Entropy, standard_normal
from vfbandits.errors import SettingError
from vfbandits.extras import require

UNIT: Final = "vector"
KEY_BYTES: Final = 32
# Where the calibration is exact; noise beyond either end is useless.
MIN_EPSILON: Final = 1e-3
MAX_EPSILON: Final = 1e6
# Below it the tail of the drawn normals, which have 52 bits, would count.
MIN_DELTA: Final = 1e-9
MAX_DELTA: Final = 0.1
GRID_BITS: Final = 12
MAX_DEVIATIONS: Final = 8.0  # larger noise has a probability of 1e-15
_LABEL: Final = b"vfbandits vector noise 1"


@dataclass(frozen=True, slots=True)
class VectorNoise:
    """The declared terms of the noise.

    Attributes
    ----------
    epsilon, delta
        Of the release of one vector.
    clip
        Largest Euclidean norm of a vector; longer ones are scaled down to it.

    Examples
    --------
    >>> noise = VectorNoise(epsilon=10.0, delta=1e-5, clip=1.0)
    >>> print(noise)
    ε = 10 per vector, δ = 1e-05, clip 1
    >>> round(noise.sigma, 3), round(noise.epsilon_of(4), 1)
    (1.0, 24.4)
    """

    epsilon: float
    delta: float
    clip: float

    def __post_init__(self) -> None:
        """Refuse what has no calibration."""
        _refuse_outside(self.epsilon, "epsilon", MIN_EPSILON, MAX_EPSILON)
        _refuse_outside(self.delta, "delta", MIN_DELTA, MAX_DELTA)
        if not (_is_number(self.clip) and 0.0 < self.clip < math.inf):
            raise SettingError(f"clip must be a finite number above 0, got {self.clip!r}")

    def __str__(self) -> str:
        """The terms, with the unit."""
        return f"ε = {self.epsilon:g} per {UNIT}, δ = {self.delta:g}, clip {self.clip:g}"

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on each number."""
        return 2.0 * self.clip * _sigma(self.epsilon, self.delta)

    def epsilon_of(self, n_vectors: int) -> float:
        """What ``n_vectors`` different vectors of one user spend together, with the same δ.

        n releases with deviation σ say as much as one with σ/√n.
        """
        if n_vectors < 1:
            raise SettingError(f"a price is of at least one vector, got {n_vectors}")
        return _epsilon(_sigma(self.epsilon, self.delta) / math.sqrt(n_vectors), self.delta)


def describe_noise(noise: VectorNoise) -> dict[str, object]:
    """The terms as a status and a log have them, with the unit.

    >>> describe_noise(VectorNoise(10.0, 1e-5, clip=1.0))
    {'epsilon': 10.0, 'delta': 1e-05, 'clip': 1.0, 'unit': 'vector'}
    """
    return {"epsilon": noise.epsilon, "delta": noise.delta, "clip": noise.clip, "unit": UNIT}


class KeyedNoise:
    """Noise of one participant: with the same key, each row has the same noise for ever.

    >>> noise = KeyedNoise(VectorNoise(10.0, 1e-5, clip=1.0), key=bytes(32))
    >>> rows = PlainBlock(np.array([[0.6, 0.0], [0.6, 0.0]]))
    >>> noisy, clipped = noise.add(rows, [("ann",), ("bob",)])
    >>> again, clipped = noise.add(rows, [("ann",), ("bob",)])
    >>> np.array_equal(noisy, again), np.array_equal(noisy[0], noisy[1]), clipped
    (True, False, 0)
    """

    def __init__(self, terms: VectorNoise, *, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise SettingError(f"a key of noise has {KEY_BYTES} bytes, got {len(key)}")
        self.terms = terms
        self._key = key
        self._sigma = terms.sigma
        self._grid = 2.0 ** (math.floor(math.log2(self._sigma)) - GRID_BITS)
        # With the same draws under two σ, two noisy vectors would give the plain one.
        self._label = _LABEL + struct.pack("<ddd", terms.epsilon, terms.delta, terms.clip)

    def __repr__(self) -> str:
        """The terms; no key."""
        return f"KeyedNoise({self.terms})"

    @classmethod
    def draw(cls, terms: VectorNoise, *, entropy: Entropy = os.urandom) -> "KeyedNoise":
        """Noise under a new key."""
        return cls(terms, key=entropy(KEY_BYTES))

    @property
    def key(self) -> bytes:
        """The secret: with it the noise can be taken off again."""
        return self._key

    def add(
        self, rows: PlainBlock, names: Sequence[tuple[str, ...]], *, absent: Iterable[int] = ()
    ) -> tuple[PlainBlock, int]:
        """Rows (n, width) clipped and with noise, and how many of them were clipped.

        ``names`` say whose row each is: equal rows of two users must not have equal noise.  Rows
        at the places ``absent`` stay as they are.
        """
        rows, clipped = clip_rows(rows, self.terms.clip)
        # Towards zero, so that no row grows longer; and -0 is 0, which has bytes of its own.
        on_grid = np.trunc(rows / self._grid) + 0.0
        bits = b"".join(map(self._bits, names, on_grid))
        normal = standard_normal(rows.size, lambda _: bits).reshape(rows.shape)
        noisy = (on_grid + np.rint(normal * (self._sigma / self._grid))) * self._grid
        kept = [*absent]
        noisy[kept] = rows[kept]
        return PlainBlock(noisy), clipped

    def _bits(self, name: tuple[str, ...], row: Vector) -> bytes:
        """Random bits of one row, 64 for each number; nobody without the key can tell them."""
        message = self._label + _spelt(name) + row.tobytes()
        return shake_256(hmac.digest(self._key, message, "sha256")).digest(8 * len(row))


def clip_rows(rows: PlainBlock, longest: float) -> tuple[PlainBlock, int]:
    """Rows with those longer than ``longest`` shortened to it, and how many these were.

    >>> clip_rows(PlainBlock(np.array([[3.0, 4.0], [0.0, 1.0]])), 2.5)
    (array([[1.5, 2. ],
           [0. , 1. ]]), 1)
    """
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    is_long = lengths > longest
    count = int(np.count_nonzero(is_long))
    if not count:
        return rows, 0
    shrink = np.where(is_long, longest / np.where(is_long, lengths, 1.0), 1.0)
    return PlainBlock(rows * shrink[:, None]), count


def _spelt(name: tuple[str, ...]) -> bytes:
    """A name as bytes, in one way only: each part after its length."""
    parts = [part.encode() for part in name]
    return b"".join(struct.pack("<q", len(part)) + part for part in parts) + b"\0"


def _refuse_outside(value: object, name: str, least: float, most: float) -> None:
    if not (_is_number(value) and least <= value <= most):
        raise SettingError(f"{name} must be between {least:g} and {most:g}, got {value!r}")


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


@lru_cache(maxsize=64)
def _sigma(epsilon: float, delta: float) -> float:
    """Deviation of the noise if two vectors are at most 1 apart."""
    require("dp_accounting", extra="noise", to="noise on vectors", error=SettingError)
    from dp_accounting import get_sigma_gaussian  # noqa: PLC0415  (an extra)

    return float(get_sigma_gaussian(epsilon, delta))


@lru_cache(maxsize=64)
def _epsilon(sigma: float, delta: float) -> float:
    require("dp_accounting", extra="noise", to="noise on vectors", error=SettingError)
    from dp_accounting import get_epsilon_gaussian  # noqa: PLC0415  (an extra)

    return float(get_epsilon_gaussian(sigma, delta))
