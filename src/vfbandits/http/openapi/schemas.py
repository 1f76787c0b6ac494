"""Schemas of the structs that go over HTTP, in the shape that client generators understand best.

``msgspec`` gives correct schemas; this module makes them friendlier.  Each property has its text
from the docstring, numbers have a format, enumerations have a type, and a union has a name, or is
replaced where JSON Schema can say the same without one.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast

import msgspec

from vfbandits.client import schemas
from vfbandits.settings.docstring import split_docstring

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"
Table: TypeAlias = dict[str, Json]

REF = "#/components/schemas/{name}"
# Where unions occur, each with its new name and a description.
_LOG_CONTEXTS = ("LogContexts", "Which contexts are kept: by name, or all of a fraction of events.")
_FEATURES = ("Features", "Numbers as the model sees them, or names with raw values.")
_UNIONS: Mapping[tuple[str, str], tuple[str, str]] = {
    ("RankRequest", "arms"): ("ArmOrId", "An arm by its id, or with its features."),
    ("Arm", "features"): _FEATURES,
    ("RankRequest", "features"): _FEATURES,
    ("ConfigChange", "log_contexts"): _LOG_CONTEXTS,
    ("ConfigResponse", "log_contexts"): _LOG_CONTEXTS,
    ("ConfigChange", "policy"): ("PolicyParameter", "A number, or a name."),
}
_FORMATS = {"number": "double", "integer": "int64"}
_VERY_END = r"(?!\n)"


def component_schemas(structs: Iterable[type[msgspec.Struct]]) -> dict[str, Table]:
    """A schema for each struct and all it is made of, by the struct's name.

    >>> schemas = component_schemas([schemas.RewardRequest])
    >>> list(schemas), schemas["RewardRequest"]["required"]
    (['RewardRequest'], ['value'])
    """
    listed = list(structs)
    _, raw = msgspec.json.schema_components(listed, ref_template=REF, schema_hook=_anything)
    made = {name: _struct_schema(name, schema) for name, schema in sorted(raw.items())}
    for (struct, key), (name, text) in _UNIONS.items():
        if struct in made:
            _name_union(made, cast(dict[str, Table], made[struct]["properties"])[key], name, text)
    return made


def id_schema() -> Table:
    """The schema of an id by itself."""
    (raw,), _ = msgspec.json.schema_components([schemas.Id])
    return cast(Table, _friendly(cast(Json, raw)))


def ref(struct: type[msgspec.Struct]) -> Table:
    """A reference to the schema of a struct."""
    return {"$ref": REF.format(name=struct.__name__)}


def _anything(kind: type) -> dict[str, object]:
    if kind is object:
        return {"description": "Any value."}
    raise NotImplementedError


def _struct_schema(name: str, raw: dict[str, object]) -> Table:
    schema = cast(Table, _friendly(cast(Json, raw)))
    struct = getattr(schemas, name, None)
    text, notes = split_docstring(str(schema.get("description", "")))
    schema["description"] = text
    properties = cast(dict[str, Table], schema["properties"])
    for key, prop in properties.items():
        if key in notes:
            prop["description"] = notes[key]
        if struct is not None and struct.__struct_config__.omit_defaults:
            _never_null(prop)
    if not schema["required"]:
        del schema["required"]
    return schema


def _friendly(value: Json) -> Json:
    if isinstance(value, list):
        return [_friendly(each) for each in value]
    if not isinstance(value, dict):
        return value
    schema = {key: _friendly(each) for key, each in value.items()}
    if isinstance(schema.get("enum"), list):
        schema = {"type": "string", **schema}
    pattern, kind = schema.get("pattern"), schema.get("type")
    if isinstance(pattern, str):
        # JSON's `$` is the very end; Python needs more to say so, which Go and Rust cannot read.
        schema["pattern"] = pattern.removesuffix(_VERY_END)
    if isinstance(kind, str) and kind in _FORMATS:
        schema["format"] = _FORMATS[kind]
    return _without_union(schema)


def _without_union(schema: Table) -> Table:
    """``anyOf`` of plain types, as one schema with several types."""
    match schema.get("anyOf"):
        case [dict(plain), {"type": "null"}] if "enum" not in plain and "type" in plain:
            rest = {key: each for key, each in schema.items() if key != "anyOf"}
            return {**plain, "type": [plain["type"], "null"], **rest}
        case [*kinds] if all(isinstance(k, dict) and {*k} <= {"type", "format"} for k in kinds):
            names = [cast(Table, kind)["type"] for kind in kinds]
            if "number" in names:  # which whole numbers are too
                names.remove("integer")
            rest = {key: each for key, each in schema.items() if key != "anyOf"}
            return {"type": names, **rest}
    return schema


def _never_null(prop: Table) -> None:
    """What is left out when it is None never goes over the wire as null."""
    if prop.get("default", 0) is not None:
        return
    match prop.get("anyOf"):
        case [dict(only), {"type": "null"}]:
            prop.clear()
            prop.update(only)


def _name_union(schemas: dict[str, Table], prop: Table, name: str, text: str) -> None:
    """Give the union in a property a schema of its own; null stays outside of it."""
    slot = next((slot for slot in ("items", "additionalProperties") if slot in prop), None)
    holder = prop if slot is None else cast(Table, prop[slot])
    union = cast(list[Json], holder.pop("anyOf"))
    null: Table = {"type": "null"}
    schemas[name] = {
        "title": name,
        "description": text,
        # No value fits two of them, so both say the same; generators of clients read ``anyOf`` as
        # one object with the properties of all.
        "oneOf": [one for one in union if one != null],
    }
    ref: Table = {"$ref": REF.format(name=name)}
    holder.update({"anyOf": [ref, null]} if null in union else ref)
