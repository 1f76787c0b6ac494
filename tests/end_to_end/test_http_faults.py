"""What goes wrong around a server: bad requests, slow callers, a frozen peer, many at once."""

import json
import signal
import socket
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import pytest
from http_load import SECOND_CAMPAIGN, SUMS, Wire, prefix
from http_world import HttpWorld

LIMIT = 1 << 20
PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with HttpWorld(tmp_path_factory.mktemp("faults"), tables=SECOND_CAMPAIGN) as world:
        yield world


@pytest.fixture
def client(world):
    with world.client() as client:
        yield client


def at_once(world, n, calls):
    """Each call by a connection of its own, all at the same time."""

    def one(call):
        with closing(Wire(world.http_port)) as wire:
            return wire.post(*call)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(one, calls))


def model(client, campaign="default"):
    return client.get(f"{prefix(campaign)}/model").json()


# --- bad requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (b"", 400, "malformed"),
        (b"{", 400, "malformed"),
        (b"\xff\xfe{}", 400, "malformed"),
        (b'{"user": "\xff", "arms": ["a"]}', 400, "malformed"),
        (b'{"user": "\\ud800", "arms": ["a"]}', 400, "malformed"),
        (b'{"user": ' + b"[" * 100_000, 422, "invalid-request"),
        (b'{"user": "u", "arms": ["a"]} {}', 400, "malformed"),
        (b'"text"', 422, "invalid-request"),
        (b'{"user": "u", "arms": []}', 422, "invalid-request"),
        (b'{"user": "", "arms": ["a"]}', 422, "invalid-request"),
        (b'{"user": "u", "arms": ["a"], "more": 1}', 422, "invalid-request"),
        (b'{"user": "u", "arms": [{"id": "a", "more": 1}]}', 422, "invalid-request"),
        (b'{"user": "u", "arms": ["a\\u0000b"]}', 422, "invalid-request"),
        (b'{"user": "u", "arms": ["a\\n"]}', 422, "invalid-request"),
        (b'{"user": "u", "arms": ["a", "a"]}', 422, "invalid-arms"),
        (b'{"user": "u", "arms": ["a"], "exclude": ["a"]}', 422, "invalid-arms"),
        (b'{"user": "u", "arms": ["a"], "baseline": "b"}', 422, "invalid-arms"),
        (b'{"user": "u", "arms": [{"id": "a", "features": [1.0]}]}', 422, "invalid-context"),
        (b'{"user": "u", "arms": [{"id": "a", "features": [NaN]}]}', 400, "malformed"),
        (b'{"user": "u", "arms": [{"id": "a", "features": [Infinity]}]}', 400, "malformed"),
        (b'{"user": "u", "arms": [{"id": "a", "features": [1e400]}]}', 422, "invalid-request"),
        (b'{"user": "u", "arms": [{"id": "a", "features": [1e101]}]}', 422, "invalid-request"),
    ],
)
def test_a_bad_request_gets_one_clear_problem_and_changes_nothing(client, body, status, kind):
    before = model(client)["log_position"]
    answer = client.post("/v1/rank", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM), answer.text
    told = answer.json()
    assert (told["status"], told["type"]) == (status, f"/problems/{kind}")
    assert len(answer.content) < 2_000
    assert model(client)["log_position"] == before


@pytest.mark.parametrize("value", [b"NaN", b"Infinity", b"-Infinity", b"1e400", b'"1"', b"null"])
def test_a_reward_that_is_no_number_is_refused_and_can_be_sent_again(world, client, value):
    event_id = world.rank(client).json()["event_id"]
    where, kind = f"/v1/events/{event_id}/reward", {"content-type": "application/json"}
    answer = client.post(where, content=b'{"value": %s}' % value, headers=kind)
    assert answer.status_code in (400, 422)
    assert client.post(where, json={"value": 1.0}).json()["status"] == "learnt"


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/json"])
def test_a_body_of_another_kind_is_refused(client, kind):
    body = json.dumps({"user": "u", "arms": ["a"]})
    answer = client.post("/v1/rank", content=body, headers={"content-type": kind})
    assert (answer.status_code, answer.headers["content-type"]) == (415, PROBLEM)
    good = client.post(
        "/v1/rank", content=body, headers={"content-type": "Application/JSON; charset=utf-8"}
    )
    assert good.status_code == 200


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_body_of_two_megabytes_is_refused_and_the_server_goes_on(world, client, is_declared):
    whole = json.dumps({"user": "u" * (2 * LIMIT), "arms": ["a"]}).encode()

    def pieces():
        for start in range(0, len(whole), 65_536):
            yield whole[start : start + 65_536]

    answer = client.post(
        "/v1/rank",
        content=whole if is_declared else pieces(),
        headers={"content-type": "application/json"},
    )
    assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)
    assert world.rank(client).status_code == 200


def test_a_body_just_below_the_limit_is_read(client):
    arms = [f"arm-{number:0100d}" for number in range(9_000)]
    body = json.dumps({"user": "u", "arms": arms}, separators=(",", ":")).encode()
    assert 0.9 * LIMIT < len(body) < LIMIT
    answer = client.post("/v1/rank", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert len(answer.json()["ranking"]) == 9_000


def test_parameters_that_a_policy_does_not_take_are_refused(client):
    where = f"{prefix(SUMS)}/config"
    before = client.get(where).json()
    for wrong in ({"n_draws": 1.5}, {"n_draws": -1}, {"posterior_scale": -1.0}, {"beta": 1.0}):
        answer = client.patch(where, json={"policy": wrong})
        assert answer.status_code == 422, (wrong, answer.text)
    assert client.get(where).json() == before


# --- many at once ---------------------------------------------------------------------------------


def test_a_hundred_callers_with_one_event_id_get_one_decision(world, client):
    before = model(client)
    body = {"user": world.town.users[0], "arms": list(world.town.arms), "event_id": "the one"}
    answers = at_once(world, 100, [("/v1/rank", body)] * 100)
    assert len(set(answers)) == 1
    assert answers[0][0] == 200
    after = model(client)
    assert after["decisions"] == before["decisions"] + 1
    assert after["log_position"] == before["log_position"] + 1


def test_a_reward_sent_many_times_at_once_is_learnt_once(world, client):
    event_id = world.rank(client).json()["event_id"]
    before = model(client)
    call = (f"/v1/events/{event_id}/reward", {"value": 1.0})
    told = Counter(json.loads(answer)["status"] for _, answer in at_once(world, 30, [call] * 30))
    assert told == {"learnt": 1, "repeated": 29}
    after = model(client)
    assert (after["version"], after["log_position"]) == (
        before["version"] + 1,
        before["log_position"] + 1,
    )


@pytest.mark.parametrize("mode", ["learn", "frozen"])
def test_a_reward_that_is_not_learnt_is_logged_once_when_it_is_sent_many_times(world, client, mode):
    """A caller that hears nothing sends again while its first request is still under way."""
    event_id = world.rank(client).json()["event_id"]
    where = f"/v1/events/{event_id}/reward"
    if mode == "learn":
        assert client.post(where, json={"value": 1.0}).status_code == 200
    assert client.patch("/v1/config", json={"mode": mode}).status_code == 200
    before = model(client)["log_position"]
    again = {"event_id": event_id, "value": 0.5, "reward_id": "second"}
    answer = client.post("/v1/rewards/batch", json={"rewards": [again] * 30}).json()
    told = Counter(result["answer"]["status"] for result in answer["results"])
    assert told == {"logged" if mode == "frozen" else "ignored": 1, "repeated": 29}
    assert model(client)["log_position"] == before + 1
    assert len(client.get(f"/v1/events/{event_id}").json()["rewards"]) == (
        1 if mode == "frozen" else 2
    )
    client.patch("/v1/config", json={"mode": "learn"})


def test_a_reward_that_came_while_frozen_is_neither_learnt_nor_contradicted_later(world, client):
    event_id = world.rank(client).json()["event_id"]
    where = f"/v1/events/{event_id}/reward"
    client.patch("/v1/config", json={"mode": "frozen"})
    assert client.post(where, json={"value": 1.0}).json()["status"] == "logged"
    client.patch("/v1/config", json={"mode": "learn"})
    assert client.post(where, json={"value": 2.0}).status_code == 409
    assert client.post(where, json={"value": 1.0}).json()["status"] == "repeated"
    assert len(client.get(f"/v1/events/{event_id}").json()["rewards"]) == 1


def test_an_event_that_is_activated_many_times_at_once_is_activated_once(world, client):
    event_id = world.rank(client, activate=False).json()["event_id"]
    call = (f"/v1/events/{event_id}/activate", None)
    told = Counter(json.loads(answer)["activated"] for _, answer in at_once(world, 20, [call] * 20))
    assert told == {True: 1, False: 19}


# --- slow and silent ones -------------------------------------------------------------------------


def test_callers_that_never_finish_their_request_do_not_keep_others_waiting(world, client):
    head = b"POST /v1/rank HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    beginnings = [b"", b"POST /v1/ra", head, head + b'content-length: 100\r\n\r\n{"user"']
    with ExitStack() as stack:
        for number in range(200):
            slow = socket.create_connection(("127.0.0.1", world.http_port), timeout=30.0)
            stack.enter_context(slow)
            slow.sendall(beginnings[number % len(beginnings)])
        started = time.monotonic()
        for _ in range(20):
            assert world.rank(client).status_code == 200
        assert time.monotonic() - started < 20.0
    assert client.get("/readyz").status_code == 200


def test_a_caller_that_hangs_up_leaves_its_decision_to_be_asked_for_again(world, client):
    body = {"user": world.town.users[0], "arms": list(world.town.arms), "event_id": "hung up"}
    data = json.dumps(body).encode()
    head = f"POST /v1/rank HTTP/1.1\r\nhost: x\r\ncontent-length: {len(data)}\r\n\r\n".encode()
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", world.http_port), timeout=30.0) as hasty:
            hasty.sendall(head + data)
    first = client.post("/v1/rank", json=body)
    assert first.status_code == 200
    assert client.post("/v1/rank", json=body).content == first.content


def test_a_frozen_participant_degrades_decisions_and_delays_few(world, client):
    """Ranks are answered all the while; those after it is known to be away do not wait for it."""
    assert world.rank(client).json()["degraded"] is False
    world.local.signal("bank", signal.SIGSTOP)
    try:
        answers = [world.rank(client) for _ in range(6)]
        assert {answer.status_code for answer in answers} == {200}
        assert all(answer.json()["degraded"] for answer in answers)
        assert answers[0].json()["contributors"] == ["shop"]
        started = time.monotonic()
        for _ in range(10):
            assert world.rank(client).json()["degraded"] is True
        assert time.monotonic() - started < 8.0  # ten deadlines are ten seconds
        assert client.get("/readyz").status_code == 200
    finally:
        world.local.signal("bank", signal.SIGCONT)
    limit = time.monotonic() + 60.0
    while world.rank(client).json()["degraded"]:
        assert time.monotonic() < limit
        time.sleep(0.05)
