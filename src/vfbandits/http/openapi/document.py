"""The OpenAPI document, made from the structs that go over HTTP and the table of operations.

``python -m vfbandits.http.openapi.document`` prints it; ``docs/openapi.json`` is what that printed
last.
"""

import json
import sys
from http import HTTPStatus
from importlib.metadata import version as installed_version

import msgspec

from vfbandits.client import schemas
from vfbandits.http.openapi.examples import (
    CAMPAIGN,
    EVENT_ID,
    PROBLEMS,
    example_of,
    problem_example,
)
from vfbandits.http.openapi.paths import OPERATIONS, Operation
from vfbandits.http.openapi.schemas import Table, component_schemas, id_schema, ref
from vfbandits.http.problems import MEDIA_TYPE

__all__ = ["OPERATIONS", "Operation", "openapi_document"]

_TAGS = {
    "decisions": "Rank arms and send rewards.",
    "model": "State of the model, and settings of campaigns.",
    "process": "For operators of the server.",
}


def openapi_document(version: str) -> dict[str, object]:
    """The whole document, as a table to be written in JSON.

    >>> document = openapi_document("1.0")
    >>> document["openapi"], document["paths"]["/v1/rank"]["post"]["operationId"]
    ('3.1.0', 'rank')
    """
    paths: dict[str, dict[str, object]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "vfbandits",
            "version": version,
            "summary": "Contextual bandits on the features of several organisations.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": component_schemas(_structs()),
            "responses": {name: _problem(status) for status, (name, _) in PROBLEMS.items()},
            "parameters": _parameters(),
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key. Its scopes say which operations it may use.",
                }
            },
        },
    }


def _structs() -> list[type[msgspec.Struct]]:
    used = {kind for each in OPERATIONS for kind in (each.request, each.response) if kind}
    return sorted({*used, schemas.Problem}, key=lambda kind: kind.__name__)


def _operation(operation: Operation) -> dict[str, object]:
    described = operation.description
    if operation.scope:
        described += f" The key needs the scope `{operation.scope}`."
    made: dict[str, object] = {
        "operationId": operation.operation_id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": described,
        "security": [{"bearer": []}] if operation.scope else [],
    }
    named = [name for name in _parameters() if f"{{{name}}}" in operation.path]
    if named:
        made["parameters"] = [{"$ref": f"#/components/parameters/{name}"} for name in named]
    if operation.request:
        made["requestBody"] = {"required": True, "content": _content(operation.request)}
    made["responses"] = _responses(operation)
    return made


def _responses(operation: Operation) -> dict[str, object]:
    made: dict[int, object] = {
        status: {"description": operation.summary + ".", "content": _answer(operation, status)}
        for status in operation.statuses
    }
    for status in operation.problems:
        made[status] = {"$ref": f"#/components/responses/{PROBLEMS[status][0]}"}
    return {str(status): made[status] for status in sorted(made)}


def _answer(operation: Operation, status: int) -> dict[str, object]:
    if operation.response is schemas.Health and status == HTTPStatus.SERVICE_UNAVAILABLE:
        example = schemas.Health("unavailable", ["the journal is being read"])
        return _content(schemas.Health, example)
    if operation.response:
        return _content(operation.response)
    kind = "string" if operation.media.startswith("text/") else "object"
    return {operation.media: {"schema": {"type": kind}}}


def _content(
    struct: type[msgspec.Struct], example: msgspec.Struct | None = None
) -> dict[str, object]:
    value = msgspec.to_builtins(example or example_of(struct))
    return {"application/json": {"schema": ref(struct), "examples": {"example": {"value": value}}}}


def _problem(status: int) -> dict[str, object]:
    value = msgspec.to_builtins(problem_example(status))
    made: dict[str, object] = {
        "description": PROBLEMS[status][1],
        "content": {
            MEDIA_TYPE: {
                "schema": ref(schemas.Problem),
                "examples": {"example": {"value": value}},
            }
        },
    }
    headers = _headers(status)
    return {**made, "headers": headers} if headers else made


def _headers(status: int) -> Table:
    match status:
        case HTTPStatus.UNAUTHORIZED:
            return {"WWW-Authenticate": _header("Bearer.", "string", required=True)}
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return {"Allow": _header("Methods of this path.", "string", required=True)}
        case HTTPStatus.TOO_MANY_REQUESTS:
            return {"Retry-After": _header("Seconds to wait.", "integer", required=True)}
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return {"Retry-After": _header("Seconds to wait.", "integer", required=False)}
    return {}


def _header(description: str, kind: str, *, required: bool) -> Table:
    return {"description": description, "required": required, "schema": {"type": kind}}


def _parameters() -> dict[str, Table]:
    texts = {
        "event_id": ("Id of the event.", EVENT_ID),
        "campaign": ("Name of the campaign.", CAMPAIGN),
    }
    return {
        name: {
            "name": name,
            "in": "path",
            "required": True,
            "description": description,
            "schema": id_schema(),
            "example": example,
        }
        for name, (description, example) in texts.items()
    }


def main() -> None:
    """Print the document of the version that is installed."""
    document = openapi_document(installed_version("vfbandits"))
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
