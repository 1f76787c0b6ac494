"""HTTP on secret shares: what nobody knows is null, and what cannot be is refused with a reason."""

import json
import time

import pytest
from http_world import HttpWorld

from vfbandits.protocol.roster import SharesRules, Terms

RULES = SharesRules(helper="bank", max_arms=5, posterior_scale=0.1)
TERMS = Terms(bound=1.0, shares=RULES)
MODEL = 'policy = "lints"\nposterior_scale = 0.1\nseed = 0\n'
LINTS = {"name": "lints", "posterior_scale": 0.2}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shares")
    with HttpWorld(folder, terms=TERMS, model=MODEL) as world:
        yield world


@pytest.fixture
def client(world):
    with world.client() as client:
        yield client


def test_a_decision_has_an_arm_and_no_number_that_nobody_knows(world, client):
    ranked = world.rank(client, event_id="one").json()
    assert ranked["arm"] == ranked["ranking"][0]["id"]
    assert {one["id"] for one in ranked["ranking"]} == set(world.town.arms)
    numbers = {key: one[key] for one in ranked["ranking"] for key in one if key != "id"}
    assert numbers == {"score": None, "estimate": None, "probability": None}
    assert (ranked["contributors"], ranked["degraded"]) == (["shop", "bank"], False)
    assert world.rank(client, event_id="one").json() == ranked
    answer = client.post("/v1/events/one/reward", json={"value": 0.5})
    assert answer.json()["status"] == "learnt"
    assert client.post("/v1/events/one/reward", json={"value": 0.5}).json()["status"] == "repeated"
    assert client.get("/v1/events/one").json()["reward"] == 0.5


def test_the_model_health_and_metrics_name_the_level_and_the_dealt_words(world, client):
    world.rank(client)
    model = client.get("/v1/model").json()
    assert (model["protection"], model["norm"]) == ("shares", None)
    ready = client.get("/readyz").json()
    assert ready["status"] == "ok"
    assert ready["reasons"] == [] or "dealt words are left for" in ready["reasons"][0]
    metrics = client.get("/metrics").text
    assert 'vfb_shares_decisions_total{outcome="alone"} 0.0' in metrics
    assert "vfb_shares_helper_away 0.0" in metrics
    assert "vfb_shares_windows_left 15.0" in metrics
    assert "vfb_model_norm{" not in metrics
    page = json.loads(client.get("/v1/dashboard").text)
    assert page["facts"]["protection"] == "shares"
    shares = page["shares"]
    assert (shares["helper"], shares["has_features"], shares["away"]) == ("bank", True, "")
    assert shares["learns"] == "the arm of a decision"
    assert (shares["windows"], shares["is_ending"]) == (15, True)  # the alert fires below 16


@pytest.mark.parametrize(
    ("method", "path", "body", "reason"),
    [
        ("POST", "/v1/events/two/retract", {}, "cannot take a reward back"),
        ("PATCH", "/v1/config", {"policy": {"name": "linucb"}}, "a policy with reads noise"),
        ("PATCH", "/v1/config", {"policy": LINTS}, "posterior_scale 0.1"),
        ("PATCH", "/v1/config", {"default_reward": 17.0}, "from reward_min -16 to reward_max 16"),
        ("PATCH", "/v1/config", {"reward_max": 20.0}, "reward_max must be at most 16 in size"),
        ("PATCH", "/v1/config", {"log_contexts": "all"}, "log_contexts must be 'chosen'"),
    ],
)
def test_what_cannot_be_on_secret_shares_is_refused(world, client, method, path, body, reason):
    world.rank(client, event_id="two")
    client.post("/v1/events/two/reward", json={"value": 1.0})
    refused = client.request(method, path, json=body)
    assert 400 <= refused.status_code < 500, refused.text
    assert reason in refused.text
    assert world.rank(client).status_code == 200


def test_rewards_and_arms_beyond_the_terms_are_refused(world, client):
    world.rank(client, event_id="three")
    refused = client.post("/v1/events/three/reward", json={"value": 17.0})
    assert refused.status_code == 422
    assert "from -16 to 16 (reward_min, reward_max), got 17" in refused.text
    arms = [f"arm-{number}" for number in range(6)]
    refused = client.post("/v1/rank", json={"user": "user-0", "arms": arms})
    assert refused.status_code == 422
    assert "at most max_arms=5 arms, got 6" in refused.text


def test_a_sum_of_rewards_beyond_the_terms_is_learnt_as_the_bound(world, client):
    client.patch("/v1/config", json={"aggregation": "sum", "reward_wait_s": 0.5})
    try:
        world.rank(client, event_id="four")
        for name in ("first", "second"):
            client.post("/v1/events/four/reward", json={"value": 10.0, "reward_id": name})
        until = time.monotonic() + 30.0
        while client.get("/v1/events/four").json()["status"] in ("waiting", "counted"):
            assert time.monotonic() < until
            time.sleep(0.05)
        event = client.get("/v1/events/four").json()
        assert (event["status"], event["reward"]) == ("learnt", 16.0)
    finally:
        client.patch("/v1/config", json={"aggregation": "earliest", "reward_wait_s": 600.0})
