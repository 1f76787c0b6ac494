"""Paths and methods: which operation they ask for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from vfbandits.http.openapi.paths import OPERATIONS
from vfbandits.http.router import Router

ROUTER = Router([(each.method, each.path, each) for each in OPERATIONS])
PARTS = ["/v1", "/rank", "/events", "/campaigns", "/a", "/", "x", "\n", "/reward", "/batch", "é"]


def find(method, path):
    match = ROUTER.find(method, path)
    return None if match is None else (match.found.operation_id, dict(match.params))


@pytest.mark.parametrize(
    ("method", "path", "found"),
    [
        ("POST", "/v1/rank", ("rank", {})),
        ("POST", "/v1/rank/batch", ("rank_batch", {})),
        ("POST", "/v1/campaigns/news/rank", ("rank_in_campaign", {"campaign": "news"})),
        ("POST", "/v1/events/a/b/reward", ("reward", {"event_id": "a/b"})),
        ("POST", "/v1/events//reward", ("reward", {"event_id": ""})),
        (
            "POST",
            "/v1/campaigns/news/events/a/b/reward",
            ("reward_in_campaign", {"campaign": "news", "event_id": "a/b"}),
        ),
        ("GET", "/v1/events/x/reward", ("event", {"event_id": "x/reward"})),
        ("HEAD", "/healthz", ("healthz", {})),
        ("GET", "/v1/campaigns", ("campaigns", {})),
        ("POST", "/v1/campaigns/a/b/rank", None),
        ("POST", "/v1/events/x\n/reward", None),
        ("POST", "/v1/rank/", None),
        ("GET", "/", None),
        ("GET", "", None),
    ],
)
def test_a_path_finds_its_operation(method, path, found):
    assert find(method, path) == found


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/rank", "POST"),
        ("DELETE", "/v1/config", "GET, HEAD, PATCH"),
        ("PUT", "/v1/events/x/reward", "POST"),
        ("POST", "/v1/events/x", "GET, HEAD"),
    ],
)
def test_another_method_is_405_with_those_that_are_allowed(method, path, allowed):
    with pytest.raises(HTTPException) as told:
        ROUTER.find(method, path)
    assert told.value.status_code == 405
    assert told.value.headers == {"allow": allowed}


@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
def test_the_longest_pattern_that_fits_counts(path):
    """The obvious way: every pattern of the table, by Starlette's own compiler."""
    fitting = []
    for each in OPERATIONS:
        pattern, _, _ = compile_path(each.path.replace("{event_id}", "{event_id:path}"))
        match = pattern.fullmatch(path)
        if match is not None and each.method == "POST" and "\n" not in path:
            fitting.append((each.path.count("/"), each.operation_id, match.groupdict()))
    try:
        found = find("POST", path)
    except HTTPException:
        found = None
    expected = max(fitting, key=lambda one: one[0], default=None)
    assert found == (None if expected is None else expected[1:])
