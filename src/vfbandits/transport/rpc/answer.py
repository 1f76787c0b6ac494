"""An answer as bytes: the one message that is large and that every decision waits for.

It is protobuf like the others, and protobuf reads it.  But to have protobuf carry the values costs
two copies at each end, milliseconds at 800 KB.  So it is written by hand: a head of one size, then
the values.  A decoder that finds exactly that takes a view of them; anything else is protobuf's,
such as an answer with rows that are withheld.
"""

from functools import lru_cache
from operator import itemgetter
from struct import Struct
from typing import Final

from vfbandits.errors import WireError
from vfbandits.protocol.messages import DIGEST_SIZE, MAX_BYTES, MAX_ROWS, Answer
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.checks import MAX_COUNT, count

# Each field behind its tag: number and kind, where kind 1 is of 8 bytes, 5 of 4, 2 has a length.
_HEAD: Final = Struct("<BQBIBQBB16sBIBIBI")
_FIXED: Final = (
    wire.Answer.ROUND_FIELD_NUMBER << 3 | 1,
    wire.Answer.ATTEMPT_FIELD_NUMBER << 3 | 5,
    wire.Answer.EPOCH_FIELD_NUMBER << 3 | 1,
    wire.Answer.DIGEST_FIELD_NUMBER << 3 | 2,
    DIGEST_SIZE,
    wire.Answer.N_ROWS_FIELD_NUMBER << 3 | 5,
    wire.Answer.N_COLUMNS_FIELD_NUMBER << 3 | 5,
    wire.Answer.MISSING_FIELD_NUMBER << 3 | 5,
)
_ANSWER_TAG: Final = bytes([wire.ToActive.ANSWER_FIELD_NUMBER << 3 | 2])
_VALUES_TAG: Final = bytes([wire.Answer.VALUES_FIELD_NUMBER << 3 | 2])
_MAX_VARINT_LENGTH: Final = 5  # of a number below 2^35, far above MAX_BYTES
# Of what a head unpacks to, what is the same in every answer, and the rest.
_fixed: Final = itemgetter(0, 2, 4, 6, 7, 9, 11, 13)
_given: Final = itemgetter(1, 3, 5, 8, 10, 12, 14)


def encode_answer(m: Answer) -> bytes:
    """A ``ToActive`` with this answer."""
    number, attempt, epoch, digest, rows, columns, values, missing, withheld = m
    size = memoryview(values).nbytes
    if size != 8 * rows * columns:
        raise _misfit(rows, columns, size)
    if len(digest) != DIGEST_SIZE:
        raise _bad_digest(len(digest))
    if withheld:
        return _encode_rare(m)
    a, b, c, d, length, e, f, g = _FIXED
    head = _HEAD.pack(
        a, number, b, attempt, c, epoch, d, length, digest, e, rows, f, columns, g, missing
    )
    before, after = _frame(size)
    return b"".join((before, head, after, values))


def find_answer(data: bytes) -> Answer | None:
    """The answer in ``data``, its values a view of it, if it is one as ``encode_answer`` writes.

    None too for one that cannot be: what is wrong with it is said when protobuf has read it.
    """
    size = _size_of_values(len(data))
    if size is None:
        return None
    before, after = _frame(size)
    start = len(before)
    if not data.startswith(before) or not data.startswith(after, start + _HEAD.size):
        return None
    fields = _HEAD.unpack_from(data, start)
    number, attempt, epoch, digest, rows, columns, missing = _given(fields)
    if (
        _fixed(fields) != _FIXED
        or 8 * rows * columns != size
        or not missing <= rows <= MAX_ROWS
        or number > MAX_COUNT
        or epoch > MAX_COUNT
    ):
        return None
    values = memoryview(data)[len(data) - size :]
    return Answer(number, attempt, epoch, digest, rows, columns, values, missing)


def decode_answer(m: wire.Answer) -> Answer:
    """The answer that protobuf found."""
    if len(m.values) != 8 * m.n_rows * m.n_columns:
        raise _misfit(m.n_rows, m.n_columns, len(m.values))
    if len(m.digest) != DIGEST_SIZE:
        raise _bad_digest(len(m.digest))
    if m.missing > m.n_rows:
        raise WireError(f"at most {m.n_rows} rows can be missing, got {m.missing}")
    count(m.n_rows, "n_rows", most=MAX_ROWS)
    count(m.round, "round")
    count(m.epoch, "epoch")
    numbers = (m.round, m.attempt, m.epoch, m.digest, m.n_rows, m.n_columns)
    withheld = tuple(m.withheld[:])
    if len(withheld) > m.n_rows:
        raise WireError(f"at most {m.n_rows} rows can be withheld, got {len(withheld)}")
    return Answer(*numbers, values=m.values, missing=m.missing, withheld=withheld)


def _encode_rare(m: Answer) -> bytes:
    """An answer with fields that few have, as protobuf writes it."""
    answer = wire.Answer(
        round=m.round,
        attempt=m.attempt,
        epoch=m.epoch,
        digest=m.digest,
        n_rows=m.n_rows,
        n_columns=m.n_columns,
        missing=m.missing,
        withheld=m.withheld,
        values=bytes(m.values),
    )
    return wire.ToActive(answer=answer).SerializeToString()


@lru_cache(maxsize=64)
def _size_of_values(whole: int) -> int | None:
    """Bytes of values in an answer of ``whole`` bytes; None if there is none of that length."""
    if whole > MAX_BYTES:
        return None
    # What stands around the values grows with them, so that one size fits at most.
    for around in range(_HEAD.size + 4, _HEAD.size + 2 * _MAX_VARINT_LENGTH + 3):
        size = whole - around
        if size >= 0 and sum(map(len, _frame(size))) + _HEAD.size == around:
            return size
    return None


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
