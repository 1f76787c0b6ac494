"""The JSON schema that editors use: the one in docs/, and what it says of the files that we write.

A schema may let through what the program refuses, such as two keys that do not go together; it may
not refuse what the program takes.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

from vfbandits.protocol.roster import Member, Roster, Terms
from vfbandits.settings.decode import alternatives, keys_of
from vfbandits.settings.schema import SCHEMA_FILE, config_schema
from vfbandits.settings.services import ActiveConfig, ParticipantConfig, PassiveSettings
from vfbandits.settings.template import config_text

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = jsonschema_rs.validator_for(config_schema())
ACTIVE = {"name": "shop", "role": "active", "address": "0.0.0.0:7443"}
PASSIVE = {"name": "bank", "role": "passive", "address": "shop.example:7443"}
FEATURES = {"kind": "file", "path": "a.csv", "key": ["user"], "columns": ["age"]}
ROLES = {"shop": "active", "bank": "passive", "web": "application", "chief": "operator"}


def examples():
    for page in sorted(DOCS.glob("*.md")):
        found = re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
        for number, text in enumerate(found):
            if "[[contestant]]" not in text:  # a study, not a configuration file
                yield pytest.param(tomllib.loads(text), id=f"{page.name}-{number}")


def template(name, **terms):
    widths = {"active": 2, "passive": 2}
    members = tuple(
        Member(each, role, f"{n:064x}", widths.get(role, 0), f"{n:064x}" if role in widths else "")
        for n, (each, role) in enumerate(ROLES.items())
    )
    roster = Roster("fair", 1, Terms(**terms), members, generator_key="ab" * 32)
    return config_text(roster.find(name), roster, address="a.example:1", roster_file="r.signed")


def test_the_schema_in_the_docs_is_the_one_that_is_printed():
    command = [sys.executable, "-m", "vfbandits.settings.schema"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == (DOCS / SCHEMA_FILE).read_text("utf-8")


def test_every_key_has_a_description():
    tables = config_schema()["definitions"]
    bare = [
        f"{name}.{key}"
        for name, table in tables.items()
        for key, schema in table["properties"].items()
        if not schema.get("description")
    ]
    assert [key for key in bare if not key.startswith("OFUL.")] == []
    assert all(table["description"] for table in tables.values())
    assert all(table["additionalProperties"] is False for table in tables.values())


@pytest.mark.parametrize("table", list(examples()))
def test_examples_of_the_docs_are_valid(table):
    of_passive = {"access", "features", "noise", "status"} & table.keys() and "http" not in table
    whole = {**({**PASSIVE, "features": FEATURES} if of_passive else ACTIVE), **table}
    whole.get("http", {}).setdefault("address", "127.0.0.1:0")
    assert [error.message for error in SCHEMA.iter_errors(whole)] == []


@pytest.mark.parametrize("name", ROLES)
def test_templates_are_valid(name):
    document = tomllib.loads(template(name))
    assert [error.message for error in SCHEMA.iter_errors(document)] == []


@pytest.mark.parametrize("name", ROLES)
@pytest.mark.parametrize("terms", [{}, {"mask": "dense"}, {"layout": "disjoint"}])
def test_every_key_of_a_template_is_one_that_is_read_also_behind_a_comment_sign(name, terms):
    kind = {"active": ActiveConfig, "passive": PassiveSettings}.get(ROLES[name], ParticipantConfig)
    keys, found = keys_of(kind), 0
    for line in template(name, **terms).splitlines():
        if table := re.fullmatch(r"(?:# )?\[(\w+)(?:\.(\w+))?(?:\.(\w+))?\]", line):
            (inner,) = alternatives(keys_of(kind)[table[1]])
            if table[2]:  # a table of this name, or any name
                is_table = isinstance(inner, type)
                (inner,) = alternatives(keys_of(inner)[table[2]] if is_table else inner.__args__[1])
            keys = keys_of(inner)
            keys = keys_of(keys[table[3]]) if table[3] else keys
        elif key := re.match(r"(?:# )?(\w+) = ", line):
            assert key[1] in keys
            found += 1
    assert found >= 5


@pytest.mark.parametrize(
    "document",
    [
        {},
        {**ACTIVE, "role": "boss"},
        {**ACTIVE, "adress": "x"},
        {**ACTIVE, "accept_loss": "me"},
        {**ACTIVE, "http": {}},
        {**ACTIVE, "http": {"address": "x", "rate": 0}},
        {**ACTIVE, "http": {"address": "x", "rate": "1"}},
        {**ACTIVE, "http": {"address": "x", "tls": "off"}},
        {**ACTIVE, "patience": {"deadline": 1}},
        {**ACTIVE, "model": {"beta": {"noize": 1}}},
        {**ACTIVE, "campaigns": {"mail": {"mood": "learn"}}},
        {**ACTIVE, "reconnect": {}},
        {**ACTIVE, "features": None},
        PASSIVE,
        {**PASSIVE, "features": {**FEATURES, "kind": "oracle"}},
        {**PASSIVE, "features": FEATURES, "model": {}},
        {**ACTIVE, "role": "operator", "journal": True},
    ],
)
def test_what_the_program_refuses_for_its_keys_or_types_an_editor_marks(document):
    assert not SCHEMA.is_valid(document)


def test_whole_files_are_valid():
    assert SCHEMA.is_valid({**PASSIVE, "features": FEATURES, "reconnect": {"first_s": 1}})
    campaigns = {"default": {}, "mail": {"model": {"policy": "lints", "posterior_scale": 1}}}
    model = {"beta": {"noise": 1}, "seed": 3}
    assert SCHEMA.is_valid({**ACTIVE, "model": model, "campaigns": campaigns})
