"""An answer as bytes: the one message that is large and that every decision waits for.

It is protobuf like the others, and protobuf reads it.  But to have protobuf carry the values costs
two copies at each end, milliseconds at 800 KB.  So it is written by hand: a head of one size, then
the values.  A decoder that finds exactly that takes a view of them; anything else is protobuf's.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

from vfbandits.errors import WireError
from vfbandits.protocol.messages import DIGEST_SIZE, MOST_BYTES, MOST_ROWS, Answer
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.checks import MOST_COUNT, count

# Each field behind its tag: number and kind, where kind 1 is of 8 bytes, 5 of 4, 2 has a length.
_HEAD: Final = Struct("<BQBIBQBB16sBIBIBI")
_TAGS: Final = (
    wire.Answer.ROUND_FIELD_NUMBER << 3 | 1,
    wire.Answer.ATTEMPT_FIELD_NUMBER << 3 | 5,
    wire.Answer.EPOCH_FIELD_NUMBER << 3 | 1,
    wire.Answer.DIGEST_FIELD_NUMBER << 3 | 2,
    wire.Answer.N_ROWS_FIELD_NUMBER << 3 | 5,
    wire.Answer.N_COLUMNS_FIELD_NUMBER << 3 | 5,
    wire.Answer.MISSING_FIELD_NUMBER << 3 | 5,
)
_ANSWER_TAG: Final = bytes([wire.ToActive.ANSWER_FIELD_NUMBER << 3 | 2])
_VALUES_TAG: Final = bytes([wire.Answer.VALUES_FIELD_NUMBER << 3 | 2])
_LONGEST_PREFIX: Final = 6


def encode_answer(m: Answer) -> bytes:
    """A ``ToActive`` with this answer."""
    values = memoryview(m.values)
    size = values.nbytes
    if size != 8 * m.n_rows * m.n_columns:
        raise _misfit(m.n_rows, m.n_columns, size)
    if len(m.digest) != DIGEST_SIZE:
        raise _bad_digest(len(m.digest))
    a, b, c, d, e, f, g = _TAGS
    head = (a, m.round, b, m.attempt, c, m.epoch, d, DIGEST_SIZE, m.digest)
    shape = (e, m.n_rows, f, m.n_columns, g, m.missing)
    before, after = _frame(size)
    return b"".join((before, _HEAD.pack(*head, *shape), after, values))


def find_answer(data: bytes) -> Answer | None:
    """The answer in ``data``, its values a view of it, if it is one as ``encode_answer`` writes."""
    if data[:1] != _ANSWER_TAG or len(data) > MOST_BYTES:
        return None
    start = 2
    while start < _LONGEST_PREFIX and data[start - 1 : start] > b"\x7f":
        start += 1
    end = start + _HEAD.size
    if end > len(data):
        return None
    fields = _HEAD.unpack_from(data, start)
    (a, round_, b, attempt, c, epoch, d, length, digest, e, rows, f, columns, g, missing) = fields
    size = 8 * rows * columns
    if (a, b, c, d, e, f, g) != _TAGS or length != DIGEST_SIZE or size > len(data):
        return None
    before, after = _frame(size)
    if data[:start] != before or data[end : -size or None] != after:
        return None
    values = memoryview(data)[end + len(after) :]
    return _checked(Answer(round_, attempt, epoch, digest, rows, columns, values, missing))


def decode_answer(m: wire.Answer) -> Answer:
    """The answer that protobuf found."""
    numbers = (m.round, m.attempt, m.epoch, m.digest, m.n_rows, m.n_columns)
    return _checked(Answer(*numbers, values=m.values, missing=m.missing))


def _checked(m: Answer) -> Answer:
    """``m``, if there may be such an answer."""
    if len(m.values) != 8 * m.n_rows * m.n_columns:
        raise _misfit(m.n_rows, m.n_columns, len(m.values))
    if len(m.digest) != DIGEST_SIZE:
        raise _bad_digest(len(m.digest))
    if m.missing > m.n_rows:
        raise WireError(f"at most {m.n_rows} rows can be missing, got {m.missing}")
    if m.n_rows > MOST_ROWS or m.round > MOST_COUNT or m.epoch > MOST_COUNT:
        count(m.n_rows, "n_rows", most=MOST_ROWS)
        count(m.round, "round")
        count(m.epoch, "epoch")
    return m


@lru_cache(maxsize=64)
def _frame(size: int) -> tuple[bytes, bytes]:
    """What stands before the head of an answer with ``size`` bytes of values, and after it."""
    after = _VALUES_TAG + _varint(size)
    return _ANSWER_TAG + _varint(_HEAD.size + len(after) + size), after


def _varint(number: int) -> bytes:
    """Protobuf's own form of a length."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _misfit(rows: int, columns: int, size: int) -> WireError:
    return WireError(f"{rows} rows of {columns} values take 8 bytes each, got {size} bytes")


def _bad_digest(size: int) -> WireError:
    return WireError(f"a digest has {DIGEST_SIZE} bytes, got {size}")
