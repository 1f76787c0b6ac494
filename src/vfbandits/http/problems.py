"""Our errors as ``application/problem+json`` (RFC 9457): one table.

Only errors about the caller's own request carry their message.  For any other error the answer says
that there was one, and the server's log has the details.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from vfbandits.client.schemas import Problem
from vfbandits.errors import (
    ArmError,
    ConflictError,
    ContextError,
    ErasedEventError,
    JournalError,
    LinkError,
    NotBlindError,
    RewardError,
    SettingError,
    UnknownDecisionError,
)
from vfbandits.http.refusals import Refusal

MEDIA_TYPE: Final = "application/problem+json"
MAX_DETAIL_LENGTH: Final = 1_000
PERSONALIZER: Final = "/personalizer/"  # below it errors have the format of that service
_TYPES: Final = "/problems/"
_CODES: Final = {400: "BadRequest", 404: "ResourceNotFound", 500: "InternalServerError"}


@dataclass(frozen=True, slots=True)
class _Kind:
    """The problem of a class of errors; without ``detail`` its detail is the error's message."""

    status: int
    name: str
    title: str
    detail: str = ""


_NO_JSON: Final = "The body is not JSON"
_AWAY: Final = "The service is unavailable"
# The first match counts, so a class precedes its base.
_KINDS: Final[tuple[tuple[type[Exception], _Kind], ...]] = (
    (ArmError, _Kind(422, "invalid-arms", "The arms cannot be ranked")),
    (ContextError, _Kind(422, "invalid-context", "The features do not fit the model")),
    (SettingError, _Kind(422, "invalid-setting", "The settings cannot be used")),
    (NotBlindError, _Kind(422, "invalid-setting", "The settings cannot be used")),
    (RewardError, _Kind(422, "invalid-reward", "The reward cannot be used")),
    (ErasedEventError, _Kind(410, "erased-event", "The event was erased with its user")),
    (UnknownDecisionError, _Kind(404, "unknown-event", "The event does not exist")),
    (ConflictError, _Kind(409, "conflict", "The request conflicts with an earlier one")),
    (
        JournalError,
        _Kind(503, "unavailable", _AWAY, "the journal cannot be read or written now; try again"),
    ),
    (
        LinkError,
        _Kind(503, "unavailable", _AWAY, "a participant cannot be reached"),
    ),
    (
        msgspec.ValidationError,
        _Kind(422, "invalid-request", "The request does not match its schema"),
    ),
    (msgspec.DecodeError, _Kind(400, "malformed", _NO_JSON)),
    # What msgspec raises on text that is not UTF-8; its message would quote the text.
    (UnicodeDecodeError, _Kind(400, "malformed", _NO_JSON, "wanted UTF-8, got bytes that are not")),
)
_INTERNAL: Final = Problem(
    f"{_TYPES}internal", "Internal error; the server's log has its cause", 500
)


def problem_of(error: Exception, *, instance: str = "") -> Problem:
    """The problem document of an error; ``instance`` is the path of the request.

    >>> problem_of(RewardError("a reward must be a finite number, got nan")).status
    422
    >>> problem_of(ZeroDivisionError("3.5 / 0"))
    Problem(type='/problems/internal', title="Internal error; ...", status=500, ...)
    """
    problem = _problem(error)
    return msgspec.structs.replace(problem, instance=_text(instance)) if instance else problem


def headers_of(error: Exception) -> dict[str, str]:
    """Header fields that go with an error's problem."""
    if isinstance(error, Refusal):
        return error.headers()
    if isinstance(error, HTTPException):
        return dict(error.headers or {})
    return {}


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The response for a problem; caches must not keep it.

    >>> problem_response(problem_of(ConflictError("wanted 1.0 again, got 0.0"))).body
    b'{"type":"/problems/conflict",...,"status":409,"detail":"wanted 1.0 again, got 0.0"}'
    """
    return Response(
        msgspec.json.encode(problem),
        status_code=problem.status,
        headers={"cache-control": "no-store", **(headers or {})},
        media_type=MEDIA_TYPE,
    )


def personalizer_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem in the format of Azure Personalizer, whose clients know no status 422.

    >>> personalizer_response(problem_of(RewardError("wanted a number"))).body
    b'{"error":{"code":"BadRequest","message":"wanted a number"}}'
    """
    status = 400 if problem.status == 422 else problem.status
    code = _CODES.get(status) or HTTPStatus(status).phrase.replace(" ", "")
    error = {"code": code, "message": problem.detail or problem.title}
    return Response(
        msgspec.json.encode({"error": error}),
        status_code=status,
        headers={"cache-control": "no-store", **(headers or {})},
        media_type="application/json",
    )


def _problem(error: Exception) -> Problem:
    if isinstance(error, Refusal):
        return Problem(f"{_TYPES}{error.kind}", error.title, error.status, _text(str(error)))
    if isinstance(error, HTTPException):
        return _of_status(error.status_code)
    for error_class, kind in _KINDS:
        if isinstance(error, error_class):
            detail = kind.detail or _text(str(error))
            return Problem(f"{_TYPES}{kind.name}", kind.title, kind.status, detail)
    return _INTERNAL


def _of_status(status: int) -> Problem:
    """The problem of a bare status, such as the router's 404 and 405."""
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        return _INTERNAL
    return Problem(f"{_TYPES}{phrase.lower().replace(' ', '-')}", phrase, status)


def _text(sentence: str) -> str:
    """A message that JSON can hold, cut off at ``MAX_DETAIL_LENGTH``."""
    return sentence[:MAX_DETAIL_LENGTH].encode(errors="replace").decode()
