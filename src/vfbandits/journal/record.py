"""An event as bytes: versioned, compact, free of pickle, with a checksum.

::

    version u8 | kind u8 | fields, an array in MessagePack | CRC-32 u32, of all before it

The fields are those of the event's class, in their order; a record may lack the last ones if they
were added to the class later (``later``).  A context is raw little-endian float64, so it comes back
bit for bit; a matrix is (rows, columns, raw float64).  Integers of more than 64 bits and text that
is not valid UTF-8 are extensions.  All journals store the same bytes.

Only ``VERSION`` is written.  A record of an earlier version goes through ``UPCASTERS``.
"""

import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from operator import attrgetter
from sys import float_info
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeAlias, Union, get_args, get_origin
from typing import get_type_hints as type_hints

import msgspec
import numpy as np

from vfbandits.campaign.events import (
    Activated,
    Administered,
    ArmsDropped,
    Configured,
    Decided,
    Erased,
    Event,
    Forgotten,
    GuardrailRearmed,
    GuardrailTripped,
    LossAccepted,
    MasksChanged,
    Offered,
    Recalled,
    Reported,
    Resized,
    Restored,
    Retracted,
    Rewarded,
    SetAside,
)
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import JournalError, RecordError
from vfbandits.journal.snapshot import open_sealed, seal_snapshot
from vfbandits.versions import upcast

VERSION: Final = 1  # at most 127: higher values mark encrypted records (codec.py)
# Kind and fields of a record, as one version has them and as the next one does.
Fields: TypeAlias = tuple[int, list[object]]
UPCASTERS: dict[int, Callable[[Fields], Fields]] = {}

_HEAD_SIZE: Final = 2
_CHECKSUM: Final = struct.Struct("<I")
_FLOAT: Final = np.dtype("<f8")
_LARGE, _TEXT = 1, 2  # codes of MessagePack extensions
_Finite: TypeAlias = Annotated[float, msgspec.Meta(ge=-float_info.max, le=float_info.max)]


def encode(event: Event) -> bytes:
    """The record of an event; refuses what ``decode`` would not read back.

    >>> decode(encode(Forgotten("order-17")), 1)
    Forgotten(event_id='order-17')
    """
    form = _FORMS.get(type(event))
    try:
        if form is None:
            raise TypeError(f"wanted a class of events.py, got {type(event).__name__}")
        body = bytes((VERSION, form.kind)) + form.pack(event)
    except _UNWRITABLE as error:
        raise JournalError(f"a {type(event).__name__} cannot be written: {error}") from error
    return body + _CHECKSUM.pack(zlib.crc32(body))


def is_whole(record: object) -> bool:
    """Whether these are the bytes that were written; their meaning is not checked."""
    if not isinstance(record, bytes) or len(record) < _HEAD_SIZE + _CHECKSUM.size:
        return False
    body = memoryview(record)[: -_CHECKSUM.size]
    return _CHECKSUM.pack(zlib.crc32(body)) == record[-_CHECKSUM.size :]


def decode(record: object, position: int) -> Event:
    """The event of a record; ``position`` is only for the error."""
    if not isinstance(record, bytes) or not is_whole(record):
        raise RecordError(
            f"record {position} of the journal is damaged: its checksum is wrong", position
        )
    version, kind, body = record[0], record[1], memoryview(record)[_HEAD_SIZE : -_CHECKSUM.size]
    try:
        if version == VERSION:
            return _form_of(kind).read(body)
        older = upcast(
            (kind, _fields(body)),
            version,
            newest=VERSION,
            upcasters=UPCASTERS,
            what=f"record {position} of the journal",
            error=JournalError,
        )
        return _form_of(older[0]).unpack(older[1])
    except JournalError:
        raise
    except _UNREADABLE as error:
        raise JournalError(f"record {position} of the journal is not an event: {error}") from error


class _Packing(NamedTuple):
    """How to store a value that MessagePack has no type for."""

    kept_as: Any
    pack: Callable[[Any], object]
    unpack: Callable[[Any], object]


class _Form:
    """How to store the events of one class; ``packed`` are the fields with a form of their own.

    A record may lack the last ``later`` fields, which were added to the class later.
    """

    def __init__(
        self,
        kind: int,
        event: type[Event],
        packed: Mapping[str, _Packing] | None = None,
        *,
        later: int = 0,
    ) -> None:
        packed = packed or {}
        names = [field.name for field in fields(event)]
        hints = type_hints(event)
        kept_as = [packed[name].kept_as if name in packed else _finite(hints[name])
                   for name in names]  # fmt: skip
        self.kind = kind
        self._event: Callable[..., Event] = event
        self._values = attrgetter(*names) if len(names) > 1 else lambda made: (
            getattr(made, names[0]),
        )  # fmt: skip
        self._n_fields = len(names)
        self._later: list[object] = [field.default for field in fields(event)[len(names) - later :]]
        self._packed = [(names.index(name), packing) for name, packing in packed.items()]
        self._type: Any = tuple[tuple(kept_as)]  # type: ignore[misc]  # known when it runs
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(self._type)

    def pack(self, event: Event) -> bytes:
        """The fields as MessagePack."""
        values = list(self._values(event))
        for place, packing in self._packed:
            values[place] = packing.pack(values[place])
        try:
            body = _ENCODER.encode(values)
            self._decoder.decode(body)  # which checks every type
        except (OverflowError, UnicodeEncodeError):
            body = _ENCODER.encode(_extended(values))
            self.unpack(_fields(body))
        return body

    def read(self, body: memoryview) -> Event:
        """The event whose fields these are."""
        try:
            values = self._decoder.decode(body)
        except msgspec.ValidationError:  # there may be extensions in it
            return self.unpack(_fields(body))
        return self._make(values)

    def unpack(self, values: list[object]) -> Event:
        """The event with these fields, after a check of their types."""
        n_missing = self._n_fields - len(values)
        if 0 < n_missing <= len(self._later):
            values = [*values, *self._later[-n_missing:]]
        return self._make(msgspec.convert(values, self._type, builtin_types=(bytes,)))

    def _make(self, values: tuple[object, ...]) -> Event:
        made = list(values)
        for place, packing in self._packed:
            made[place] = packing.unpack(made[place])
        return self._event(*made)


def _finite(hint: object) -> Any:  # noqa: ANN401  (a type, built when the module is loaded)
    """A type in which numbers are finite: NaN in a journal would be learnt after a restart."""
    if hint is float:
        return _Finite
    if get_origin(hint) in (Union, UnionType):
        return Union[tuple(_finite(one) for one in get_args(hint))]  # noqa: UP007  (made of parts)
    return hint


def _pack_vector(x: Vector) -> bytes:
    if x.ndim != 1:
        raise ValueError(f"a context is one row, got shape {x.shape}")
    return x.astype(_FLOAT, copy=False).tobytes()


def _unpack_vector(data: bytes) -> Vector:
    return np.frombuffer(data, _FLOAT).astype(np.float64)


def _pack_matrix(matrix: Matrix) -> tuple[int, int, bytes]:
    rows, columns = matrix.shape
    return rows, columns, matrix.astype(_FLOAT, copy=False).tobytes()


def _unpack_matrix(kept: tuple[int, int, bytes]) -> Matrix:
    rows, columns, data = kept
    return np.frombuffer(data, _FLOAT).astype(np.float64).reshape(rows, columns)


def _pack_recalled(recalled: Recalled | None) -> tuple[object, ...] | None:
    if recalled is None:
        return None
    return recalled.opened, _pack_vector(recalled.x), recalled.model


def _unpack_recalled(kept: tuple[int, bytes, int | str | None] | None) -> Recalled | None:
    if kept is None:
        return None
    opened, x, model = kept
    return Recalled(opened, _unpack_vector(x), model)


def _pack_offered(offered: Offered | None) -> tuple[object, ...] | None:
    if offered is None:
        return None
    features = offered.arm_features
    packed = None if features is None else _pack_matrix(features)
    return offered.arms, _pack_matrix(offered.rows), packed


def _unpack_offered(kept: tuple[Any, Any, Any] | None) -> Offered | None:
    if kept is None:
        return None
    arms, rows, features = kept
    return Offered(
        arms, _unpack_matrix(rows), None if features is None else _unpack_matrix(features)
    )


def _plain(value: object) -> object:
    """A plain float for NumPy's own float, which MessagePack cannot encode."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"wanted a plain value, got {type(value).__name__}")


def _extended(value: object) -> object:
    """``value`` with extensions for large integers and for text that is not valid UTF-8."""
    if isinstance(value, list | tuple):
        return [_extended(one) for one in value]
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return msgspec.msgpack.Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        size = value.bit_length() // 8 + 1
        return msgspec.msgpack.Ext(_LARGE, value.to_bytes(size, "little", signed=True))
    return value


def _from_extension(code: int, data: memoryview) -> object:
    if code == _LARGE:
        return int.from_bytes(data, "little", signed=True)
    if code == _TEXT:
        return bytes(data).decode("utf-8", "surrogatepass")
    raise ValueError(f"there is no extension {code}")


def _fields(body: bytes | memoryview) -> list[object]:
    found = _ANY_FIELDS.decode(body)
    if not isinstance(found, list):
        raise TypeError(f"the fields of a record are an array, got {type(found).__name__}")
    return found


def _form_of(kind: int) -> _Form:
    form = _BY_KIND.get(kind)
    if form is None:
        raise LookupError(f"there is no kind {kind}")
    return form


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_ANY_FIELDS: Final = msgspec.msgpack.Decoder(ext_hook=_from_extension)
_UNWRITABLE: Final = (AttributeError, OverflowError, TypeError, ValueError, msgspec.MsgspecError)
_UNREADABLE: Final = (
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
    msgspec.MsgspecError,
)
_VECTOR: Final = _Packing(bytes, _pack_vector, _unpack_vector)
_MATRIX: Final = _Packing(tuple[int, int, bytes], _pack_matrix, _unpack_matrix)
_RECALLED: Final = _Packing(
    tuple[int, bytes, int | str | None] | None, _pack_recalled, _unpack_recalled
)
_SNAPSHOT: Final = _Packing(bytes, seal_snapshot, open_sealed)
_OFFERED: Final = _Packing(
    tuple[tuple[int | str, ...], tuple[int, int, bytes], tuple[int, int, bytes] | None] | None,
    _pack_offered,
    _unpack_offered,
)
LOSS_ACCEPTED: Final = 9
# A number is never reused for another kind.
_FORMS: Final[dict[type, _Form]] = {
    Decided: _Form(1, Decided, {"x": _VECTOR, "offered": _OFFERED}, later=2),
    Rewarded: _Form(2, Rewarded, {"recalled": _RECALLED}),
    MasksChanged: _Form(3, MasksChanged, {"matrix": _MATRIX}),
    Forgotten: _Form(4, Forgotten, later=1),
    Activated: _Form(5, Activated),
    Reported: _Form(6, Reported),
    Configured: _Form(7, Configured),
    Retracted: _Form(8, Retracted, {"x": _VECTOR}),
    LossAccepted: _Form(LOSS_ACCEPTED, LossAccepted),
    SetAside: _Form(10, SetAside),
    ArmsDropped: _Form(11, ArmsDropped),
    Resized: _Form(12, Resized),
    Erased: _Form(13, Erased),
    Administered: _Form(14, Administered),
    Restored: _Form(15, Restored, {"model": _SNAPSHOT}),
    GuardrailTripped: _Form(16, GuardrailTripped),
    GuardrailRearmed: _Form(17, GuardrailRearmed),
}
_BY_KIND: Final = {form.kind: form for form in _FORMS.values()}
