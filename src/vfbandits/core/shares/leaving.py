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

and one more exchange brings all rows into M.

What A learns is t²p for each column: p times a factor between 1 and 512 whose logarithm is uniform
and which B alone knows.  p is a variance that lies between 1/(1 + n·length²) and 1 after n rewards.
"""

import math
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
    rows_times,
    subtract,
    symmetric,
    times,
    zeros,
)
from vfbandits.core.shares.handover import Handover, Masked
from vfbandits.core.shares.messages import Cut, Full, Message, Place, message_class
from vfbandits.core.shares.sides import FINE_BITS, reopen_side, reopened_mask
from vfbandits.core.shares.terms import Shapes, ShareTerms

MAX_FACTOR_BITS = 9
"""B multiplies a variance by up to 2^9 before A sees it."""
MIN_PIVOT = 2.0**-19
"""A smaller number is taken for this one: its root would leave the ring."""
STEPS = 4
_OFFSET = 1 << (FINE_BITS + REACH)


@dataclass(frozen=True, slots=True)
class Step:
    """One exchange of an elimination; the last one has no column."""

    name: str
    number: int
    column: int
    size: int

    def place(self, start: Place) -> Place:
        """Where its words are."""
        return start._replace(slot=start.slot + self.number)

    def active_words(self) -> Shapes:
        """Words of server A."""
        scalar: Shapes = {"mask_scalar": (1,)} if self.name == "row" else {}
        return {"rho": (self.size,), **scalar}

    def helper_words(self) -> Shapes:
        """Words of server B."""
        blind: Shapes = {"blind": (1,)} if self.name == "scale" else {}
        return {"rho": (self.size,), "mask": (self.size,), **blind}


def steps_of(plan: Handover, after: ShareTerms) -> Iterator[Step]:
    """All exchanges that eliminate the columns of those that leave; none if nobody does."""
    d, is_root, lost = plan.dim, after.is_root, plan.lost
    both = 2 * d + 1 if is_root else d + 1
    for k, column in enumerate(lost):
        first = 1 + STEPS * k
        yield Step("column", first, column, d + 1)
        if is_root:
            yield Step("gain", first + 1, column, d)
        yield Step("scale", first + 2, column, both)
        yield Step("row", first + 3, column, both)
    if lost:
        n = d - len(lost)
        size = n * (d + 1) if is_root else n * (n + 1) // 2 + n
        yield Step("fold", 1 + STEPS * len(lost), -1, size)


@message_class
class Eliminate(Message):
    """A's shares of one step's products, and its masked scalar for a row."""

    KIND: ClassVar[int] = 72

    shares: Cut
    scalar: Full


@message_class
class Eliminated(Message):
    """B's shares, and that of the number which A opens."""

    KIND: ClassVar[int] = 73

    shares: Cut
    opened: Cut


class Scalars:
    """B's secret factors t and t², one pair for each column."""

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

    def __init__(self, masked: Masked, plan: Handover, after: ShareTerms) -> None:
        self._plan = plan
        self._is_root = after.is_root
        self._dim = plan.dim
        self._M = np.concatenate((masked.matrix, masked.theta[:, :, None]), axis=2)
        self._w = zeros(0, self._dim + 1)
        self._g = zeros(0, self._dim)
        self._numbers = zeros(0)

    def linear(self, step: Step) -> Words:
        """The part of a step's numbers that is no product, (size,)."""
        return self._M[:, step.column] if step.name == "column" else zeros(step.size)

    def product(self, step: Step, scalar: Words) -> Words:
        """The products of a step, (size,); ``scalar`` is (1,), for steps that need one."""
        d, w, g = self._dim, self._w, self._g
        if step.name == "column":
            return negative(times(np.ascontiguousarray(g[:, :, step.column])[:, None], w)[:, 0])
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
        """The number p of a column, (1,): after its gain."""
        start = self._dim + 1 if self._is_root else 0
        return self._numbers[:, start + step.column : start + step.column + 1]

    def take(self, step: Step, numbers: Words) -> None:
        """Go on with the numbers of a step, masked again, (size,)."""
        d = self._dim
        if step.name == "gain":
            numbers = np.concatenate((self._numbers, numbers), axis=1)
        self._numbers = numbers
        if step.name == "row":
            g = numbers[:, d + 1 :] if self._is_root else numbers[:, :d]
            self._w = np.concatenate((self._w, numbers[:, None, : d + 1]), axis=1)
            self._g = np.concatenate((self._g, g[:, None]), axis=1)

    @property
    def _kept(self) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        return np.delete(np.arange(self._dim), self._plan.lost)

    def result(self) -> Masked:
        """The state without the columns, which are at the prior in a root and 0 in Lambda⁻¹."""
        d, kept, numbers = self._dim, self._kept, self._numbers
        n, lost = len(kept), [*self._plan.lost]
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


def share_of(elimination: Elimination, step: Step, scalar: Words, rho: Words) -> Words:
    """A server's cut shares of the numbers of a step."""
    linear = lifted(np.ascontiguousarray(elimination.linear(step)))
    return cut(add(add(linear, elimination.product(step, scalar)), rho))


def reopened(own: Words, theirs: Words, mask: Words) -> Words:
    """Sides of the numbers of a step, from both servers' shares."""
    return reopen_side(own, theirs, mask, zeros(own.shape[1]))


def pivot_share(elimination: Elimination, step: Step, square: Words, blind: Words) -> Words:
    """A server's cut share of t²p, (1,), with its part of the dealer's term."""
    return cut(add(times(square[:, None], elimination.pivot(step)[:, None])[:, 0], blind))


def inverse_root(own: Words, theirs: Words) -> Words:
    """What A puts in for a column, 1/√(t²p), from both shares of t²p."""
    opened = opened_within(own, theirs, bits=128 - CUT, drop=0, offset=_OFFSET)
    p = max(float(decode(opened, bits=FINE_BITS)[0]), MIN_PIVOT)
    return encode([1.0 / math.sqrt(p)], bound=2.0**10, what="a scalar")


# --- the dealer -----------------------------------------------------------------------------------


class EliminationDealer:
    """Deals the words of all steps, from the gaps of the state."""

    def __init__(self, gaps: Masked, scalars: Words, plan: Handover, after: ShareTerms) -> None:
        self._elimination = Elimination(gaps, plan, after)
        self._scalars = scalars  # gaps of t and t², for each column
        self._lost = plan.lost
        self.masks: list[Words] = []
        self.opened: list[Words] = []

    def deal(self, step: Step, A: Sheet, B: Sheet) -> None:
        """The words of one step."""
        elimination = self._elimination
        scalar = zeros(1)
        if step.name == "scale":
            k = self._lost.index(step.column)
            scalar, square = (self._scalars[:, 2 * k + j : 2 * k + j + 1] for j in range(2))
            product = times(square[:, None], elimination.pivot(step)[:, None])[:, 0]
            self.opened.append(subtract(_term(product), B.take("blind")))
        elif step.name == "row":
            scalar = A.take("mask_scalar")
        term = _term(elimination.product(step, scalar))
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
