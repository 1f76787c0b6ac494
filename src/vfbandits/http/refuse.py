"""Answers and logs refusals; neither the answer nor the log line holds a key."""

from typing import Final

import msgspec
import structlog
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from vfbandits.errors import VFBanditsError
from vfbandits.http.access.caller import CALLER, Caller
from vfbandits.http.problems import (
    PERSONALIZER,
    headers_of,
    personalizer_response,
    problem_of,
    problem_response,
)
from vfbandits.http.refusals import Refusal

MAX_PATH_LENGTH: Final = 200
CLIENT_CLOSED: Final = 499  # nginx's status of a client that disconnected before its answer

_log = structlog.get_logger(__name__)


async def on_error(request: Request, error: Exception) -> Response:
    """``problem_for``, as Starlette calls it."""
    return problem_for(request.scope, error)


def problem_for(scope: Scope, error: Exception) -> Response:
    """Answer an error with its problem, and log what the answer leaves out."""
    if isinstance(error, ClientDisconnect):  # nobody receives it; the metrics count it
        return Response(status_code=CLIENT_CLOSED)
    answer = response_to(scope, error)
    if isinstance(error, Refusal):
        log_refusal(scope, error)
    elif answer.status_code >= 500:
        _log.error(
            "http_request_failed", kind=type(error).__name__, exc_info=error, **_facts(scope)
        )
    return answer


# For Starlette's ``exception_handlers``.  What is registered for Exception only is raised again
# after it was answered, so known errors are listed by name.
ERROR_HANDLERS: Final = dict.fromkeys(
    (
        VFBanditsError,
        msgspec.DecodeError,
        UnicodeDecodeError,
        HTTPException,
        ClientDisconnect,
        Exception,
    ),
    on_error,
)


def response_to(scope: Scope, error: Exception) -> Response:
    """The problem document of an error."""
    path = scope.get("path", "")
    if path.startswith(PERSONALIZER):
        return personalizer_response(problem_of(error), headers_of(error))
    return problem_response(problem_of(error, instance=path), headers_of(error))


def log_refusal(scope: Scope, refusal: Refusal, *, unlogged: int = 0) -> None:
    """Log one line; ``unlogged`` counts similar refusals that were not logged."""
    more = {"unlogged": unlogged} if unlogged else {}
    _log.warning(
        "http_request_refused", reason=str(refusal), status=refusal.status, **_facts(scope), **more
    )


def address_of(scope: Scope) -> str:
    """The client's address; empty on a socket that has no addresses."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _facts(scope: Scope) -> dict[str, str]:
    """Path, address and caller.  Not the query: some clients put keys there."""
    facts = {"path": str(scope.get("path", ""))[:MAX_PATH_LENGTH], "address": address_of(scope)}
    caller = scope.get(CALLER)
    return {**facts, "caller": caller.name} if isinstance(caller, Caller) else facts
