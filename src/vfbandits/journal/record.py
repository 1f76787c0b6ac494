"""An event as bytes: versioned, compact, free of pickle, with a checksum.

::

    version u8 | kind u8 | zero u16 | size of fields u32 | number of floats u32
    fields     a JSON list
    floats     raw float64: a context, a reward, a matrix
    rest       bytes that the caller gave
    CRC-32     u32, of all before it

All numbers are little-endian.  The same bytes are kept by every journal.
"""

import json
import math
import struct
import zlib
from functools import lru_cache
from json.encoder import encode_basestring_ascii as _quote

import numpy as np

from vfbandits.campaign.events import (
    Activated,
    ArmsDropped,
    Configured,
    Decided,
    Event,
    Forgotten,
    LossAccepted,
    Moved,
    Recalled,
    Reported,
    Resized,
    Retracted,
    Rewarded,
    SetAside,
)
from vfbandits.core.arrays import Vector
from vfbandits.core.decision import ArmId, DecisionId
from vfbandits.errors import JournalError, RecordError

VERSION = 2
_HEAD = struct.Struct("<BBHII")
_CHECKSUM = struct.Struct("<I")
_FLOAT = np.dtype("<f8")
_REWARD = struct.Struct("<d")
_DECIDED, _REWARDED, _MOVED, _FORGOTTEN, _ACTIVATED, _REPORTED, _CONFIGURED = range(1, 8)
_RETRACTED, _LOSS_ACCEPTED, _SET_ASIDE, _ARMS_DROPPED = range(8, 12)
LOSS_ACCEPTED = _LOSS_ACCEPTED
_RESIZED = 16


def encode(event: Event) -> bytes:
    """The record of an event.

    >>> encode(Forgotten("order-17")).hex(" ", 4)
    '02040000 0c000000 00000000 5b226f72 6465722d 3137225d 296b7fed'
    """
    try:
        kind, fields, floats, rest = _parts(event)
        text, n_floats = fields.encode("ascii"), len(floats) // _FLOAT.itemsize
        body = b"".join((_HEAD.pack(VERSION, kind, 0, len(text), n_floats), text, floats, rest))
    except (AttributeError, TypeError, ValueError) as error:
        raise JournalError(f"a {type(event).__name__} cannot be written: {error}") from error
    return body + _CHECKSUM.pack(zlib.crc32(body))


def is_whole(record: object) -> bool:
    """Whether these bytes are as they were written; says nothing about what they mean."""
    if not isinstance(record, bytes) or len(record) < _HEAD.size + _CHECKSUM.size:
        return False
    body = memoryview(record)[: -_CHECKSUM.size]
    return _CHECKSUM.pack(zlib.crc32(body)) == record[-_CHECKSUM.size :]


def decode(record: object, position: int) -> Event:
    """The event of a record; ``position`` is where it stands, for the error."""
    if not isinstance(record, bytes) or not is_whole(record):
        raise RecordError(
            f"record {position} of the log is damaged: its checksum is wrong", position
        )
    version, kind, _, n_text, n_floats = _HEAD.unpack_from(record)
    if version != VERSION:
        raise JournalError(
            f"record {position} of the log must have version {VERSION}, got {version}: "
            "was it written by another vfbandits?"
        )
    start = _HEAD.size + n_text
    stop = start + n_floats * _FLOAT.itemsize
    try:
        fields = json.loads(record[_HEAD.size : start])
        floats = np.frombuffer(record, _FLOAT, n_floats, start).astype(np.float64)
        return _event(kind, fields, floats, record[stop : -_CHECKSUM.size])
    except (TypeError, ValueError) as error:
        raise JournalError(f"record {position} of the log is not an event: {error}") from error


def _parts(event: Event) -> tuple[int, str, bytes, bytes]:
    """Kind, fields as JSON, floats as bytes, and the rest.

    Spelt by hand: this is the dearest part of a commit, and ``json`` takes twice as long.
    """
    if isinstance(event, Decided):
        x = event.x.astype(_FLOAT, copy=False).tobytes()
        return _DECIDED, _spell_decided(event), x, event.note
    if isinstance(event, Rewarded):
        return _spell_rewarded(event)
    if isinstance(event, Moved):
        rows, columns = event.matrix.shape
        matrix = event.matrix.astype(_FLOAT, copy=False).tobytes()
        return _MOVED, f"[{_whole(event.epoch)},{rows},{columns}]", matrix, event.note
    if isinstance(event, Forgotten):
        fields = f"[{_spell_id(event.decision_id)}{_spell_opened(event.opened)}]"
        return _FORGOTTEN, fields, b"", b""
    if isinstance(event, Configured):
        return _CONFIGURED, f"[{_spell_number(event.at)}]", b"", event.settings
    return _spell_rare(event)


def _spell_rewarded(event: Rewarded) -> tuple[int, str, bytes, bytes]:
    reward_id = "null" if event.reward_id is None else _quote(_text(event.reward_id))
    fields = f"{_spell_id(event.decision_id)},{_spell_number(event.at)},{reward_id}"
    value, recalled = _REWARD.pack(float(event.value)), event.recalled
    if recalled is None:
        return _REWARDED, f"[{fields}]", value, b""
    model = "null" if recalled.model is None else _spell_id(recalled.model)
    x = recalled.x.astype(_FLOAT, copy=False).tobytes()
    return _REWARDED, f"[{fields},{_whole(recalled.opened)},{model}]", value + x, b""


def _spell_rare(event: object) -> tuple[int, str, bytes, bytes]:
    if isinstance(event, Activated):
        when = f"{_spell_due(event.due)},{_spell_number(event.at)}"
        fields = f"[{_spell_id(event.decision_id)},{when}{_spell_opened(event.opened)}]"
        return _ACTIVATED, fields, b"", b""
    if isinstance(event, Reported):
        words = (_quote(_text(event.reward_id)), _quote(_text(event.why)), _spell_number(event.at))
        fields = f"[{_spell_id(event.decision_id)},{','.join(words)}]"
        return _REPORTED, fields, _REWARD.pack(float(event.value)), b""
    if isinstance(event, Retracted):
        model = "null" if event.model is None else _spell_id(event.model)
        when = f"{_whole(event.epoch)},{_spell_number(event.at)}"
        fields = f"[{_spell_id(event.decision_id)},{model},{when},{_quote(_text(event.by))}]"
        floats = _REWARD.pack(float(event.value)) + event.x.astype(_FLOAT, copy=False).tobytes()
        return _RETRACTED, fields, floats, b""
    if isinstance(event, ArmsDropped):
        arms = ",".join(map(_spell_id, event.arms))
        return _ARMS_DROPPED, f"[{_spell_number(event.at)},[{arms}]]", b"", b""
    return _spell_mending(event)


def _spell_mending(event: object) -> tuple[int, str, bytes, bytes]:
    if isinstance(event, LossAccepted):
        numbers = f"{_whole(event.expected)},{_whole(event.found)}"
        words = f"{_quote(_text(event.why))},{_quote(_text(event.by))}"
        return _LOSS_ACCEPTED, f"[{numbers},{words},{_spell_number(event.at)}]", b"", b""
    if isinstance(event, SetAside):
        covered = "null" if event.covered_by is None else str(_whole(event.covered_by))
        words = f"{_quote(_text(event.why))},{covered},{_quote(_text(event.by))}"
        return _SET_ASIDE, f"[{words},{_spell_number(event.at)}]", b"", b""
    if isinstance(event, Resized):
        return _RESIZED, f"[{_whole(event.max_pending)}]", b"", b""
    raise TypeError("an event is one of those in events.py")


def _spell_opened(opened: int) -> str:
    return f",{_whole(opened)}" if opened else ""


def _spell_decided(event: Decided) -> str:
    model, probability, user = event.model, event.probability, event.user
    fields = (
        _spell_id(event.decision_id),
        _spell_id(event.arm),
        str(_whole(event.index)),
        "null" if model is None else _spell_id(model),
        "null" if probability is None else _spell_number(probability),
        _spell_texts(tuple(event.contributors)),
        str(_whole(event.epoch)),
        "null" if user is None else _quote(_text(user)),
        _spell_number(event.at),
        _spell_flag(event.root),
        _quote(_text(event.group)),
        _spell_due(event.due),
        _spell_flag(event.held),
        _spell_number(event.seconds),
    )
    return f"[{','.join(fields)}]"


def _spell_id(value: object) -> str:
    return _quote(value) if isinstance(value, str) else str(int(_id(value)))


def _spell_flag(value: object) -> str:
    if not isinstance(value, bool):
        raise TypeError(f"a flag is true or false, got {type(value).__name__}")
    return "true" if value else "false"


def _spell_due(due: float | None) -> str:
    return "null" if due is None else _spell_number(due)


def _spell_number(value: object) -> str:
    number = _number(value)
    if not math.isfinite(number):
        raise ValueError(f"a number must be finite, got {number}")
    return float.__repr__(number)


@lru_cache(maxsize=256)
def _spell_texts(values: tuple[str, ...]) -> str:
    return f"[{','.join(_quote(_text(value)) for value in values)}]"


def _event(kind: int, fields: list[object], floats: Vector, rest: bytes) -> Event:
    if kind == _DECIDED:
        return _decided(fields, floats, rest)
    if kind == _REWARDED:
        name, at, reward_id, *recalled = fields
        source = None if reward_id is None else _text(reward_id)
        seen = _recalled(recalled, floats)
        return Rewarded(_id(name), float(floats[0]), _number(at), source, seen)
    if kind == _MOVED:
        epoch, rows, columns = (_whole(field) for field in fields)
        return Moved(epoch, floats.reshape(rows, columns), rest)
    if kind == _FORGOTTEN:
        name, *opened = fields
        return Forgotten(_id(name), _opened(opened))
    return _rare(kind, fields, floats, rest)


def _rare(kind: int, fields: list[object], floats: Vector, rest: bytes) -> Event:
    if kind == _ACTIVATED:
        name, due, at, *opened = fields
        return Activated(_id(name), _due(due), _number(at), _opened(opened))
    if kind == _REPORTED:
        name, reward_id, why, at = fields
        (value,) = floats
        return Reported(_id(name), float(value), _text(reward_id), _text(why), _number(at))
    if kind == _CONFIGURED:
        (at,) = fields
        return Configured(rest, _number(at))
    if kind == _RETRACTED:
        name, model, epoch, at, by = fields
        of = None if model is None else _id(model)
        value, x = float(floats[0]), floats[1:]
        return Retracted(_id(name), value, x, of, _whole(epoch), _number(at), _text(by))
    if kind == _ARMS_DROPPED:
        at, arms = fields
        return ArmsDropped(_ids(arms), _number(at))
    return _mending(kind, fields)


def _mending(kind: int, fields: list[object]) -> Event:
    if kind == _LOSS_ACCEPTED:
        expected, ended, why, by, at = fields
        return LossAccepted(_whole(expected), _whole(ended), _text(why), _text(by), _number(at))
    if kind == _SET_ASIDE:
        why, covered, by, at = fields
        snapshot = None if covered is None else _whole(covered)
        return SetAside(_text(why), snapshot, _text(by), _number(at))
    if kind == _RESIZED:
        (max_pending,) = fields
        return Resized(_whole(max_pending))
    raise ValueError(f"there is no kind {kind}")


def _opened(fields: list[object]) -> int:
    if not fields:
        return 0
    (opened,) = fields
    return _whole(opened)


def _recalled(fields: list[object], floats: Vector) -> Recalled | None:
    if not fields and len(floats) == 1:
        return None
    if not fields or len(floats) < 2:
        raise ValueError(
            f"a reward is one number, and a context if it was recalled, got {floats.shape}"
        )
    opened, model = fields
    return Recalled(_whole(opened), floats[1:].copy(), None if model is None else _id(model))


def _decided(fields: list[object], floats: Vector, rest: bytes) -> Decided:
    name, arm, index, model, probability, contributors, epoch, user, at, *more = fields
    root, group, due, held, *seconds = more  # the last one is missing in older records
    return Decided(
        decision_id=_id(name),
        arm=_id(arm),
        index=_whole(index),
        x=floats,
        model=None if model is None else _id(model),
        probability=None if probability is None else _number(probability),
        contributors=_texts(contributors),
        epoch=_whole(epoch),
        user=None if user is None else _text(user),
        at=_number(at),
        root=root is True,
        group=_text(group),
        due=_due(due),
        held=held is True,
        note=rest,
        seconds=_number(seconds[0]) if seconds else 0.0,
    )


def _due(value: object) -> float | None:
    return None if value is None else _number(value)


def _id(value: object) -> DecisionId | ArmId:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(f"an id is a whole number or text, got {type(value).__name__}")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a count is a whole number, got {type(value).__name__}")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"a number was wanted, got {type(value).__name__}")
    return float(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a name is text, got {type(value).__name__}")
    return value


def _ids(values: object) -> tuple[ArmId, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"ids are a list, got {type(values).__name__}")
    return tuple(_id(value) for value in values)


def _texts(values: object) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"names are a list, got {type(values).__name__}")
    return tuple(_text(value) for value in values)
