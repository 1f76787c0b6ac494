"""When a call is sent again, and what that does: nothing twice."""

import re
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx2
import pytest
from contract_server import Contract, Lost, Says, Slow, problem, running
from ports import free_port
from web_clients import KINDS

from vfbandits.client.calls import ApiError, ApiUnreachable
from vfbandits.client.retry import retry_after_s
from vfbandits.client.schemas import RankRequest


@pytest.fixture(scope="module")
def served():
    contract = Contract()
    with running(contract.app) as port:
        yield contract, f"http://127.0.0.1:{port}"


@pytest.fixture
def contract(served):
    """The server, with nothing seen yet."""
    made = served[0]
    made.seen.clear()
    made.faults.clear()
    return made


@pytest.fixture(params=KINDS)
def open_client(request, served):
    """Opens clients, of either kind."""
    return lambda **settings: KINDS[request.param](**{"base_url": served[1], **settings})


def test_a_rank_whose_answer_was_lost_is_one_event(contract, open_client):
    contract.faults.append(Lost())
    before = len(contract.events)
    with open_client() as client:
        answer = client.rank("ann", ["tea"])
    assert len(contract.events) == before + 1
    assert [each.body["event_id"] for each in contract.seen] == [answer.event_id] * 2


def test_ranks_in_one_call_whose_answer_was_lost_keep_their_ids(contract, open_client):
    contract.faults.append(Lost())
    with open_client() as client:
        client.rank_many([RankRequest("ann", ["tea"]), RankRequest("bob", ["tea"])])
    first, second = contract.seen
    assert first.body == second.body


def test_a_reward_whose_acknowledgement_was_lost_counts_once(contract, open_client):
    with open_client() as client:
        event_id = client.rank("ann", ["tea"]).event_id
        contract.faults.append(Lost())
        assert client.reward(event_id, 1.0).status == "repeated"
    assert [key for key in contract.rewards if key[0] == event_id] == [(event_id, "")]


def test_a_change_of_settings_whose_answer_was_lost_is_not_sent_again(contract, open_client):
    contract.faults.append(Lost())
    with open_client() as client, pytest.raises(ApiUnreachable, match="after 1 try"):
        client.change_config(holdback=0.1)
    assert len(contract.seen) == 1


@pytest.mark.parametrize("status", [502, 504])
def test_a_change_of_settings_that_a_gateway_lost_is_not_sent_again(contract, open_client, status):
    contract.faults.append(Says(status))
    with open_client() as client, pytest.raises(ApiError, match=str(status)):
        client.change_config(holdback=0.1)
    assert len(contract.seen) == 1


def test_a_change_of_settings_that_was_put_off_is_sent_again(contract, open_client):
    contract.faults.append(Says(503))
    with open_client() as client:
        client.change_config(holdback=0.1)
    assert len(contract.seen) == 2


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again(contract, open_client, status):
    contract.faults.extend([Says(status), Says(status)])
    with open_client() as client:
        assert client.rank("ann", ["tea"]).arm == "tea"
    assert len(contract.seen) == 3


def test_tries_come_to_an_end_and_the_last_refusal_is_told(contract, open_client):
    contract.faults.extend([Says(503, problem(503, "Busy"))] * 5)
    with open_client(retries=2) as client, pytest.raises(ApiError, match="503 Busy"):
        client.model()
    assert len(contract.seen) == 3


def test_without_retries_there_is_one_try(contract, open_client):
    contract.faults.append(Lost())
    with open_client(retries=0) as client, pytest.raises(ApiUnreachable):
        client.model()
    assert len(contract.seen) == 1


def test_it_waits_as_long_as_the_server_asks(contract, open_client):
    contract.faults.append(Says(429, headers={"retry-after": "1"}))
    begin = time.monotonic()
    with open_client() as client:
        client.model()
    assert time.monotonic() - begin >= 1.0
    assert len(contract.seen) == 2


def test_it_does_not_wait_longer_than_it_was_given(contract, open_client):
    contract.faults.append(Says(429, problem(429, "Too many"), {"retry-after": "60"}))
    begin = time.monotonic()
    with open_client() as client, pytest.raises(ApiError, match="Too many") as caught:
        client.model()
    assert time.monotonic() - begin < 60.0
    assert caught.value.retry_after_s == 60.0
    assert len(contract.seen) == 1


def test_a_server_that_hangs_is_given_up_in_time(contract, open_client):
    contract.faults.append(Slow(30.0))
    wanted = r"wanted an answer to GET /v1/model within 0.3 s, got ReadTimeout"
    with open_client(timeout_s=0.3) as client, pytest.raises(ApiUnreachable, match=wanted):
        client.model()


def test_where_nobody_listens_it_tries_for_as_long_as_it_was_given_and_says_how_long(open_client):
    address, begin = f"http://127.0.0.1:{free_port()}", time.monotonic()
    with (
        open_client(base_url=address, timeout_s=1.0) as client,
        pytest.raises(ApiUnreachable) as caught,
    ):
        client.rank("ann", ["tea"])
    took = time.monotonic() - begin
    assert isinstance(caught.value, ConnectionError)
    said = re.fullmatch(
        r"wanted an answer to POST /v1/rank within 1 s, got ConnectError after (\d+) tries in "
        r"(\S+) s",
        str(caught.value),
    )
    assert int(said[1]) > 1
    assert 0.7 <= float(said[2]) <= took + 0.01


def test_the_number_of_tries_can_be_bounded(open_client):
    address = f"http://127.0.0.1:{free_port()}"
    with (
        open_client(base_url=address, retries=2, timeout_s=60.0) as client,
        pytest.raises(ApiUnreachable, match="ConnectError after 3 tries in"),
    ):
        client.rank("ann", ["tea"])


def test_a_server_that_comes_back_in_time_is_reached(open_client):
    port, contract, is_over = free_port(), Contract(), threading.Event()

    def come_back():
        time.sleep(0.3)
        with running(contract.app, port=port):
            is_over.wait()

    thread = threading.Thread(target=come_back)
    thread.start()
    try:
        with open_client(base_url=f"http://127.0.0.1:{port}", timeout_s=60.0) as client:
            client.change_config(holdback=0.1)  # it never left, so it may be sent again
            assert client.rank("ann", ["tea"]).arm == "tea"
    finally:
        is_over.set()
        thread.join()


def test_connections_that_a_restart_cut_are_made_anew(open_client):
    port, contract = free_port(), Contract()
    with open_client(base_url=f"http://127.0.0.1:{port}") as client:
        for _ in range(2):
            with running(contract.app, port=port):
                client.model()
                client.change_config(holdback=0.1)
    assert len(contract.seen) == 4


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("0", 0.0), ("7", 7.0), ("", None), ("soon", None), ("-1", None), ("1.5", None), ("²", None)],
)
def test_seconds_to_wait_are_whole_or_nothing(text, wanted):
    headers = [(b"retry-after", text.encode())]
    assert retry_after_s(httpx2.Response(429, headers=headers)) == wanted


@pytest.mark.parametrize(("ahead_s", "low", "high"), [(60, 50.0, 60.0), (-60, 0.0, 0.0)])
def test_a_date_to_come_back_at_is_counted_from_now(ahead_s, low, high):
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead_s), usegmt=True)
    found = retry_after_s(httpx2.Response(503, headers={"retry-after": date}))
    assert low <= found <= high
