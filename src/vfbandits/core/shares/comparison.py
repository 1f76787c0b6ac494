"""Which arm has the best score, when one server has the scores under the other's masks.

Server A has y_a = s_a + ρ_a, and B knows ρ.  A shuffles the arms by a secret order π, puts a mask δ
of its own on each and drops the low bits: n_i = ⌊(y_π(i) + δ_i)/2^54⌋ modulo 2^43, which A sends.
The dealer knows ν_i, the same of δ_i + ρ_π(i), so that n_i − ν_i is the score in units of 2^-35, or
one unit more.  For each ordered pair the servers know x = n_i − n_j + tolerance, the dealer knows
r = ν_i − ν_j.  Arm i is not beaten by j if x − r is not negative, which is

    1  ⊕  top bit of x  ⊕  top bit of r  ⊕  1{low 42 bits of x < low 42 bits of r}.

The last bit comes from tables that are used once.  With x and r cut into 7 digits of 6 bits,

    1{x < r} = ⊕_i lt_i·Π_{j>i} eq_j,       lt_i = 1{x_i < r_i},  eq_j = 1{x_j = r_j}.

The dealer shares a table of 64 bits for each lt_i and eq_j, flipped throughout by a secret bit
(α_i, β_j).  A look-up is a shift, and what it gives is exchanged: L_i = lt_i ⊕ α_i and
E_j = eq_j ⊕ β_j.  With L and E known the formula is linear in products of the secret bits, which
the dealer shares too, as three words of 64 bits.  Shares are exclusive-or shares; B's come from its
stream.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vfbandits.core import kernels
from vfbandits.core.ring import FRACTION, Words, add, shifted_down
from vfbandits.errors import SharesError

Bits: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.uint64]
Lookups: TypeAlias = NDArray[np.uint16]
Places: TypeAlias = NDArray[np.intp]

DIGIT_BITS = 6
N_DIGITS = 7
N_TABLES = 2 * N_DIGITS - 1
N_WORDS = N_TABLES + 3
LOW_BITS = DIGIT_BITS * N_DIGITS
UNIT_BITS = 35
"""Scores are compared in units of 2^-35, and must be below 64 in size."""
TOLERANCE = 64
"""Units by which two scores may differ and still tie: 1.9e-9."""

_MODULUS = np.uint64(2 ** (LOW_BITS + 1) - 1)
_LOW = np.uint64(2**LOW_BITS - 1)
_ONE = np.uint64(1)
_DIGITS = np.arange(0, LOW_BITS, DIGIT_BITS, dtype=np.uint64)
_SUBSETS = np.arange(64, dtype=np.uint64)
# Entry S of the third word of products is α_i·Π_{j in rest} β_j: i is the place of the lowest
# member of S, counted from 1, and the rest are the others.
_LOWEST = np.array([(int(S) & -int(S)).bit_length() for S in _SUBSETS], dtype=np.uint64)
_REST = np.array([int(S) & (int(S) - 1) for S in _SUBSETS], dtype=np.uint64)


def shuffled(order_words: Words) -> Places:
    """A uniformly random order, from uniform words: the order that sorts their high halves."""
    return np.argsort(order_words[1])


def masked_numbers(words: Words, *, bits: int = 2 * FRACTION) -> Numbers:
    """Scores or masks with ``bits`` after the point, as numbers of 43 bits in units of 2^-35."""
    return np.asarray(shifted_down(words, bits - UNIT_BITS)[0] & _MODULUS)


@cache
def ordered_pairs(n: int) -> tuple[Places, Places]:
    """All (i, j) with i ≠ j, i by i."""
    i, j = np.nonzero(~np.eye(n, dtype=bool))
    return i, j


def pairs_among(live: Places, max_arms: int) -> tuple[Places, Places, Places]:
    """All pairs of the positions ``live``, and their places among the pairs of all positions."""
    i, j = ordered_pairs(len(live))
    i, j = live[i], live[j]
    return i, j, i * (max_arms - 1) + j - (j > i)


def differences(numbers: Numbers, i: Places, j: Places, *, tolerance: int) -> Numbers:
    """n_i − n_j + tolerance, modulo 2^43."""
    return np.asarray((numbers[i] - numbers[j] + np.uint64(tolerance)) & _MODULUS)


def top_bits(differences: Numbers) -> Bits:
    """The bit above the 42 low ones."""
    return (differences >> np.uint64(LOW_BITS)).astype(np.uint8)


def words_of_tables(stream: Words) -> Numbers:
    """B's shares of tables (n_pairs, 16) from words (n_pairs, 8)."""
    return np.concatenate((stream[0], stream[1]), axis=1)


def deal_tables(masks: Numbers, secret_bits: Numbers, helper: Numbers) -> tuple[Numbers, Bits]:
    """A's shares of the tables for the masks ν, and the top bits of r, in the clear.

    ``secret_bits`` has one uniform number for each pair, and ``helper`` is B's shares.
    """
    r = differences(masks, *ordered_pairs(len(masks)), tolerance=0)
    alpha, beta = secret_bits & np.uint64(127), (secret_bits >> np.uint64(7)) & np.uint64(63)
    digits = (r[:, None] >> _DIGITS) & np.uint64(63)
    words = np.empty((len(r), N_WORDS), np.uint64)
    words[:, :N_DIGITS] = ((_ONE << digits) - _ONE) ^ _spread(alpha, N_DIGITS)
    words[:, N_DIGITS:N_TABLES] = (_ONE << digits[:, 1:]) ^ _spread(beta, N_DIGITS - 1)
    products = (_SUBSETS & ~beta[:, None]) == 0
    words[:, N_TABLES] = _packed(products)
    words[:, N_TABLES + 1] = _packed(products) * (alpha & _ONE)
    chosen = ((alpha[:, None] >> _LOWEST) & _ONE).astype(bool) & (_SUBSETS > 0)
    words[:, N_TABLES + 2] = _packed(chosen & ((_REST & ~beta[:, None]) == 0))
    return words ^ helper, top_bits(r)


def _spread(bits: Numbers, n: int) -> Numbers:
    """Bit k of each number as a word of 64 equal bits, (n_pairs, n)."""
    each = (bits[:, None] >> np.arange(n, dtype=np.uint64)) & _ONE
    return np.asarray(np.uint64(0) - each)


def _packed(flags: NDArray[np.bool_]) -> Numbers:
    """64 flags in a row as one number; flag S is bit S."""
    return np.packbits(flags, axis=1, bitorder="little").view("<u8")[:, 0].astype(np.uint64)


def look_up(differences: Numbers, tables: Numbers) -> Lookups:
    """One server's shares of L (bits 0 to 6) and E (bits 7 to 12), pair by pair."""
    digits = (differences[:, None] >> _DIGITS) & np.uint64(63)
    digits = np.concatenate((digits, digits[:, 1:]), axis=1)
    bits = (tables[:, :N_TABLES] >> digits) & _ONE
    codes = np.bitwise_or.reduce(bits << np.arange(N_TABLES, dtype=np.uint64), axis=1)
    return np.asarray(codes, dtype=np.uint16)


def refuse_lookups(lookups: Lookups, n_arms: int) -> None:
    """Look-ups that came in a message: one for each pair, of 13 bits."""
    n_pairs = n_arms * (n_arms - 1)
    if lookups.shape != (n_pairs,):
        raise SharesError(f"wanted {n_pairs} look-ups, got {len(lookups)}")
    loops = kernels.load_root()
    is_beyond = loops.is_beyond(lookups) if loops else (lookups >> np.uint16(N_TABLES)).any()
    if is_beyond:
        raise SharesError(f"wanted look-ups of {N_TABLES} bits, got a larger number")


def is_less(opened: Lookups, tables: Numbers) -> Bits:
    """One server's shares of 1{x < r}, from the opened L and E."""
    masks = _formula()[opened]
    chosen = tables[:, N_TABLES:] & masks
    word = chosen[:, 0] ^ chosen[:, 1] ^ chosen[:, 2]
    return np.asarray(np.bitwise_count(word) & 1, dtype=np.uint8)


@cache
def _formula() -> Numbers:
    """Which entries of the three words of products add up to 1{x < r}, for each L and E."""
    masks = np.zeros((2**N_TABLES, 3), np.uint64)
    for opened in range(2**N_TABLES):
        L, E = opened & 127, opened >> N_DIGITS
        plain, first, others = _entries(L, E)
        masks[opened] = plain, first, others
    return masks


def _entries(L: int, E: int) -> tuple[int, int, int]:
    plain = others = first = 0
    for i in range(N_DIGITS):
        sets = _sets(E, i)
        if L >> i & 1:
            plain ^= sets
        if i == 0:
            first = sets
        else:
            # Bit S of ``sets`` becomes bit S | 1 << (i − 1): all S are multiples of 2^i.
            others ^= sets << (1 << (i - 1))
    return plain, first, others


@cache
def _sets(E: int, i: int) -> int:
    """The S for which Π_{j in S} β_j is a term of Π_{j>i} (E_j ⊕ β_j), as bits S of a number."""
    above = 63 >> i << i
    return sum(1 << S for S in range(64) if S & ~above == 0 and above & ~E & ~S == 0)


def shuffled_masks(
    mask_ranks: Words, rho_scores: Words, order: Places, *, bits: int = 2 * FRACTION
) -> Numbers:
    """The dealer's ν: what A's and B's masks are together, in the shuffled order."""
    return masked_numbers(add(mask_ranks, rho_scores[:, order]), bits=bits)


class Comparison(NamedTuple):
    """A's part of the comparison of all arms of a decision.

    Attributes
    ----------
    order, is_live
        The arm at each position of the secret order, and whether the decision has it.
    numbers
        Masked scores of live positions, (n_arms,).
    lookups, tops
        A's look-ups for each pair of live positions, and the top bits of their differences.
    """

    order: Places
    is_live: Bits
    numbers: Numbers
    lookups: Lookups
    tops: Bits


def begin_comparison(
    scores: Words,
    others: Words,
    order_words: Words,
    ranks: Words,
    tables: Words,
    *,
    bits: int,
    places: Sequence[int] | None = None,
) -> Comparison:
    """Mask and shuffle scores (n_arms,) that add up from two shares with ``bits`` after the point.

    ``order_words``, ``ranks`` and ``tables`` are A's words for all positions and their pairs.
    ``places`` are the scores that are compared, if not all are.
    """
    n, max_arms = scores.shape[1], order_words.shape[1]
    if scores.shape != others.shape:
        raise SharesError(f"wanted shares of {n} scores, got {others.shape[1:]}")
    loops = kernels.load_root()
    if loops is None or places is not None:
        order = shuffled(order_words)
        is_live = order < n if places is None else np.isin(order, places)
        shown = add(scores, others)[:, order[is_live]]
        numbers = masked_numbers(add(shown, ranks[:, is_live]), bits=bits)
        x, own = _pairs_of(is_live, numbers, tables)
        return Comparison(order, is_live.astype(np.uint8), numbers, look_up(x, own), top_bits(x))
    begun = Comparison(
        np.empty(max_arms, np.intp),
        np.empty(max_arms, np.uint8),
        np.empty(n, np.uint64),
        np.empty(n * (n - 1), np.uint16),
        np.empty(n * (n - 1), np.uint8),
    )
    words = (order_words, ranks, tables)
    loops.begin_comparison(scores, others, *words, bits - UNIT_BITS, TOLERANCE, *begun)
    return begun


def compare(
    is_live: Bits, numbers: Numbers, theirs: Lookups, tables: Words, flips: Words
) -> tuple[Lookups, Bits]:
    """B's look-ups, and its shares of 1{x < r}, for each pair of live positions.

    ``tables`` and ``flips`` are B's words for pairs of all positions.
    """
    loops = kernels.load_root()
    if loops is None:
        x, own = _pairs_of(is_live == 1, numbers, tables)
        lookups = look_up(x, own)
        flipped = flips[0, _places_of(is_live == 1)] & _ONE
        return lookups, is_less(lookups ^ theirs, own) ^ flipped.astype(np.uint8)
    lookups, less = np.empty(len(theirs), np.uint16), np.empty(len(theirs), np.uint8)
    loops.compare(is_live, numbers, theirs, tables, flips, TOLERANCE, lookups, less)
    return lookups, less


def end_comparison(begun: Comparison, theirs: Lookups, tables: Words, flips: Bits) -> Bits:
    """A's shares of which pairs' first position is not beaten by the second."""
    loops = kernels.load_root()
    if loops is None:
        places = _places_of(begun.is_live == 1)
        less = is_less(begun.lookups ^ theirs, words_of_tables(tables)[places])
        return np.asarray(less ^ flips[places] ^ begun.tops ^ np.uint8(1))
    results = np.empty(len(theirs), np.uint8)
    lookups = (begun.lookups, theirs)
    loops.end_comparison(begun.is_live, *lookups, tables, flips, begun.tops, results)
    return results


def candidates(own: Bits, theirs: Bits, n_arms: int) -> Bits:
    """Which live positions no other one beats, from both servers' shares of all results."""
    loops = kernels.load_root()
    if loops is None:
        return np.asarray((own ^ theirs).reshape(n_arms, -1).all(axis=1), dtype=np.uint8)
    found = np.empty(n_arms, np.uint8)
    loops.candidates(own, theirs, found)
    return found


def best_arm(begun: Comparison, found: Bits, places: Sequence[int] | None = None) -> int:
    """The first arm of those that no other beats, from which live positions those are; or -1.

    With ``places``, the first of them.
    """
    if places is not None:
        rows = begun.order[begun.is_live == 1][found == 1].tolist()
        return min((places.index(row) for row in rows), default=-1)
    loops = kernels.load_root()
    if loops is None:
        arms = begun.order[begun.is_live == 1][found == 1]
        return int(arms.min(initial=len(begun.order))) if len(arms) else -1
    return int(loops.best_arm(begun.order, begun.is_live, found))


def _places_of(is_live: NDArray[np.bool_]) -> Places:
    return pairs_among(np.flatnonzero(is_live), len(is_live))[2]


def _pairs_of(
    is_live: NDArray[np.bool_], numbers: Numbers, tables: Words
) -> tuple[Numbers, Numbers]:
    """Differences of all pairs of live positions, and a server's shares of their tables."""
    x = differences(numbers, *ordered_pairs(len(numbers)), tolerance=TOLERANCE)
    return x, words_of_tables(tables)[_places_of(is_live)]
