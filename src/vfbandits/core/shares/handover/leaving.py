"""Take the columns of a participant that leaves out of a state in shares.

Without a participant, Lambda and u would lack its rows and columns.  In Lambda⁻¹ that is a Schur
complement, column by column: with p = Lambda⁻¹_cc,

    Lambda⁻¹ ← Lambda⁻¹ − v v',  theta ← theta − v·h        v = Lambda⁻¹_c/√p,  h = theta_c/√p

and with Lambda⁻¹ = GG', f the row c of G, g = Gf/√p and a = f/√p, it is G ← G − g a'.  Row c of G
is zero then.  Put a in its place: Ga = 0 and |a| = 1, so column c is back at the prior, apart from
all others.  Both forms are one: M = [Lambda⁻¹ | theta] or [G | theta], and M ← M − Σ_l g_l w_l'
with w = [v | h], g = v or w = [a | h].  The steps for column c are

    column   w = M_c − Σ_l g_lc·w_l
    gain     g = Gf, for a root only (the a_l are orthogonal to f)
    scale    t·w and t·g, for a secret t of B's; t²p is opened to A
    row      1/√(t²p) times those, a scalar that A puts in under a mask

and one more exchange brings all rows into M.  Of a state of several blocks all of them take each
step together, with a t for each block.

What A learns is t²p for each column of each block: p times a factor between 1 and 512 whose
logarithm is uniform and which B alone knows.  p is a variance that lies between 1/(1 + n·length²)
and 1 after n rewards.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from vfbandits.core.ring import (
    CUT,
    REACH,
    Sheet,
    SheetName,
    Words,
    WordSource,
    add,
    cut,
    decode,
    encode,
    lifted,
    negative,
    opened_within,
    row_products,
    rows_times,
    subtract,
    symmetric,
    times,
    zeros,
)
from vfbandits.core.shares.blocks import split_blocks
from vfbandits.core.shares.handover.epoch import BlockChange, Masked
from vfbandits.core.shares.messages import Cut, Full, Message, Place, message_class
from vfbandits.core.shares.sides import FINE_BITS, reopen_side, reopened_mask
from vfbandits.core.shares.terms import Shapes

MAX_FACTOR_BITS = 9
"""B multiplies a variance by up to 2^9 before A sees it."""
MIN_PIVOT = 2.0**-19
"""A smaller number is taken for this one: its root would leave the ring."""
STEPS = 4
_OFFSET = 1 << (FINE_BITS + REACH)


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of an elimination; the last one has no column.

    ``column`` is the place of the column among those that leave; ``size`` counts the numbers of
    all blocks.
    """

    name: str
    number: int
    column: int
    size: int
    n_blocks: int

    def place(self, start: Place) -> Place:
        """Where its words are."""
        return start._replace(slot=start.slot + self.number)

    def active_words(self) -> Shapes:
        """Words of server A."""
        scalar: Shapes = {"mask_scalar": (self.n_blocks,)} if self.name == "row" else {}
        return {"rho": (self.size,), **scalar}

    def helper_words(self) -> Shapes:
        """Words of server B."""
        blind: Shapes = {"blind": (self.n_blocks,)} if self.name == "scale" else {}
        return {"rho": (self.size,), "mask": (self.size,), **blind}


def steps_of(change: BlockChange) -> Iterator[Step]:
    """All exchanges that eliminate the columns of those that leave; none if nobody does."""
    d, is_root, n_blocks, n_lost = change.before, change.is_root, change.n_blocks, len(change.lost)
    both = 2 * d + 1 if is_root else d + 1
    for k in range(n_lost):
        first = 1 + STEPS * k
        yield Step("column", first, k, n_blocks * (d + 1), n_blocks)
        if is_root:
            yield Step("gain", first + 1, k, n_blocks * d, n_blocks)
        yield Step("scale", first + 2, k, n_blocks * both, n_blocks)
        yield Step("row", first + 3, k, n_blocks * both, n_blocks)
    if n_lost:
        n = d - n_lost
        size = n * (d + 1) if is_root else n * (n + 1) // 2 + n
        yield Step("fold", 1 + STEPS * n_lost, -1, n_blocks * size, n_blocks)


def of_column(words: Words, step: Step, change: BlockChange) -> Words:
    """Of words for each column that leaves, those of a step's column, in the order of blocks."""
    return split_blocks(words, len(change.lost))[step.column]


def n_factors(change: BlockChange) -> int:
    """How many factors B masks: t and t² for each block of each column."""
    return 2 * change.n_blocks * len(change.lost)


def factors_of(words: Words, step: Step, change: BlockChange) -> tuple[Words, Words]:
    """Of all factors, or their masks, t and t² of a step's column, (n_blocks,) each."""
    pairs = of_column(words, step, change)
    return np.ascontiguousarray(pairs[:, ::2]), np.ascontiguousarray(pairs[:, 1::2])


@message_class
class Eliminate(Message):
    """A's shares of one step's products, and its masked scalar for a row."""

    KIND: ClassVar[int] = 72

    shares: Cut
    scalar: Full


@message_class
class Eliminated(Message):
    """B's shares, and those of the numbers which A opens."""

    KIND: ClassVar[int] = 73

    shares: Cut
    opened: Cut


class Scalars:
    """B's secret factors t and t², n pairs: one for each block of each column."""

    def __init__(self, own: WordSource, place: Place, n: int) -> None:
        words = own.sheet(SheetName("scale", *place), {"factor": (n,)}).take("factor")
        uniform = ((words[0] >> np.uint64(12)) + 0.5) * 2.0**-52
        t = np.exp2(0.5 * MAX_FACTOR_BITS * uniform)
        self.words = encode(
            np.stack((t, t * t), axis=1).reshape(-1), bound=2.0**MAX_FACTOR_BITS, what="a factor"
        )


class Elimination:
    """What both servers, and the dealer on gaps, keep from step to step.

    A product of sides is a product of numbers; the dealer's term is minus twice that of gaps.  So
    the same ``product`` is computed by all three.
    """

    def __init__(self, masked: Masked, change: BlockChange) -> None:
        n = change.n_blocks
        parts = zip(split_blocks(masked.matrix, n), split_blocks(masked.theta, n), strict=True)
        self._blocks = [_Block(Masked(*part), change) for part in parts]

    def linear(self, step: Step) -> Words:
        """The part of a step's numbers that is no product, (size,)."""
        if step.name != "column":
            return zeros(step.size)
        return np.concatenate([block.linear(step) for block in self._blocks], axis=1)

    def product(self, step: Step, scalars: Words) -> Words:
        """The products of a step, (size,); ``scalars`` has one for each block."""
        pairs = zip(self._blocks, split_blocks(scalars, len(self._blocks)), strict=True)
        return np.concatenate([block.product(step, scalar) for block, scalar in pairs], axis=1)

    def pivot(self, step: Step) -> Words:
        """The number p of a column in each block, (n_blocks,): after its gain."""
        return np.concatenate([block.pivot(step) for block in self._blocks], axis=1)

    def take(self, step: Step, numbers: Words) -> None:
        """Go on with the numbers of a step, masked again, (size,)."""
        parts = split_blocks(numbers, len(self._blocks))
        for block, part in zip(self._blocks, parts, strict=True):
            block.take(step, part)

    def result(self) -> Masked:
        """The state without the columns, which are at the prior in a root and 0 in Lambda⁻¹."""
        matrices, thetas = zip(*(block.result() for block in self._blocks), strict=True)
        return Masked(np.concatenate(matrices, axis=1), np.concatenate(thetas, axis=1))


class _Block:
    """One block of the state in an elimination."""

    def __init__(self, masked: Masked, change: BlockChange) -> None:
        self._is_root = change.is_root
        self._dim = change.before
        self._lost = [*change.lost]
        self._kept = np.delete(np.arange(self._dim), self._lost)
        self._M = np.concatenate((masked.matrix, masked.theta[:, :, None]), axis=2)
        self._w = zeros(0, self._dim + 1)
        self._g = zeros(0, self._dim)
        self._numbers = zeros(0)

    def linear(self, step: Step) -> Words:
        return self._M[:, self._lost[step.column]]

    def product(self, step: Step, scalar: Words) -> Words:
        d, w, g = self._dim, self._w, self._g
        if step.name == "column":
            weights = np.ascontiguousarray(g[:, :, self._lost[step.column]])
            return negative(times(weights[:, None], w)[:, 0])
        if step.name == "gain":
            f = np.ascontiguousarray(self._numbers[:, None, :d])
            return rows_times(f, np.ascontiguousarray(self._M[:, :, :d]))[:, 0]
        if step.name in ("scale", "row"):
            return times(scalar[:, None], self._numbers[:, None])[:, 0]
        kept = self._kept
        change = negative(times(np.ascontiguousarray(g[:, :, kept].swapaxes(1, 2)), w))
        if self._is_root:
            return change.reshape(2, -1)
        i, j = np.tril_indices(len(kept))
        return np.concatenate((change[:, i, kept[j]], change[:, :, d]), axis=1)

    def pivot(self, step: Step) -> Words:
        start = self._lost[step.column] + (self._dim + 1 if self._is_root else 0)
        return self._numbers[:, start : start + 1]

    def take(self, step: Step, numbers: Words) -> None:
        d = self._dim
        if step.name == "gain":
            numbers = np.concatenate((self._numbers, numbers), axis=1)
        self._numbers = numbers
        if step.name == "row":
            g = numbers[:, d + 1 :] if self._is_root else numbers[:, :d]
            self._w = np.concatenate((self._w, numbers[:, None, : d + 1]), axis=1)
            self._g = np.concatenate((self._g, g[:, None]), axis=1)

    def result(self) -> Masked:
        d, kept, numbers = self._dim, self._kept, self._numbers
        n, lost = len(kept), self._lost
        M = zeros(d, d + 1)
        if self._is_root:
            M[:, kept] = add(np.ascontiguousarray(self._M[:, kept]), numbers.reshape(2, n, d + 1))
            M[:, lost, :d] = self._w[:, :, :d]
        else:
            triangle = n * (n + 1) // 2
            S = symmetric(numbers[:, :triangle], n)
            M[:, kept[:, None], kept] = add(self._M[:, kept[:, None], kept], S)
            M[:, kept, d] = add(self._M[:, kept, d], numbers[:, triangle:])
        return Masked(np.ascontiguousarray(M[:, :, :d]), np.ascontiguousarray(M[:, :, d]))


def share_of(elimination: Elimination, step: Step, scalars: Words, rho: Words) -> Words:
    """A server's cut shares of the numbers of a step."""
    linear = lifted(np.ascontiguousarray(elimination.linear(step)))
    return cut(add(add(linear, elimination.product(step, scalars)), rho))


def reopened(own: Words, theirs: Words, mask: Words) -> Words:
    """Sides of the numbers of a step, from both servers' shares."""
    return reopen_side(own, theirs, mask, zeros(own.shape[1]))


def pivot_share(elimination: Elimination, step: Step, squares: Words, blind: Words) -> Words:
    """A server's cut shares of t²p, (n_blocks,), with its part of the dealer's term."""
    return cut(add(_scaled(squares, elimination.pivot(step)), blind))


def _scaled(squares: Words, pivots: Words) -> Words:
    return row_products(squares[:, :, None], pivots[:, :, None])


def inverse_root(own: Words, theirs: Words) -> Words:
    """What A puts in for a column, 1/√(t²p) for each block, from both shares of t²p."""
    opened = opened_within(own, theirs, bits=128 - CUT, drop=0, offset=_OFFSET)
    p = np.maximum(decode(opened, bits=FINE_BITS), MIN_PIVOT)
    return encode(1.0 / np.sqrt(p), bound=2.0**10, what="a scalar")


# --- the dealer -----------------------------------------------------------------------------------


class EliminationDealer:
    """Deals the words of all steps, from the gaps of the state."""

    def __init__(self, gaps: Masked, factors: Words, change: BlockChange) -> None:
        self._elimination = Elimination(gaps, change)
        self._factors = factors  # gaps of t and t², for each block of each column
        self._change = change
        self.masks: list[Words] = []
        self.opened: list[Words] = []

    def deal(self, step: Step, A: Sheet, B: Sheet) -> None:
        """The words of one step."""
        elimination = self._elimination
        scalars = zeros(step.n_blocks)
        if step.name == "scale":
            scalars, squares = factors_of(self._factors, step, self._change)
            product = _scaled(squares, elimination.pivot(step))
            self.opened.append(subtract(_term(product), B.take("blind")))
        elif step.name == "row":
            scalars = A.take("mask_scalar")
        term = _term(elimination.product(step, scalars))
        rho = add(A.take("rho"), B.take("rho"))
        helper = B.take("mask")
        active = subtract(reopened_mask(subtract(rho, term)), helper)
        self.masks.append(active)
        elimination.take(step, subtract(active, helper))

    def result(self) -> Masked:
        """Gaps of the state without the columns."""
        return self._elimination.result()


def _term(product: Words) -> Words:
    """The dealer's term of twice a product, from the product of the gaps."""
    return negative(add(product, product))
