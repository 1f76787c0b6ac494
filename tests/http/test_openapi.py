"""The OpenAPI document: valid, complete, true to the structs, and committed as it is."""

import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode

from vfbandits.client import schemas
from vfbandits.http.openapi.document import OPERATIONS, openapi_document

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"
DOCUMENT = openapi_document("1.0")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
SENT = [each for each in OPERATIONS if each.request and "{campaign}" not in each.path]
SINGLE = [each for each in SENT if not each.handler.endswith("batch")]
KEYED = {"400", "401", "403", "405", "429", "500", "503"}


def written(operation):
    return DOCUMENT["paths"][operation.path][operation.method.lower()]


def inside(value, trail=()):
    """Every table in the document, with the keys that lead to it."""
    if isinstance(value, dict):
        yield trail, value
        for key, each in value.items():
            yield from inside(each, (*trail, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from inside(each, (*trail, index))


def find(reference):
    found = DOCUMENT
    for key in reference.removeprefix("#/").split("/"):
        found = found[key]
    return found


def checker(schema):
    """A validator of one schema of the document."""
    whole = {**schema, "components": DOCUMENT["components"]}
    return jsonschema_rs.Draft202012Validator(whole)


def test_the_document_is_valid_openapi():
    assert DOCUMENT["openapi"].startswith("3.1")
    SCHEMA.validate()


def test_every_operation_of_the_table_is_in_the_document_and_can_be_read():
    found = {(each.ok().method.upper(), each.ok().path) for each in SCHEMA.get_all_operations()}
    assert found == {(each.method, each.path) for each in OPERATIONS}
    assert len(found) == len(OPERATIONS)


def test_every_reference_leads_somewhere():
    references = {table["$ref"] for _, table in inside(DOCUMENT) if "$ref" in table}
    assert all(find(reference) for reference in references)


def test_operation_ids_are_unique_and_name_functions():
    ids = [each.operation_id for each in OPERATIONS]
    assert len(set(ids)) == len(ids)
    assert all(each.isidentifier() for each in ids)


def test_every_operation_is_described():
    for operation in OPERATIONS:
        entry = written(operation)
        assert entry["operationId"] == operation.operation_id
        assert entry["summary"]
        assert entry["description"]


def test_what_needs_a_key_says_so_and_how_it_is_refused():
    for operation in OPERATIONS:
        entry = written(operation)
        if operation.scope is None:
            assert entry["security"] == []
            assert "401" not in entry["responses"]
        else:
            assert entry["security"] == [{"bearer": []}]
            assert f"`{operation.scope}`" in entry["description"]
            assert set(entry["responses"]) >= KEYED


def test_what_is_sent_a_body_says_which_bodies_it_refuses():
    for operation in SENT:
        assert set(written(operation)["responses"]) >= {"413", "415", "422"}


def test_what_names_an_event_or_a_campaign_may_not_find_it():
    for operation in OPERATIONS:
        named = set(re.findall(r"{(\w+)}", operation.path))
        entry = written(operation)
        parameters = {find(each["$ref"])["name"] for each in entry.get("parameters", [])}
        assert parameters == named
        assert not named or "404" in entry["responses"]


def test_every_campaign_has_what_the_default_one_has():
    named = {each.handler: each for each in OPERATIONS if each.path.startswith("/v1/campaigns/")}
    for name, operation in named.items():
        (default,) = [each for each in OPERATIONS if each.operation_id == name]
        assert operation.path == default.path.replace("/v1", "/v1/campaigns/{campaign}", 1)
        assert (operation.request, operation.response) == (default.request, default.response)
    assert len(named) == 11


def test_every_refusal_is_a_problem_document():
    for response in DOCUMENT["components"]["responses"].values():
        (media,) = response["content"]
        assert media == "application/problem+json"


def test_every_example_fits_its_schema():
    n_checked = 0
    for _, table in inside(DOCUMENT):
        if "schema" in table and ("examples" in table or "example" in table):
            values = [each["value"] for each in table.get("examples", {}).values()]
            for value in values or [table["example"]]:
                checker(table["schema"]).validate(value)
                n_checked += 1
    assert n_checked > 30


def test_every_body_in_json_has_an_example():
    for trail, table in inside(DOCUMENT["paths"]):
        if trail[-1:] == ("application/json",) and "$ref" in table["schema"]:
            assert table["examples"]


def test_components_have_the_names_of_the_structs():
    names = set(DOCUMENT["components"]["schemas"])
    for operation in OPERATIONS:
        assert {each.__name__ for each in (operation.request, operation.response) if each} <= names


def test_an_arm_is_text_or_an_object_and_never_both():
    """A generator takes ``anyOf`` of text and an object for an object, and sends {} for "tea"."""
    schemas = DOCUMENT["components"]["schemas"]
    union = schemas["ArmOrId"]
    assert "anyOf" not in union
    text, arm = union["oneOf"]
    assert text["type"] == "string"
    assert arm == {"$ref": "#/components/schemas/Arm"}
    assert schemas["Arm"]["type"] == "object"
    assert schemas["RankRequest"]["properties"]["arms"]["items"] == {
        "$ref": "#/components/schemas/ArmOrId"
    }


def test_no_union_is_anonymous():
    for trail, table in inside(DOCUMENT):
        if "anyOf" in table or "oneOf" in table:
            is_named = trail[:2] == ("components", "schemas") and len(trail) == 3
            is_optional = {"type": "null"} in table.get("anyOf", [])
            assert is_named or is_optional, trail


def test_enumerations_and_numbers_say_their_type():
    for trail, table in inside(DOCUMENT["components"]["schemas"]):
        if trail[-1:] == ("properties",):
            continue
        if "enum" in table:
            assert table["type"] == "string"
        if table.get("type") in ("number", "integer"):
            assert table["format"] in ("double", "int64")


def test_patterns_are_such_that_any_language_reads_them():
    patterns = {table["pattern"] for _, table in inside(DOCUMENT) if "pattern" in table}
    assert patterns == {r"^[^\x00-\x1f\x7f]+$"}


@pytest.mark.parametrize("name", ["a\n", "\x00", "a\x7fb", ""])
def test_schema_and_struct_refuse_the_same_ids(name):
    assert not checker(find("#/components/parameters/event_id/schema")).is_valid(name)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(name, schemas.Id)


def test_attributes_are_explained_where_they_stand():
    rank = DOCUMENT["components"]["schemas"]["RankRequest"]
    assert rank["description"] == "A request for a decision."
    assert all(each["description"] for each in rank["properties"].values())


@pytest.mark.parametrize("operation", SINGLE, ids=lambda each: each.operation_id)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_the_schema_allows_the_struct_takes(operation, data):
    strategy = SCHEMA[operation.path][operation.method].as_strategy()
    body = data.draw(strategy).body
    msgspec.json.decode(json.dumps(body), type=operation.request)


@pytest.mark.parametrize("operation", SINGLE, ids=lambda each: each.operation_id)
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_the_schema_and_the_struct_refuse_the_same(operation, data):
    negative = GenerationMode.NEGATIVE
    strategy = SCHEMA[operation.path][operation.method].as_strategy(generation_mode=negative)
    body = data.draw(strategy).body
    text = json.dumps(body, allow_nan=False, default=str)
    is_allowed = body_checker(operation).is_valid(json.loads(text))
    try:
        msgspec.json.decode(text, type=operation.request)
    except msgspec.ValidationError:
        assert not is_allowed
    else:
        assert is_allowed


@functools.cache
def body_checker(operation):
    return checker(written(operation)["requestBody"]["content"]["application/json"]["schema"])


def test_the_committed_document_is_the_one_that_is_printed():
    """If not: ``python -m vfbandits.http.openapi.document > docs/openapi.json``."""
    command = [sys.executable, "-m", "vfbandits.http.openapi.document"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert COMMITTED.read_text("utf-8") == printed
