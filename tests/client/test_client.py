"""Both clients against a server over real sockets: what they send, what they make of answers."""

import asyncio
import inspect
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from contract_server import Contract, Says, Slow, problem, running
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from web_clients import KINDS

from vfbandits.client import schemas
from vfbandits.client.async_client import AsyncClient
from vfbandits.client.calls import ApiError
from vfbandits.client.client import Client
from vfbandits.errors import ContextError, RewardError, SettingError, WireError

CONTROL = {"min_codepoint": 0x20, "exclude_characters": "\x7f", "exclude_categories": ["Cs"]}


@pytest.fixture(scope="module")
def served():
    contract = Contract()
    with running(contract.app) as port:
        yield contract, f"http://127.0.0.1:{port}"


@pytest.fixture(params=KINDS)
def world(request, served):
    """A client and the server that it talks to, with nothing seen yet."""
    contract, address = served
    contract.seen.clear()
    contract.faults.clear()
    contract.is_ready = True
    with KINDS[request.param](address) as client:
        yield client, contract


def sent(contract):
    return contract.seen[-1].body


def test_a_rank_is_sent_and_its_answer_has_a_type(world):
    client, contract = world
    answer = client.rank("ann", ["tea", "milk"], event_id="e1", exclude=["milk"], baseline="tea")
    assert isinstance(answer, schemas.RankResponse)
    assert (answer.event_id, answer.arm) == ("e1", "tea")
    assert isinstance(answer.ranking[0], schemas.RankedArm)
    assert sent(contract)["exclude"] == ["milk"]
    assert sent(contract)["baseline"] == "tea"


def test_arms_are_ids_pairs_or_structs(world):
    client, contract = world
    arms = ["tea", ("milk", np.array([0.5, 2.0])), schemas.Arm("rum", [1.0])]
    client.rank("ann", arms, features=(1, 2.5), activate=False)
    assert sent(contract)["arms"] == [
        "tea",
        {"id": "milk", "features": [0.5, 2.0]},
        {"id": "rum", "features": [1.0]},
    ]
    assert sent(contract)["features"] == [1.0, 2.5]
    assert sent(contract)["activate"] is False


def test_an_event_without_an_id_gets_one_of_its_own(world):
    client, contract = world
    first, second = client.rank("ann", ["tea"]), client.rank("ann", ["tea"])
    assert first.event_id == contract.seen[0].body["event_id"]
    assert first.event_id != second.event_id
    assert len(first.event_id) == 32


def test_many_ranks_are_one_call_and_each_has_an_id(world):
    client, contract = world
    requests = [schemas.RankRequest("ann", [arm]) for arm in ("tea", "milk")]
    results = client.rank_many([*requests, schemas.RankRequest("bob", ["rum"], "mine")])
    assert [each.answer.arm for each in results] == ["tea", "milk", "rum"]
    ids = [each["event_id"] for each in sent(contract)["requests"]]
    assert len(contract.seen) == 1
    assert [each.answer.event_id for each in results] == ids
    assert ids[2] == "mine"


def test_many_rewards_are_one_call_and_each_has_its_own_outcome(world):
    client, _ = world
    event_id = client.rank("ann", ["tea"]).event_id
    rewards = [
        (event_id, np.float64(1.0)),
        schemas.EventReward(event_id, 2.0, "b"),
        ("nobody", 1.0),
    ]
    first, second, third = client.reward_many(rewards)
    assert first.answer.status == second.answer.status == "learnt"
    assert third.answer is None
    assert third.problem.status == 404


def test_an_event_is_activated_rewarded_and_read(world):
    client, _ = world
    event_id = client.rank("ann", ["tea"], activate=False).event_id
    assert client.activate(event_id).activated
    assert client.reward(event_id, 1.0, reward_id="click").status == "learnt"
    assert client.reward(event_id, 1.0, reward_id="click").status == "repeated"
    assert client.event(event_id).answer.event_id == event_id


def test_the_model_the_settings_and_the_campaigns_can_be_read(world):
    client, _ = world
    assert isinstance(client.model(), schemas.ModelResponse)
    assert client.config().campaign == "default"
    assert client.campaigns() == ["default", "summer"]


def test_a_change_of_settings_holds_what_changes_and_no_more(world):
    client, contract = world
    client.change_config(holdback=0.1, default_reward=None)
    assert contract.seen[-1].method == "PATCH"
    assert sent(contract) == {"holdback": 0.1, "default_reward": None}


def test_a_setting_that_there_is_not_is_refused_here(world):
    client, contract = world
    with pytest.raises(TypeError, match="hold_back"):
        client.change_config(hold_back=0.1)
    assert contract.seen == []


def test_that_a_server_is_not_ready_is_an_answer(world):
    client, contract = world
    assert client.ready() == schemas.Health("ok")
    contract.is_ready = False
    assert client.ready() == schemas.Health("unavailable", ["the journal is being read"])
    assert len(contract.seen) == 2


def test_a_problem_becomes_an_error_with_its_words_and_is_not_tried_again(world):
    client, contract = world
    with pytest.raises(ApiError, match="404 Unknown event: wanted a known id") as caught:
        client.reward("nobody", 1.0)
    assert (caught.value.status, caught.value.title) == (404, "Unknown event")
    assert caught.value.detail == "wanted a known id"
    assert len(contract.seen) == 1


def test_a_contradiction_is_a_409(world):
    client, _ = world
    event_id = client.rank("ann", ["tea"]).event_id
    client.reward(event_id, 1.0)
    with pytest.raises(ApiError) as caught:
        client.reward(event_id, 0.0)
    assert caught.value.status == 409


@pytest.mark.parametrize("status", [400, 401, 403, 413, 415, 422, 500])
def test_other_refusals_are_not_tried_again(world, status):
    client, contract = world
    contract.faults.append(Says(status, problem(status, "No")))
    with pytest.raises(ApiError, match=f"{status} No"):
        client.model()
    assert len(contract.seen) == 1


def test_of_a_body_that_is_no_problem_nothing_is_told(world):
    client, contract = world
    contract.faults.append(Says(500, b"<html>stack of secrets</html>"))
    with pytest.raises(ApiError) as caught:
        client.model()
    assert str(caught.value) == "500 Internal Server Error"


@pytest.mark.parametrize("body", [b"", b"welcome", b'{"campaign": 1}', b"[1]", b'"\xff"'])
def test_an_answer_that_is_not_what_was_promised_is_an_error(world, body):
    client, contract = world
    contract.faults.append(Says(200, body))
    with pytest.raises(ApiError, match="wanted a ModelResponse in JSON"):
        client.model()


def test_a_redirect_is_not_followed(world):
    client, contract = world
    contract.faults.append(Says(307, b"", {"location": "/v1/config"}))
    with pytest.raises(ApiError, match="307"):
        client.model()
    assert len(contract.seen) == 1


@pytest.mark.parametrize(
    "name", ["a/b", ".", "..", "a?b#c", "50%2F", "grüße 😀", "a;b,c", "reward"]
)
def test_an_id_may_hold_any_character(world, name):
    client, contract = world
    client.rank("ann", ["tea"], event_id=name)
    assert client.event(name).event_id == name
    assert client.reward(name, 1.0, reward_id=name + str(len(contract.rewards))).event_id == name
    assert client.activate(name).event_id == name
    assert contract.seen[-1].raw_path.count(b"/") == 4  # one segment, for any server


@hypothesis_settings(max_examples=30)
@given(name=st.text(st.characters(**CONTROL), min_size=1, max_size=40))
def test_every_id_arrives_as_it_was(served, name):
    with Client(served[1]) as client:
        assert client.activate(name).event_id == name


@pytest.mark.parametrize("name", ["", "x" * 257, "\ud800"])
def test_an_id_that_no_path_can_hold_is_refused_here(world, name):
    client, contract = world
    for call in (client.activate, client.event, lambda each: client.reward(each, 1.0)):
        with pytest.raises(WireError, match="an id"):
            call(name)
    assert contract.seen == []


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_here(world, value):
    client, contract = world
    with pytest.raises(RewardError):
        client.reward("e1", value)
    with pytest.raises(RewardError):
        client.reward_many([schemas.EventReward("e1", value)])
    with pytest.raises(ContextError, match=f"finite numbers, got {value} at feature 1"):
        client.rank("ann", [("tea", [0.5, value])])
    with pytest.raises(ContextError, match=f"finite numbers, got {value} at feature 0"):
        client.rank("ann", ["tea"], features=[value])
    assert contract.seen == []


def test_text_that_utf8_cannot_hold_is_refused_here(world):
    client, contract = world
    with pytest.raises(WireError, match=r"valid Unicode for UTF-8, got '\\ud800' at character 1"):
        client.rank("a\ud800", ["tea"])
    assert contract.seen == []


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_campaign_has_its_own_paths(served, kind):
    contract, address = served
    contract.seen.clear()
    with kind(address + "/", campaign="summer") as client:
        assert client.model().campaign == "summer"
        client.rank("ann", ["tea"])
        client.ready()
    paths = [each.path for each in contract.seen]
    assert paths == ["/v1/campaigns/summer/model", "/v1/campaigns/summer/rank", "/readyz"]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "ftp://here"},
        {"base_url": "here"},
        {"base_url": "http://"},
        {"base_url": "http://here:port"},
        {"base_url": "http://user:word@here"},
        {"base_url": "http://here?key=1"},
        {"timeout_s": 0.0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
        {"retries": -1},
        {"verify": "/no/such/file"},
    ],
    ids=str,
)
def test_settings_that_no_call_could_be_made_with_are_refused(kind, wrong):
    with pytest.raises(SettingError) as caught:
        kind(**{"base_url": "http://here", **wrong})
    assert "word" not in str(caught.value)
    if "verify" in wrong:
        assert "must name PEM files, got /no/such/file: " in str(caught.value)


def test_one_connection_serves_call_after_call(world):
    client, contract = world
    for _ in range(5):
        client.model()
        client.rank("ann", ["tea"])
    assert len({each.port for each in contract.seen}) == 1


def test_many_calls_are_under_way_at_once(served):
    contract, address = served
    contract.most_at_once = 0
    contract.faults.extend([Slow(0.1)] * 50)

    async def crowd():
        async with AsyncClient(address) as client:
            return await asyncio.gather(
                *(client.rank("ann", ["tea"], event_id=f"crowd-{n}") for n in range(50))
            )

    answers = asyncio.run(crowd())
    assert [each.event_id for each in answers] == [f"crowd-{n}" for n in range(50)]
    assert contract.most_at_once > 10


def test_threads_share_a_client(served):
    contract, address = served
    contract.most_at_once = 0
    contract.faults.extend([Slow(0.05)] * 16)
    with Client(address) as client, ThreadPoolExecutor(8) as pool:
        ids = [f"thread-{n}" for n in range(16)]
        answers = list(pool.map(lambda name: client.rank("ann", ["tea"], event_id=name), ids))
    assert [each.event_id for each in answers] == ids
    assert contract.most_at_once > 2


def test_both_clients_have_the_same_calls():
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_"):
            other = getattr(AsyncClient, name)
            assert inspect.iscoroutinefunction(other)
            assert inspect.signature(method) == inspect.signature(other)


def test_an_error_survives_the_way_to_another_process():
    error = pickle.loads(pickle.dumps(ApiError(429, "Too many", "wanted fewer", 2.0)))  # noqa: S301
    assert (str(error), error.retry_after_s) == ("429 Too many: wanted fewer", 2.0)
