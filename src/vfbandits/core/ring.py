"""Whole numbers modulo 2^128, in which secret shares of real numbers are added and multiplied.

NumPy has no 128-bit type, so ``Words`` are two planes of uint64: index 0 of the first axis holds
the low halves, index 1 the high halves, and a single number has shape (2, 1).  Sums and products
are exact modulo 2^128.  Matrix products are loops compiled by numba; without numba they are float64
products of 16-bit limbs, also exact and several times slower.

A real number v is the whole number nearest to v·2^44, and a product of two such numbers has 88 bits
after the point.  The ring wraps silently, so ``encode`` refuses what is beyond a bound.

Words that hide a value come from AES-256 in counter mode, with one key for each kind of sheet.  The
counter begins with the sheet's name, so no two sheets have a word in common.  A sheet is cut into
named parts that do not overlap, and each part can be taken once.
"""

import hmac
import math
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import ArrayLike, NDArray

from vfbandits.core import kernels
from vfbandits.core.arrays import Matrix
from vfbandits.errors import SharesError

Words: TypeAlias = NDArray[np.uint64]

FRACTION = 44
"""Bits after the point of a shared number."""
REACH = 10
"""Shared numbers and products are below 2^REACH in size."""
CUT = 36
"""Low bits of a share of a product that are not sent."""
RELEASED = 40
"""Bits after the point of a number that is opened to one party."""
SECRET_SIZE = 32
WORD_SIZE = 16

_LIMB_BITS = 16
_N_LIMBS = 8
_LIMB = np.uint64(2**_LIMB_BITS - 1)
_MAX_TERMS = 2**17  # sums of 8 products of limbs stay below 2^53
_COUNTER = struct.Struct(">IIHHI")
_WORD_HALF = np.dtype(np.uint64)


def zeros(*shape: int) -> Words:
    """Words of value 0."""
    return np.zeros((2, *shape), np.uint64)


def _refuse_unless(fits: bool, one: Words, other: Words) -> None:  # noqa: FBT001
    """Compiled loops do not check bounds: with a short array they would read another's memory."""
    if not fits:
        raise SharesError(
            f"wanted words that fit together, got shapes {one.shape[1:]} and {other.shape[1:]}"
        )


def add(a: Words, b: Words) -> Words:
    """The sum a + b of words of one shape."""
    _refuse_unless(a.shape == b.shape, a, b)
    out = np.empty(a.shape, _WORD_HALF)
    loops = kernels.load_ring()
    if loops is not None:
        if a.ndim > 2:
            loops.add(a.reshape(2, -1), b.reshape(2, -1), out.reshape(2, -1))
        else:
            loops.add(a, b, out)
        return out
    np.add(a[0], b[0], out=out[0])
    np.add(a[1], b[1], out=out[1])
    out[1] += out[0] < a[0]
    return out


def subtract(a: Words, b: Words) -> Words:
    """The difference a − b of words of one shape."""
    _refuse_unless(a.shape == b.shape, a, b)
    out = np.empty(a.shape, _WORD_HALF)
    loops = kernels.load_ring()
    if loops is not None:
        if a.ndim > 2:
            loops.subtract(a.reshape(2, -1), b.reshape(2, -1), out.reshape(2, -1))
        else:
            loops.subtract(a, b, out)
        return out
    np.subtract(a[0], b[0], out=out[0])
    np.subtract(a[1], b[1], out=out[1])
    out[1] -= a[0] < b[0]
    return out


def negative(a: Words) -> Words:
    """−a."""
    return subtract(zeros(*a.shape[1:]), a)


def total(a: Words) -> Words:
    """The sum of the rows: (2, n, m) becomes (2, m)."""
    result = zeros(a.shape[2])
    loops = kernels.load_ring()
    if loops is not None:
        loops.add_rows(a[0], a[1], result[0], result[1])
        return result
    for k in range(a.shape[1]):
        result = add(result, a[:, k])
    return result


def rows_times(A: Words, B: Words) -> Words:
    """A B' for rows A (n, k) and B (m, k): the inner product of each pair of rows.

    >>> rows = from_integers([[2, 3], [-1, 2**127]])
    >>> to_integers(rows_times(rows, rows)) == [[13, 2**127 - 2], [2**127 - 2, 1]]
    True
    """
    _refuse_unless(A.shape[2] == B.shape[2], A, B)
    loops = kernels.load_ring()
    if loops is None:
        return _limb_product(A, B.swapaxes(1, 2))
    out = np.empty((2, A.shape[1], B.shape[1]), np.uint64)
    loops.rows_times(A[0], A[1], B[0], B[1], out[0], out[1])
    return out


def times(A: Words, B: Words) -> Words:
    """A B for A (n, k) and B (k, m)."""
    _refuse_unless(A.shape[2] == B.shape[1], A, B)
    loops = kernels.load_ring()
    if loops is None:
        return _limb_product(A, B)
    out = zeros(A.shape[1], B.shape[2])
    loops.times(A[0], A[1], B[0], B[1], out[0], out[1])
    return out


def row_products(A: Words, B: Words) -> Words:
    """The inner product of each row of A (n, k) with the same row of B, (n,)."""
    _refuse_unless(A.shape == B.shape, A, B)
    out = np.empty((2, A.shape[1]), np.uint64)
    loops = kernels.load_ring()
    if loops is not None:
        loops.row_products(A[0], A[1], B[0], B[1], out[0], out[1])
        return out
    for i in range(A.shape[1]):
        out[:, i] = _limb_product(A[:, i : i + 1], B[:, i : i + 1].swapaxes(1, 2))[:, 0, 0]
    return out


def triangle_rows(A: Words, S: Words) -> Words:
    """A L' for rows A (n, k), where L + L' = 2S: L is the lower triangle of S, doubled off it.

    x'Lx = x'Sx, for half of the products.

    >>> S = from_integers([[3, 2], [2, 5]])
    >>> to_integers(triangle_rows(from_integers([[1, 1]]), S))
    [[3, 9]]
    """
    _refuse_unless(A.shape[2] == S.shape[1] == S.shape[2], A, S)
    loops = kernels.load_ring()
    if loops is None:
        return _limb_product(A, _doubled_triangle(S).swapaxes(1, 2))
    out = np.empty((2, A.shape[1], S.shape[1]), np.uint64)
    loops.triangle_rows(A[0], A[1], S[0], S[1], out[0], out[1])
    return out


def _doubled_triangle(S: Words) -> Words:
    lower = np.tri(S.shape[1], dtype=np.uint64) * S
    return add(lower, np.tri(S.shape[1], k=-1, dtype=np.uint64) * S)


def gram(V: Words) -> Words:
    """The lower triangle of V'V, row by row, for rows V (n, k): k(k + 1)/2 words."""
    k = V.shape[2]
    loops = kernels.load_ring()
    if loops is None:
        i, j = np.tril_indices(k)
        return _limb_product(V.swapaxes(1, 2), V)[:, i, j]
    out = zeros(k * (k + 1) // 2)
    loops.gram(V[0], V[1], out[0], out[1])
    return out


def symmetric(triangle: Words, k: int) -> Words:
    """The symmetric matrix (k, k) with this lower triangle."""
    out = zeros(k, k)
    i, j = np.tril_indices(k)
    out[:, i, j] = triangle
    out[:, j, i] = triangle
    return out


def _limb_product(A: Words, B: Words) -> Words:
    """A B by float64 products of 16-bit limbs, each of which is exact."""
    if A.shape[2] > _MAX_TERMS:
        raise SharesError(f"a product takes up to {_MAX_TERMS} terms, got {A.shape[2]}")
    left, right = _limbs(A), _limbs(B)
    result = zeros(A.shape[1], B.shape[2])
    for place in range(_N_LIMBS):
        terms = sum(left[i] @ right[place - i] for i in range(place + 1))
        result = add(result, _shifted_up(np.asarray(terms).astype(np.uint64), _LIMB_BITS * place))
    return result


def _limbs(a: Words) -> list[Matrix]:
    halves = (a[0], a[1])
    return [
        ((halves[i // 4] >> np.uint64(_LIMB_BITS * (i % 4))) & _LIMB).astype(np.float64)
        for i in range(_N_LIMBS)
    ]


def _shifted_up(low: NDArray[np.uint64], bits: int) -> Words:
    """Numbers below 2^64, times 2^bits."""
    if bits == 0:
        return np.stack((low, np.zeros_like(low)))
    if bits >= 64:
        return np.stack((np.zeros_like(low), low << np.uint64(bits - 64)))
    return np.stack((low << np.uint64(bits), low >> np.uint64(64 - bits)))


def shifted_down(a: Words, bits: int) -> Words:
    """The whole part of a / 2^bits, a from 0 to 2^128; 0 < bits < 128."""
    out = np.empty(a.shape, _WORD_HALF)
    if bits >= 64:
        out[0], out[1] = a[1] >> np.uint64(bits - 64), 0
        return out
    loops = kernels.load_ring()
    if loops is not None:
        if a.ndim > 2:
            loops.shifted_down(a.reshape(2, -1), bits, out.reshape(2, -1))
        else:
            loops.shifted_down(a, bits, out)
        return out
    down, up = np.uint64(bits), np.uint64(64 - bits)
    out[0] = (a[0] >> down) | (a[1] << up)
    out[1] = a[1] >> down
    return out


def shifted_up(a: Words, bits: int) -> Words:
    """The product of a and 2^bits, 0 < bits < 128."""
    if bits >= 64:
        return np.stack((np.zeros_like(a[0]), a[0] << np.uint64(bits - 64)))
    up = np.uint64(bits)
    return np.stack((a[0] << up, (a[1] << up) | (a[0] >> np.uint64(64 - bits))))


def lifted(a: Words) -> Words:
    """A number with 44 bits after the point, as one with 88."""
    return shifted_up(a, FRACTION)


def cut(share: Words) -> Words:
    """A share of a product as it is sent, without its low ``CUT`` bits: 92 bits a number."""
    return shifted_down(share, CUT)


def opened_within(one: Words, other: Words, *, bits: int, drop: int, offset: int) -> Words:
    """The sum of two shares modulo 2^bits without its low ``drop`` bits, from −offset on."""
    opened = add(add(one, other), _words_like(offset, one))
    opened[1] &= np.uint64(2 ** (bits - 64) - 1)
    lowered = shifted_down(opened, drop) if drop else opened
    return subtract(lowered, _words_like(offset >> drop, one))


def short(share: Words) -> NDArray[np.uint64]:
    """A share of a product without its low 36 and high 28 bits: 64 bits a number."""
    return np.asarray(shifted_down(share, CUT)[0])


def open_short(
    one: NDArray[np.uint64], other: NDArray[np.uint64], *, bits: int = 2 * FRACTION
) -> NDArray[np.uint64]:
    """The number z + λ in units of 2^-44, from two short shares with ``bits`` after the point.

    With 88 bits that is modulo 2^56.  ``short_mask`` is λ in the same units; without it z is off by
    at most one unit.
    """
    return np.asarray((one + other) >> np.uint64(bits - FRACTION - CUT))


def short_mask(mask: Words, *, bits: int = 2 * FRACTION) -> NDArray[np.uint64]:
    """What λ is in ``open_short``."""
    return np.asarray(short(mask) >> np.uint64(bits - FRACTION - CUT))


def rounded(share: Words, *, bits: int = 2 * FRACTION) -> Words:
    """A share with ``bits`` after the point that is opened to one party: ``RELEASED`` are left.

    The whole product of two shared numbers has 88 bits after the point, and they are those of the
    squares of whole numbers: a sum of two squares can be taken apart by its factors.
    """
    return shifted_down(share, bits - RELEASED)


def open_rounded(one: Words, other: Words, *, bits: int = 2 * FRACTION) -> Matrix:
    """The number of which these are rounded shares, off by at most one unit of 2^-40."""
    whole = shifted_up(add(one, other), bits - RELEASED)
    # Each share has lost half a unit on average.
    return decode(whole, bits=bits) + 2.0**-RELEASED


def _words_like(value: int, a: Words) -> Words:
    """A number below 2^64 in each place of ``a``."""
    words = np.zeros(a.shape, np.uint64)
    words[0] = value
    return words


def encode(values: ArrayLike, *, bound: float, what: str) -> Words:
    """The nearest multiples of 2^-44; refuses what is not finite or larger than ``bound``.

    >>> decode(encode([0.5, -3.0], bound=4.0, what="noise"))
    array([ 0.5, -3. ])
    >>> encode([5.0], bound=4.0, what="noise")
    Traceback (most recent call last):
    vfbandits.errors.SharesError: noise must be numbers up to 4 in size, got a larger one; \
nothing was shared
    """
    numbers = np.asarray(values, dtype=np.float64)
    largest = float(np.abs(numbers).max(initial=0.0))
    if not largest <= min(bound, 2.0**REACH):
        came = "one that is not finite" if not math.isfinite(largest) else "a larger one"
        raise SharesError(
            f"{what} must be numbers up to {min(bound, 2.0**REACH):g} in size, got {came}; "
            "nothing was shared"
        )
    whole = np.rint(np.ldexp(numbers, FRACTION)).astype(np.int64)
    return np.stack((whole.view(np.uint64), (whole >> 63).view(np.uint64)))


def decode(a: Words, *, bits: int = FRACTION) -> Matrix:
    """Signed numbers with ``bits`` after the point, as floats."""
    is_negative = a[1] >> np.uint64(63) != 0
    size = np.where(is_negative, negative(a), a)
    numbers = np.ldexp(size[1].astype(np.float64), 64 - bits) + np.ldexp(
        size[0].astype(np.float64), -bits
    )
    return np.asarray(np.where(is_negative, -numbers, numbers))


def from_integers(values: object) -> Words:
    """Nested lists of Python integers as words, modulo 2^128."""
    whole = np.asarray(values, dtype=object) % 2**128
    return np.stack(((whole % 2**64).astype(np.uint64), (whole // 2**64).astype(np.uint64)))


def to_integers(a: Words) -> object:
    """Words as nested lists of Python integers from 0."""
    return (a[0].astype(object) + a[1].astype(object) * 2**64).tolist()


class SheetName(NamedTuple):
    """Which values a sheet of words hides; no two sheets of one secret have the same name.

    Attributes
    ----------
    kind
        What the words are for: "decide", "learn", "fold" or "input".
    epoch, window, slot
        Where in the order of all events.  A slot serves one event, once.
    attempt
        How often the dealer had to draw the window again, which almost never happens.
    """

    kind: str
    epoch: int
    window: int
    attempt: int
    slot: int

    def counter(self, place: int) -> bytes:
        """One of the 2^32 counters that no other name of the same kind has."""
        _, epoch, window, attempt, slot = self
        try:
            return _COUNTER.pack(epoch, window, attempt, slot, place)
        except struct.error:
            raise SharesError(f"there are no words left for {self}") from None


class Layout(Mapping[str, tuple[int, ...]]):
    """Where the named parts of a sheet are in its stream; made once for all sheets of a kind.

    ``places`` has the first byte of each part, the shape of its words, and a bit of its own.

    >>> Layout({"noise": (3,), "scores": (2, 2)}).n_words
    7
    """

    __slots__ = ("_groups", "_parts", "n_words", "places")

    def __init__(self, parts: Mapping[str, tuple[int, ...]]) -> None:
        self._parts = dict(parts)
        self.places: dict[str, tuple[int, tuple[int, ...], int]] = {}
        self._groups: dict[tuple[str, ...], tuple[NDArray[np.int64], int]] = {}
        self.n_words = 0
        for number, (part, shape) in enumerate(parts.items()):
            self.places[part] = WORD_SIZE * self.n_words, (2, *shape), 1 << number
            self.n_words += math.prod(shape)

    def group(self, parts: tuple[str, ...]) -> tuple[NDArray[np.int64], int]:
        """Where these parts begin in the stream, in halves of words, and their bits."""
        group = self._groups.get(parts)
        if group is None:
            places = [self.places[part] for part in parts]
            starts = np.array([start // _WORD_HALF.itemsize for start, _, _ in places])
            group = self._groups[parts] = starts, sum(bit for _, _, bit in places)
        return group

    def __getitem__(self, part: str) -> tuple[int, ...]:
        """The shape of a part."""
        return self._parts[part]

    def __iter__(self) -> Iterator[str]:
        """Names, in the order of the stream."""
        return iter(self._parts)

    def __len__(self) -> int:
        """How many parts."""
        return len(self._parts)


class Sheet:
    """Uniform words for one slot, cut into named parts; each part can be taken once."""

    __slots__ = ("_halves", "_layout", "_stream", "_taken", "name")

    def __init__(self, name: SheetName, stream: bytearray, layout: Layout) -> None:
        self.name = name
        self._stream = stream
        self._layout = layout
        self._taken = 0  # bits of parts
        self._halves: NDArray[np.uint64] | None = None

    def __repr__(self) -> str:
        """Names only: the words are secret."""
        places = self._layout.places.items()
        left = [part for part, (_, _, bit) in places if not bit & self._taken]
        return f"Sheet({self.name}, left={left})"

    def take(self, part: str) -> Words:
        """The words of one part.  A second time they would cover a second value: refused."""
        start, shape, bit = self._layout.places[part]
        if self._taken & bit:
            raise SharesError(f"the words {part!r} of {self.name} were taken before")
        self._taken |= bit
        return np.ndarray(shape, _WORD_HALF, self._stream, start)

    def take_together(self, parts: tuple[str, ...]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """The stream in halves of words, and where each of these parts begins in it.

        A loop that needs many parts cuts them out by itself.  The low halves of a part come first,
        then its high halves.
        """
        starts, bits = self._layout.group(parts)
        if self._taken & bits:
            raise SharesError(f"some of the words {parts} of {self.name} were taken before")
        self._taken |= bits
        if self._halves is None:
            self._halves = np.frombuffer(self._stream, _WORD_HALF)
        return self._halves, starts

    def take_stacked(self) -> NDArray[np.uint64]:
        """All parts of a sheet whose parts have one shape, (n_parts, 2, *shape)."""
        ((_, shape, _), *_) = self._layout.places.values()
        if self._taken:
            raise SharesError(f"some words of {self.name} were taken before")
        self._taken = (1 << len(self._layout)) - 1
        return np.ndarray((len(self._layout), *shape), _WORD_HALF, self._stream)


class WordSource:
    """A secret from which its holders draw the same sheets."""

    __slots__ = ("_ciphers", "_secret")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SECRET_SIZE:
            raise SharesError(f"a source of words needs {SECRET_SIZE} bytes, got {len(secret)}")
        self._secret = secret
        self._ciphers: dict[str, CipherContext] = {}

    def __repr__(self) -> str:
        """Without the secret."""
        return "WordSource()"

    def __reduce__(self) -> tuple[type["WordSource"], tuple[bytes]]:
        """A copy has the secret, and makes its own ciphers."""
        return WordSource, (self._secret,)

    def to_bytes(self) -> bytes:
        """The secret itself, to be sealed or kept in a file that only its owner may read."""
        return self._secret

    def sheet(self, name: SheetName, parts: Mapping[str, tuple[int, ...]]) -> Sheet:
        """The sheet of that name, in parts of these shapes, one after the other in the stream.

        >>> source = WordSource(bytes(32))
        >>> sheet = source.sheet(SheetName("decide", 0, 0, 0, 0), {"noise": (3,), "scores": (2, 2)})
        >>> sheet.take("scores").shape
        (2, 2, 2)
        """
        layout = parts if isinstance(parts, Layout) else Layout(parts)
        return Sheet(name, self._stream(name, 0, layout.n_words), layout)

    def part(self, name: SheetName, layout: Layout, part: str) -> Words:
        """The words of one part of a sheet, for one who needs no other.

        >>> source, name = WordSource(bytes(32)), SheetName("input", 0, 0, 0, 0)
        >>> layout = Layout({"slot 0": (2, 3), "slot 1": (2, 3)})
        >>> whole = source.sheet(name, layout)
        >>> bool((source.part(name, layout, "slot 1") == whole.take("slot 1")).all())
        True
        """
        start, shape, _ = layout.places[part]
        stream = self._stream(name, start // WORD_SIZE, math.prod(shape) // 2)
        return np.ndarray(shape, _WORD_HALF, stream)

    def _stream(self, name: SheetName, first: int, n_words: int) -> bytearray:
        """Words of a sheet: AES of counters that begin with its name, under its kind's key."""
        cipher = self._ciphers.get(name.kind)
        if cipher is None:
            key = hmac.digest(self._secret, name.kind.encode(), "sha256")
            cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
            self._ciphers[name.kind] = cipher
        cipher.reset_nonce(name.counter(first))
        words = bytearray(WORD_SIZE * n_words)
        cipher.update_into(words, words)  # zeros, in place
        return words if sys.byteorder == "little" else _swapped(words)


def _swapped(words: bytearray) -> bytearray:
    return bytearray(np.frombuffer(words, np.uint64).byteswap().tobytes())
