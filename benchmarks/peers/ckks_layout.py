"""Where the numbers of an encrypted round lie in a ciphertext: pure NumPy, nothing encrypted here.

A CKKS ciphertext is a vector of complex slots that are added, multiplied and rotated all at once.
Slot ``p * n_arms + a`` is position p of arm a, so one rotation moves every arm.  The product
y = A x is a sum over diagonals k of A[i, i + k] x[i + k].  Three regions of positions and two
parts, real and imaginary, hold x turned by six different offsets, so that one multiplication serves
six diagonals; the shifts that remain are split into small and large steps, so that few rotations
make them all.  Where the regions leave room lies x once more, to meet theta.
"""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.contestant import Matrix

Slots: TypeAlias = NDArray[np.complex128]
Positions: TypeAlias = NDArray[np.int64]
REGIONS = 3
OFFSETS = 2 * REGIONS
SMALL_STEPS = 5


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions that contexts (n_arms, dim) take in ``n_slots`` slots."""

    n_arms: int
    dim: int
    n_slots: int

    def __post_init__(self) -> None:
        """Refuse sizes that do not fit."""
        if self.dim % OFFSETS:
            raise ValueError(f"the dimension must be a multiple of {OFFSETS}, got {self.dim}")
        positions = max(REGIONS * self._stride, (REGIONS + 1) * self.dim)
        if self.n_arms * positions > self.n_slots:
            raise ValueError(f"{self.n_arms * positions} slots are wanted, got {self.n_slots}")

    @property
    def n_shifts(self) -> int:
        """How many multiplications y takes."""
        return self.dim // OFFSETS

    @property
    def large_steps(self) -> range:
        """Shifts made after the multiplications; the small ones between them are made before."""
        return range(0, self.n_shifts, SMALL_STEPS)

    @property
    def rotations(self) -> list[int]:
        """All rotations, in slots, that need a key: to make y, and back to update its matrix."""
        small = range(1, min(SMALL_STEPS, self.n_shifts))
        large = self.large_steps[1:]
        return [self.n_arms * step for step in (*small, *large, *(-step for step in large))]

    def turned(self, contexts: Matrix) -> Slots:
        """Lay out what the diagonals meet: x, turned differently in each region and part."""
        slots = self._empty()
        for region in range(REGIONS):
            here = region * self._stride + np.arange(self._stride)
            for part, unit in enumerate((1.0, 1.0j)):
                columns = (np.arange(self._stride) + self._offset(region, part)) % self.dim
                slots[here] += unit * contexts.T[columns]
        return slots.ravel()

    def upright(self, contexts: Matrix) -> Slots:
        """Lay out what y and theta meet: x as it is, in every region and once between them."""
        return self.windowed(contexts) + self.between(contexts)

    def windowed(self, contexts: Matrix) -> Slots:
        """Lay out x as it is in every region, and zeros between them."""
        slots = self._empty()
        slots[self._windows()] = np.tile(contexts.T, (REGIONS, 1))
        return slots.ravel()

    def between(self, contexts: Matrix) -> Slots:
        """Lay out x as it is where the regions leave room, and zeros in them."""
        slots = self._empty()
        slots[self._rest()] = contexts.T
        return slots.ravel()

    def diagonals(self, A: Matrix) -> list[Slots]:  # noqa: N803 - a matrix is a capital
        """Lay out A (dim, dim), one vector a shift; a large step to come moves it further on."""
        return [self._diagonals_of_shift(A, shift) for shift in range(self.n_shifts)]

    def one_arm(self, arm: int) -> Slots:
        """Lay out ones over one arm's context in the first region."""
        slots = self._empty()
        slots[: self.dim, arm] = 1.0
        return slots.ravel()

    def noise(self, rng: np.random.Generator, *, amplitude: float) -> Slots:
        """Draw noise for every slot and both parts."""
        drawn = rng.uniform(-amplitude, amplitude, (2, *self._empty().shape))
        slots: Slots = drawn[0] + 1j * drawn[1]
        return slots.ravel()

    def blinding(self, rng: np.random.Generator, *, amplitude: float) -> Slots:
        """Draw noise that vanishes from every sum that ``sums`` makes, and only from those."""
        slots = self.noise(rng, amplitude=amplitude).reshape(self._empty().shape)
        for here in (self._windows(), self._rest()):
            slots[here] -= slots[here].mean(axis=0).real
        return slots.ravel()

    def sums(self, slots: Matrix) -> tuple[Matrix, Matrix]:
        """Read means (n_arms,) and squared widths (n_arms,) from the real parts of the terms."""
        values = self._by_position(slots)
        return values[self._rest()].sum(axis=0), values[self._windows()].sum(axis=0)

    def vectors(self, slots: Matrix) -> Matrix:
        """Read y (n_arms, dim), which is spread over the regions, from its real parts."""
        spread = self._by_position(slots)[self._windows()]
        found: Matrix = spread.reshape(REGIONS, self.dim, self.n_arms).sum(axis=0).T
        return found

    def first_region(self, slots: Matrix) -> Matrix:
        """Read x (n_arms, dim) where ``one_arm`` puts it."""
        return self._by_position(slots)[: self.dim].T

    @property
    def _stride(self) -> int:
        return self.dim + self.n_shifts - 1

    def _diagonals_of_shift(self, A: Matrix, shift: int) -> Slots:  # noqa: N803
        rows, step = np.arange(self.dim), shift // SMALL_STEPS * SMALL_STEPS
        values = np.zeros(self.n_slots // self.n_arms, dtype=np.complex128)
        for region in range(REGIONS):
            here = region * self._stride + step + rows
            # Re (x + ix')(p - iq) = px + qx'; the imaginary part is never read.
            for part, unit in enumerate((1.0, -1.0j)):
                columns = (rows + self._offset(region, part) + shift) % self.dim
                values[here] += unit * A[rows, columns]
        return np.repeat(values, self.n_arms)

    def _offset(self, region: int, part: int) -> int:
        return (2 * region + part) * self.n_shifts

    def _windows(self) -> Positions:
        return np.concatenate([r * self._stride + np.arange(self.dim) for r in range(REGIONS)])

    def _rest(self) -> Positions:
        is_free = np.ones(self.n_slots // self.n_arms, dtype=bool)
        is_free[self._windows()] = False
        return np.flatnonzero(is_free)[: self.dim]

    def _empty(self) -> Slots:
        return np.zeros((self.n_slots // self.n_arms, self.n_arms), dtype=np.complex128)

    def _by_position(self, slots: Matrix) -> Matrix:
        used = self.n_slots // self.n_arms * self.n_arms
        return slots[:used].reshape(-1, self.n_arms)
