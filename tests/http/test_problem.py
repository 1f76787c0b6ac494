"""Errors as problem documents: the right status, our own words, and nothing of others' errors."""

import asyncio

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route
from structlog.testing import capture_logs

from vfbandits import errors
from vfbandits.client.schemas import Problem, RankRequest, RewardRequest
from vfbandits.http import refusals
from vfbandits.http.problems import (
    MAX_DETAIL_LENGTH,
    MEDIA_TYPE,
    headers_of,
    problem_of,
    problem_response,
)
from vfbandits.http.refuse import ERROR_HANDLERS

TOLD = [
    (errors.ArmError, 422, "invalid-arms"),
    (errors.ContextError, 422, "invalid-context"),
    (errors.SettingError, 422, "invalid-setting"),
    (errors.NotBlindError, 422, "invalid-setting"),
    (errors.RewardError, 422, "invalid-reward"),
    (errors.UnknownDecisionError, 404, "unknown-event"),
    (errors.UnknownEventError, 404, "unknown-event"),
    (errors.ErasedEventError, 410, "erased-event"),
    (errors.ConflictError, 409, "conflict"),
    (refusals.Unauthorized, 401, "unauthorized"),
    (refusals.Forbidden, 403, "forbidden"),
    (refusals.NotFound, 404, "not-found"),
    (refusals.Conflict, 409, "conflict"),
    (refusals.TooLarge, 413, "too-large"),
    (refusals.Unsupported, 415, "unsupported-media-type"),
    (refusals.Unavailable, 503, "unavailable"),
]


@pytest.mark.parametrize(("kind", "status", "name"), TOLD)
def test_an_error_about_the_request_is_told_in_its_own_words(kind, status, name):
    problem = problem_of(kind("wanted this, got that"))
    assert (problem.status, problem.type) == (status, f"/problems/{name}")
    assert problem.detail == "wanted this, got that"
    assert problem.title


@pytest.mark.parametrize("kind", [errors.JournalError, errors.LinkError])
def test_what_is_wrong_on_our_side_is_unavailable_and_not_told(kind):
    problem = problem_of(kind("/var/secret/place is full"))
    assert (problem.status, problem.type) == (503, "/problems/unavailable")
    assert problem.detail
    assert "secret" not in problem.detail


@pytest.mark.parametrize(
    "error",
    [
        ValueError("0.25, 0.75"),
        KeyError("secret"),
        errors.MaskError("x"),
        errors.NumericalError("x"),
        errors.ConfigError("x"),
        errors.IdentityError("x"),
        HTTPException(299, "x"),
    ],
)
def test_any_other_error_is_500_without_a_word(error):
    assert problem_of(error) == problem_of(RuntimeError())
    assert problem_of(error).status == 500
    assert problem_of(error).detail == ""


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 400),
        (b'{"user": "\xff", "arms": ["a"]}', 400),
        (b'{"user": "ann"}', 422),
        (b"[]", 422),
        (b'{"user": 3, "arms": ["a"]}', 422),
    ],
)
def test_a_body_that_is_no_json_is_400_and_one_that_does_not_fit_is_422(body, status):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as caught:
        msgspec.json.decode(body, type=RankRequest)
    problem = problem_of(caught.value)
    assert problem.status == status
    assert problem.detail


def test_a_value_that_does_not_fit_is_not_quoted():
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(b'{"value": 7.77e200}', type=RewardRequest)
    assert "7.77" not in problem_of(caught.value).detail


def test_headers_go_with_their_problems():
    assert headers_of(refusals.Unauthorized("x")) == {"www-authenticate": "Bearer"}
    assert headers_of(refusals.TooMany("x", retry_after_s=0.01)) == {"retry-after": "1"}
    assert headers_of(refusals.Forbidden("x")) == {}
    assert headers_of(HTTPException(405, headers={"Allow": "GET"})) == {"Allow": "GET"}
    assert headers_of(ValueError("x")) == {}


def test_a_response_has_the_media_type_the_status_and_the_headers():
    response = problem_response(problem_of(errors.ArmError("no arms")), {"x-more": "1"})
    assert response.status_code == 422
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-more"] == "1"
    assert msgspec.json.decode(response.body, type=Problem).detail == "no arms"


@given(message=st.text(st.characters(), max_size=2_000), path=st.text(max_size=50))
def test_any_sentence_can_be_sent(message, path):
    response = problem_response(problem_of(errors.ArmError(message), instance=path))
    problem = msgspec.json.decode(response.body, type=Problem)
    assert len(problem.detail) <= MAX_DETAIL_LENGTH
    assert problem.instance == path


def test_surrogates_are_replaced():
    assert problem_of(errors.ArmError("a\ud800b")).detail == "a?b"


def raising(error):
    async def route(request):
        raise error

    return Starlette(routes=[Route("/there", route)], exception_handlers=ERROR_HANDLERS)


def ask(app, path="/there", method="GET"):
    async def one():
        transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.request(method, path)

    return asyncio.run(one())


def test_starlettes_own_refusals_are_problems_too():
    missing, wrong = (
        ask(raising(ValueError()), "/elsewhere"),
        ask(raising(ValueError()), method="PUT"),
    )
    assert (missing.status_code, wrong.status_code) == (404, 405)
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert missing.json()["type"] == "/problems/not-found"
    assert wrong.json() == {
        "type": "/problems/method-not-allowed",
        "title": "Method Not Allowed",
        "status": 405,
        "instance": "/there",
    }


def test_an_unknown_error_is_logged_and_not_told():
    with capture_logs() as lines:
        answer = ask(raising(ZeroDivisionError("0.125 / 0")))
    assert answer.status_code == 500
    assert "0.125" not in answer.text
    (line,) = lines
    assert (line["event"], line["kind"], line["path"]) == (
        "http_request_failed", "ZeroDivisionError", "/there",
    )  # fmt: skip


def test_what_a_caller_is_not_told_of_a_503_is_logged():
    with capture_logs() as lines:
        answer = ask(raising(errors.JournalError("disk full")))
    assert (answer.status_code, "disk full" in answer.text) == (503, False)
    assert "disk full" in str(lines[0]["exc_info"])


def test_a_refusal_is_logged_and_a_mistake_of_the_caller_is_not():
    with capture_logs() as lines:
        assert ask(raising(refusals.Forbidden("not yours"))).status_code == 403
        assert ask(raising(errors.ArmError("no arms"))).status_code == 422
    assert [(line["event"], line["reason"], line["status"]) for line in lines] == [
        ("http_request_refused", "not yours", 403)
    ]
