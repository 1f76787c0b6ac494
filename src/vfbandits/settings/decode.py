"""From a TOML or JSON document to a frozen struct, or to one error that names the key.

The structs define the keys of a document, and ``msgspec`` checks its values.  They are checked one
by one, innermost first, so that an error has the whole path of its key.  An error never repeats
text, which may be a password, except for a short word where one of some choices was wanted.
"""

import dataclasses
import difflib
import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import inspect

from vfbandits.errors import ConfigError, SettingError, VFBanditsError
from vfbandits.settings.values import from_text

S = TypeVar("S", bound=msgspec.Struct)

MAX_LISTED = 12
MAX_BITS = 63
_KINDS: dict[type, str] = {
    inspect.BoolType: "true or false",
    inspect.VarTupleType: "a list",
    inspect.StructType: "a table",
    inspect.DataclassType: "a table",
    inspect.DictType: "a table",
    str: "text",
    list: "a list",
    dict: "a table",
    NoneType: "nothing",
}
_WORD = re.compile(r"[\w .-]{1,40}")
_TWICE = re.compile(
    r"Cannot (?:declare .* twice|overwrite a value|mutate .*) [(]at line ([0-9]+), .*", re.DOTALL
)
_HEADER = re.compile(r"\s*\[+\s*([^\]]{1,200}?)\s*\]")
_BARE = re.compile(r"[A-Za-z0-9_-]{1,60}")


def load_document(path: Path, error: type[VFBanditsError] = SettingError) -> dict[str, object]:
    """The keys of a TOML file, unchecked."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as reason:
        raise error(f"{path} must be a file to read, got: {reason.strerror}") from reason
    except ValueError as reason:
        raise error(f"{path} must be a TOML file, but {reason}") from reason
    try:
        return tomllib.loads(f"{text}\n")  # so that an error in the last line has its number
    except (ValueError, RecursionError) as reason:
        fault = _repeated(text, str(reason)) or f" must be a TOML file, but {reason}"
        raise error(f"{path}{fault}") from reason


def _repeated(text: str, reason: str) -> str | None:
    """The key or table that comes twice, and its line; None if the file has another fault."""
    found = _TWICE.fullmatch(reason)
    if found is None:
        return None
    lines, number = text.splitlines(), int(found[1])
    header = _HEADER.match(lines[number - 1])
    if header is None:
        key = lines[number - 1].partition("=")[0].strip()
        # A value that goes over several lines may end there, and is not quoted.
        is_key = any(line.partition("=")[0].strip() == key for line in lines[: number - 1])
        return f", line {number}: {key if is_key else 'a key'} comes twice in its table"
    before = [_HEADER.match(line) for line in lines[: number - 1]]
    places = [place for place, one in enumerate(before, 1) if one and one[1] == header[1]]
    first = f", first in line {places[0]}" if places else ""
    return f", line {number}: the table [{header[1]}] comes twice{first}; join its keys"


def decode(
    document: object,
    kind: type[S],
    *,
    where: str = "",
    folder: Path | None = None,
    error: type[VFBanditsError] = ConfigError,
) -> S:
    """The struct that ``document`` describes; relative paths start at ``folder``.

    >>> from vfbandits.settings.http import HttpSettings
    >>> decode({"address": "127.0.0.1:0", "brust": 5}, HttpSettings, where="shop.toml")
    Traceback (most recent call last):
    vfbandits.errors.ConfigError: shop.toml: brust is not a key, but burst is
    """
    try:
        read: S = _read(document, kind, path="", root=kind)
    except _FaultError as fault:
        raise error(f"{where}: {fault}" if where else str(fault)) from None
    return _anchored(read, folder) if folder else read


def keys_of(kind: type) -> dict[str, Any]:
    """The keys of a struct or dataclass, as a file writes them, with the type of each."""
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {field.name: hints[field.name] for field in dataclasses.fields(kind) if field.init}
    return {field.encode_name: field.type for field in msgspec.structs.fields(kind)}


def alternatives(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401  (an annotation)
    """The types of a union, without None and without what ``Annotated`` adds."""
    if get_origin(kind) is Annotated:
        return alternatives(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return tuple(one for each in get_args(kind) for one in alternatives(each))
    return () if kind is NoneType else (kind,)


def is_table(kind: Any) -> bool:  # noqa: ANN401  (an annotation)
    """Whether a type has keys of its own."""
    return dataclasses.is_dataclass(kind) or (
        isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    )


class _FaultError(Exception):
    """What is wrong in a document, and where."""


def _read(value: object, kind: Any, *, path: str, root: type) -> Any:  # noqa: ANN401  (an annotation)
    if isinstance(value, float) and not math.isfinite(value):
        raise _FaultError(f"{path} must be a finite number, got {value}")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _FaultError(f"{path} must be a finite number, got one of {value.bit_length()} bits")
    for where, item, wanted in _items(value, kind, path, root):
        _read(item, wanted, path=where, root=root)
    try:
        return msgspec.convert(value, kind, dec_hook=from_text)
    except msgspec.ValidationError as error:
        raise _FaultError(_fault(error.__cause__, value, kind, path)) from None


def _items(
    value: object,
    kind: Any,  # noqa: ANN401  (an annotation)
    path: str,
    root: type,
) -> Iterator[tuple[str, object, Any]]:
    """What ``value`` holds: the path, the value and the wanted type of each item."""
    for each in alternatives(kind):
        if isinstance(value, dict) and is_table(each):
            keys = keys_of(each)
            for key, item in value.items():
                if key not in keys:
                    raise _FaultError(_unknown(key, keys, path, root))
                yield _joined(path, key), item, keys[key]
        elif isinstance(value, dict) and get_origin(each) is dict:
            yield from ((_joined(path, key), value[key], get_args(each)[1]) for key in value)
        elif isinstance(value, list) and get_origin(each) is tuple:
            yield from ((f"{path}[{i}]", item, get_args(each)[0]) for i, item in enumerate(value))


def _fault(cause: object, value: object, kind: Any, path: str) -> str:  # noqa: ANN401  (an annotation)
    """What is wrong with ``value``, all of whose items are right."""
    tables = [inspect.type_info(each) for each in alternatives(kind) if is_table(each)]
    fields = {key.encode_name: key for table in tables for key in getattr(table, "fields", ())}
    reason = "" if cause is None else str(cause)
    if reason:  # two keys do not go together
        starts_with_key = reason.split()[0] in fields
        return f"{path}{'.' if starts_with_key else ': '}{reason}" if path else reason
    if isinstance(value, dict):
        for name, key in fields.items():
            if key.required and name not in value:
                return f"{_joined(path, name)} is missing, wanted {_wanted(key.type)}"
    wanted = inspect.type_info(kind)
    may_show = isinstance(wanted, inspect.LiteralType)
    return f"{path} must be {_wanted(wanted)}, got {_came(value, show=may_show)}".strip()


def _unknown(key: str, keys: Mapping[str, Any], path: str, root: type) -> str:
    near = difflib.get_close_matches(key, keys, n=1)
    elsewhere = [each for each in _paths(root) if each.rpartition(".")[2] == key]
    right = [_joined(path, name) for name in near] or elsewhere
    if right:
        return f"{_joined(path, key)} is not a key, but {' or '.join(right[:2])} is"
    shown = ", ".join(list(keys)[:MAX_LISTED]) + ", …" * (len(keys) > MAX_LISTED)
    return f"{_joined(path, key)} is not a key; wanted {shown}"


def _paths(kind: type, path: str = "") -> Iterator[str]:
    """Every key that a document may have, at all depths."""
    for key, wanted in keys_of(kind).items():
        here = _joined(path, key)
        yield here
        for each in alternatives(wanted):
            if get_origin(each) is dict and is_table(get_args(each)[1]):
                yield from _paths(get_args(each)[1], f"{here}.NAME")
            elif is_table(each):
                yield from _paths(each, here)


def _joined(path: str, key: str) -> str:
    shown = key if _BARE.fullmatch(key) else json.dumps(key[:60])
    return f"{path}.{shown}" if path else shown


def _wanted(kind: inspect.Type) -> str:
    """A type in words."""
    if isinstance(kind, inspect.UnionType):
        return " or ".join(_wanted(t) for t in kind.types if not isinstance(t, inspect.NoneType))
    if isinstance(kind, inspect.LiteralType):
        return "one of " * (len(kind.values) > 1) + ", ".join(map(str, kind.values))
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        noun = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
        words = {"above": kind.gt, "of at least": kind.ge, "of at most": kind.le}
        bounds = (f"{word} {bound:g}" for word, bound in words.items() if bound is not None)
        return f"{noun} {' and '.join(bounds)}".strip()
    noun = _KINDS.get(type(kind), "text")
    if isinstance(getattr(kind, "item_type", None), inspect.StructType):
        noun = "a list of tables"
    return f"{noun}, not empty" if getattr(kind, "min_length", None) else noun


def _came(value: object, *, show: bool) -> str:
    """A value in words; text itself only where ``show`` allows it, and if it is a word."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float) or (show and _WORD.fullmatch(str(value))):
        return repr(value)
    if value in ("", []):
        return "empty text" if value == "" else "an empty list"
    return _KINDS.get(type(value), "a date or time")


def _anchored(read: S, folder: Path) -> S:
    """The same with paths that start at ``folder``, in tables within as well."""
    changed: dict[str, object] = {}
    for name in read.__struct_fields__:
        value = getattr(read, name)
        if isinstance(value, Path):
            changed[name] = folder / value
        elif isinstance(value, msgspec.Struct):
            changed[name] = _anchored(value, folder)
    return msgspec.structs.replace(read, **changed)
