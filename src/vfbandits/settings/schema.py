"""The JSON schema of configuration files, for editors: ``python -m vfbandits.settings.schema``.

It is of draft 7, which language servers for TOML support.  Combinations of keys, such as a policy
and its parameters, are checked by ``vfb preflight``.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec

from vfbandits.settings.decode import alternatives, is_table, keys_of
from vfbandits.settings.docstring import split_docstring
from vfbandits.settings.services import (
    ActiveConfig,
    HelperSettings,
    ParticipantConfig,
    PassiveSettings,
)
from vfbandits.settings.values import Secret

SCHEMA_FILE = "settings.schema.json"
PROGRAMS = ["application", "operator", "generator"]


def config_schema() -> dict[str, Any]:
    """A schema of the file of any member.

    >>> schema = config_schema()["definitions"]["PassiveSettings"]
    >>> schema["required"], schema["properties"]["state"]["default"]
    (['name', 'role', 'address', 'features'], 'state')
    """
    kinds = (ActiveConfig, PassiveSettings, HelperSettings, ParticipantConfig)
    refs, components = msgspec.json.schema_components(
        kinds, schema_hook=_text, ref_template="#/definitions/{name}"
    )
    for kind in kinds:
        for table in _tables(kind):
            _describe(components[table.__name__], table)
        for field in msgspec.structs.fields(kind):
            if field.type is Path:  # msgspec leaves out what a factory makes
                schema = components[kind.__name__]["properties"][field.name]
                schema["default"] = str(field.default_factory())
    components[ParticipantConfig.__name__]["properties"]["role"]["enum"] = PROGRAMS
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A vfbandits configuration file",
        "oneOf": list(refs),
        "definitions": components,
    }


def schema_text() -> str:
    """The text of docs/settings.schema.json."""
    return json.dumps(config_schema(), indent=1, ensure_ascii=False) + "\n"


def _text(kind: type) -> dict[str, Any]:
    if kind in (Path, Secret):
        return {"type": "string", "minLength": 1}
    raise NotImplementedError(f"settings have no values of type {kind.__name__}")


def _tables(kind: type) -> Iterator[type]:
    """A struct, and those that it is made of."""
    yield kind
    for wanted in keys_of(kind).values():
        for each in alternatives(wanted):
            yield from (
                table for one in (each, *get_args(each)) if is_table(one) for table in _tables(one)
            )


def _describe(component: dict[str, Any], kind: type) -> None:
    """Add the descriptions of docstrings, in place; remove null, which TOML does not have."""
    component["description"] = split_docstring(kind.__doc__ or "")[0]
    component["additionalProperties"] = False
    notes = dict(
        note for base in kind.__mro__ for note in split_docstring(base.__doc__ or "")[1].items()
    )
    for key, schema in component["properties"].items():
        wanted = [each for each in schema.pop("anyOf", ()) if each != {"type": "null"}]
        schema.update(wanted[0] if len(wanted) == 1 else {"anyOf": wanted} if wanted else {})
        if schema.get("default", {}) is None or isinstance(schema.get("default"), dict):
            del schema["default"]
        schema.update({"description": notes[key]} if key in notes else {})


if __name__ == "__main__":
    sys.stdout.write(schema_text())
