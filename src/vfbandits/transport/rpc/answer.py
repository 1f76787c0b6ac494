"""An answer as bytes: the one message that is large and that every decision waits for.

It is protobuf like the others, and protobuf reads it.  But to have protobuf carry the values costs
two copies at each end, milliseconds at 800 KB.  So it is written by hand: a head of one size, then
the values.  A decoder that finds exactly that takes a view of them; anything else is protobuf's,
such as an answer with rows that are withheld.

The head is a multiple of 8 bytes long: NumPy and BLAS copy numbers that are not aligned before they
look at them.  So lengths are written with the five bytes that the largest may need.
"""

from functools import lru_cache
from struct import Struct
from typing import Final

from vfbandits.errors import WireError
from vfbandits.protocol.messages import DIGEST_SIZE, MAX_BYTES, MAX_ROWS, Answer
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.checks import MAX_COUNT, count

# Each field after its tag: number and kind, where kind 1 is of 8 bytes, 5 of 4, 2 has a length.
_HEAD: Final = Struct("<B5s BQ BQ BQ BB16s BI BI BI B5s")
_FIELDS: Final = Struct("<6x xQ xQ xQ 2x16s xI xI xI 6x")  # of the same head, without the tags
_ANSWER: Final = wire.ToActive.ANSWER_FIELD_NUMBER << 3 | 2
_ROUND: Final = wire.Answer.ROUND_FIELD_NUMBER << 3 | 1
_ATTEMPT: Final = wire.Answer.ATTEMPT_FIELD_NUMBER << 3 | 1
_EPOCH: Final = wire.Answer.EPOCH_FIELD_NUMBER << 3 | 1
_DIGEST: Final = wire.Answer.DIGEST_FIELD_NUMBER << 3 | 2
_N_ROWS: Final = wire.Answer.N_ROWS_FIELD_NUMBER << 3 | 5
_N_COLUMNS: Final = wire.Answer.N_COLUMNS_FIELD_NUMBER << 3 | 5
_MISSING: Final = wire.Answer.MISSING_FIELD_NUMBER << 3 | 5
_VALUES: Final = wire.Answer.VALUES_FIELD_NUMBER << 3 | 2
_BEFORE_FIELDS: Final = 6  # the tag and the length of the whole answer


def encode_answer(m: Answer) -> bytes:
    """A ``ToActive`` with this answer."""
    rows, columns, values = m.n_rows, m.n_columns, m.values
    size = memoryview(values).nbytes
    if size != 8 * rows * columns:
        raise _misfit(rows, columns, size)
    if len(m.digest) != DIGEST_SIZE:
        raise _bad_digest(len(m.digest))
    if m.withheld:
        return _encode_rare(m)
    head = _head(size, m.round, m.attempt, m.epoch, m.digest, rows, columns, m.missing)
    return b"".join((head, values))


def find_answer(data: bytes) -> Answer | None:
    """The answer in ``data``, its values a view of it, if it is one as ``encode_answer`` writes.

    None also for an invalid one: ``decode_answer`` raises the error.
    """
    if not _HEAD.size <= len(data) <= MAX_BYTES:
        return None
    size = len(data) - _HEAD.size
    fields = _FIELDS.unpack_from(data)
    number, attempt, epoch, digest, rows, columns, missing = fields
    if (
        8 * rows * columns != size
        or not missing <= rows <= MAX_ROWS
        or max(number, attempt, epoch) > MAX_COUNT
        or not data.startswith(_head(size, *fields))
    ):
        return None
    values = memoryview(data)[_HEAD.size :]
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
    count(m.attempt, "attempt")
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


def _head(  # noqa: PLR0913, PLR0917  (the fields, in their order)
    size: int,
    number: int,
    attempt: int,
    epoch: int,
    digest: bytes,
    rows: int,
    columns: int,
    missing: int,
) -> bytes:
    """The head that precedes ``size`` bytes of values."""
    whole, length = varint(_HEAD.size - _BEFORE_FIELDS + size), varint(size)
    return _HEAD.pack(
        _ANSWER, whole,
        _ROUND, number,
        _ATTEMPT, attempt,
        _EPOCH, epoch,
        _DIGEST, DIGEST_SIZE, digest,
        _N_ROWS, rows,
        _N_COLUMNS, columns,
        _MISSING, missing,
        _VALUES, length,
    )  # fmt: skip


@lru_cache(maxsize=256)
def varint(number: int) -> bytes:
    """Protobuf's own form of a length, with all of five bytes.

    >>> varint(1).hex()
    '8180808000'
    """
    parts = [number >> shift & 127 for shift in (0, 7, 14, 21, 28)]
    return bytes([*(part | 128 for part in parts[:4]), parts[4]])


def _misfit(rows: int, columns: int, size: int) -> WireError:
    return WireError(f"{rows} rows of {columns} values take 8 bytes each, got {size} bytes")


def _bad_digest(size: int) -> WireError:
    return WireError(f"a digest has {DIGEST_SIZE} bytes, got {size}")
