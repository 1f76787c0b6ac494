"""The routes of the page: what they allow, and what they answer to a bad question."""

import httpx2
import msgspec
import pytest
from invented_decisions import ranked
from page_server import PageServer

from vfbandits.dashboard.observatory import Observatory
from vfbandits.dashboard.view import DashboardView
from vfbandits.http.dashboard import PAGE


@pytest.fixture(scope="module")
def sky():
    sky = Observatory("retail", ["ads"], clock=lambda: 1000.0)
    sky.on_ranked([ranked("a", at=999.0)])
    return sky


@pytest.fixture(scope="module")
def client(sky):
    with PageServer(sky) as server, httpx2.Client(base_url=server.url) as client:
        yield client


@pytest.mark.parametrize("path", PAGE)
def test_a_file_of_the_page_allows_nothing_from_elsewhere_and_is_fetched_once(client, path):
    first = client.get(path)
    policy = first.headers["content-security-policy"]
    for rule in (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
    ):
        assert rule in policy
    assert "unsafe" not in policy
    assert first.headers["x-content-type-options"] == "nosniff"
    again = client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


@pytest.mark.parametrize("path", PAGE)
def test_no_file_of_the_page_names_another_host_or_holds_inline_code(client, path):
    text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
    assert "http:" not in text
    assert "https:" not in text
    assert "style=" not in text
    assert "onclick=" not in text
    assert "innerHTML" not in text


def test_the_data_is_the_view_compressed_if_that_is_understood(client, sky):
    for encoding in ("gzip", "identity"):
        answer = client.get(
            "/v1/dashboard?campaign=ads&minutes=60", headers={"accept-encoding": encoding}
        )
        assert answer.headers.get("content-encoding", "identity") == encoding
        assert answer.headers["cache-control"] == "no-store"
        view = msgspec.json.decode(answer.content, type=DashboardView)
        assert view == sky.view("ads", minutes=60)


def test_without_a_question_the_first_campaign_is_told_over_five_minutes(client):
    told = client.get("/v1/dashboard").json()
    assert (told["campaign"], told["minutes"], told["totals"]["decisions"]) == ("ads", 5, 1)


@pytest.mark.parametrize("minutes", ["0", "1441", "-5", "5.0", "five", "", "٥", "9" * 5000])
def test_minutes_that_are_not_a_window_are_refused(client, minutes):
    answer = client.get("/v1/dashboard", params={"minutes": minutes})
    assert answer.status_code == 422
    assert "minutes are 1 to 1440" in answer.json()["detail"]


def test_a_campaign_that_is_not_there_is_not_found(client):
    answer = client.get("/v1/dashboard?campaign=mail")
    assert (answer.status_code, answer.json()["status"]) == (404, 404)


def test_data_needs_a_key_where_one_is_wanted_and_the_page_does_not(sky):
    with PageServer(sky, key="sesame") as server, httpx2.Client(base_url=server.url) as guarded:
        assert guarded.get("/").status_code == 200
        assert guarded.get("/v1/dashboard").status_code == 401
        known = {"authorization": "Bearer sesame"}
        assert guarded.get("/v1/dashboard", headers=known).status_code == 200


@pytest.mark.parametrize("path", [*PAGE, "/v1/dashboard"])
def test_the_routes_only_read(client, path):
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert client.request(method, path).status_code == 405
