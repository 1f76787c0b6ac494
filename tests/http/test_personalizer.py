"""The facade of Azure Personalizer: its paths, fields, statuses and errors before a campaign."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_world import RequestWorld
from structlog.testing import capture_logs
from worlds import MORE

from vfbandits.errors import ConfigError
from vfbandits.features.fit import hash_scaling
from vfbandits.features.named import FeatureNames, NamedRows
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key
from vfbandits.settings.http import PersonalizerSettings
from vfbandits.telemetry.log import refuse_arrays

RANK = "/personalizer/v1.0/rank"
NAMES = FeatureNames(NamedRows(hash_scaling(rest=6)), NamedRows(hash_scaling(rest=5)))
FACADE = PersonalizerSettings(user="user.id")
ACTIONS = [
    {"id": "news", "features": [{"topic": "politics"}, {"length": 300}]},
    {"id": "sport", "features": [{"topic": "sport"}]},
    {"id": "film", "features": []},
]
JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=10,
)  # fmt: skip


def world(layout="outer", **more):
    more = {"names": NAMES, "personalizer": FACADE, **more}
    arm_dim = 5 if layout == "outer" else None
    return RequestWorld(layout=layout, dim=6, arm_dim=arm_dim, **more)


def asked(**more):
    return {"contextFeatures": [{"time": "morning"}], "actions": ACTIONS, **more}


def run(talk, **more):
    return world(**more).run(talk)


@pytest.mark.parametrize("layout", ["outer", "disjoint"])
def test_rank_and_reward_have_the_services_fields_and_statuses(layout):
    async def talk(client):
        ranked = await client.post(RANK, json=asked(eventId="e/1"))
        rewarded = await client.post("/personalizer/v1.0/events/e%2F1/reward", json={"value": 0.5})
        return ranked, rewarded, (await client.get("/v1/events/e%2F1")).json()

    ranked, rewarded, event = run(talk, layout=layout)
    assert ranked.status_code == 201
    answer = ranked.json()
    assert answer.keys() == {"ranking", "eventId", "rewardActionId"}
    assert (answer["eventId"], answer["ranking"][0]["id"]) == ("e/1", answer["rewardActionId"])
    assert {one["id"] for one in answer["ranking"]} == {"news", "sport", "film"}
    assert sum(one["probability"] for one in answer["ranking"]) == pytest.approx(1.0)
    assert (rewarded.status_code, rewarded.content) == (204, b"")
    assert (event["arm"], event["reward"]) == (answer["rewardActionId"], 0.5)


def test_the_log_has_the_layout_and_the_hashed_widths():
    async def talk(client):
        return await client.post(RANK, json=asked())

    with capture_logs() as lines:
        run(talk)
    (ready,) = [
        refuse_arrays(None, "", one) for one in lines if one["event"] == "personalizer_ready"
    ]
    assert (ready["layout"], ready["hashed"]) == ("outer", "scaling 6, arm_scaling 5")


def test_excluded_actions_keep_their_places_with_probability_zero():
    async def talk(client):
        return (await client.post(RANK, json=asked(excludedActions=["sport", "jazz"]))).json()

    answer = run(talk)
    assert answer["ranking"][1] == {"id": "sport", "probability": 0.0}
    assert answer["rewardActionId"] in ("news", "film")
    assert [one["id"] for one in answer["ranking"]].count("sport") == 1


def test_the_same_event_with_other_actions_has_the_actions_of_its_first_answer():
    async def talk(client):
        first = await client.post(RANK, json=asked(eventId="e", excludedActions=["sport"]))
        others = [{"id": "jazz"}, {"id": "sport"}]
        return first, await client.post(RANK, json=asked(eventId="e", actions=others))

    first, again = run(talk)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["rewardActionId"] == first.json()["rewardActionId"]
    assert [one["id"] for one in again.json()["ranking"]] == [
        one["id"] for one in first.json()["ranking"] if one["id"] != "sport"
    ]


def test_a_deferred_event_is_learnt_from_once_it_is_activated():
    async def talk(client):
        await client.post(RANK, json=asked(eventId="e", deferActivation=True))
        held = (await client.get("/v1/events/e")).json()["status"]
        active = await client.post("/personalizer/v1.0/events/e/activate")
        again = await client.post("/personalizer/v1.0/events/e/activate")
        await client.post("/personalizer/v1.0/events/e/reward", json={"value": 1.0})
        learnt = (await client.get("/v1/events/e")).json()
        return held, active, again, learnt

    held, active, again, learnt = run(talk)
    assert (held, active.status_code, again.status_code) == ("held", 204, 204)
    assert (learnt["status"], learnt["reward"]) == ("learnt", 1.0)


def test_a_reward_may_come_before_the_activation():
    async def talk(client):
        await client.post(RANK, json=asked(eventId="e", deferActivation=True))
        early = await client.post("/personalizer/v1.0/events/e/reward", json={"value": 1.0})
        active = await client.post("/personalizer/v1.0/events/e/activate")
        return early, active, (await client.get("/v1/events/e")).json()

    early, active, event = run(talk)
    assert (early.status_code, active.status_code) == (204, 204)
    assert (event["status"], [one["value"] for one in event["rewards"]]) == ("waiting", [1.0])


def test_the_same_event_gets_the_same_answer():
    async def talk(client):
        return [(await client.post(RANK, json=asked(eventId="e"))).content for _ in range(2)]

    first, second = run(talk)
    assert first == second


@pytest.mark.parametrize(("aggregation", "learnt"), [("earliest", 1.0), ("sum", 2.5)])
def test_several_rewards_of_one_event_are_aggregated_as_the_campaign_says(aggregation, learnt):
    world_ = world(aggregation=aggregation, reward_wait_s=600.0)

    async def talk(client):
        await client.post(RANK, json=asked(eventId="e"))
        statuses = [
            (await client.post("/personalizer/v1.0/events/e/reward", json={"value": v})).status_code
            for v in (1.0, 1.0, 0.5)
        ]
        pending = world_.leader.model.pending.get("e")
        reports = [] if pending is None else [*pending.reports.values()]
        return statuses, reports, (await client.get("/v1/events/e")).json()["reward"]

    statuses, reports, reward = world_.run(talk)
    assert statuses == [204, 204, 204]
    assert (sum(reports) if aggregation == "sum" else reward) == learnt


@given(context=JSONS, of_action=JSONS)
@settings(max_examples=25 * MORE, deadline=None)
def test_no_feature_is_ever_refused(context, of_action):
    async def talk(client):
        actions = [{"id": "a", "features": of_action}, {"id": "b", "features": context}]
        body = json.dumps({"contextFeatures": context, "actions": actions})
        headers = {"content-type": "application/json; charset=utf-8"}
        return await client.post(RANK, content=body, headers=headers)

    answer = run(talk)
    assert answer.status_code == 201, answer.text


def test_features_reach_the_model_as_their_hashes_and_the_user_does_not():
    world_ = world()
    context = [{"time": "morning"}, {"user": {"id": 2**60 + 1}}]

    async def talk(client):
        await client.post(RANK, json=asked(contextFeatures=context, eventId="e"))
        await client.post(RANK, json=asked(eventId="f"))

    world_.run(talk)
    known, unknown = world_.source.queries
    assert (known.user, unknown.user) == (str(2**60 + 1), "f")
    row = NAMES.own.free_rows([[("time", "morning")]], longest=64.0)
    assert known.own == unknown.own == row.tobytes()
    of_arms = np.frombuffer(known.arm_features).reshape(3, 5)
    pairs = [("id", "news"), ("topic", "politics"), ("length", 300)]
    assert of_arms[0].tobytes() == NAMES.arms.free_rows([pairs], longest=64.0).tobytes()


def error(response):
    assert response.headers["content-type"] == "application/json"
    found = response.json()
    assert found.keys() == {"error"}
    return response.status_code, found["error"]["code"], found["error"]["message"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"actions": []}', "length >= 1"),
        ('{"contextFeatures": []}', "missing required field `actions`"),
        ('{"actions": [{"id": "a"}, {"id": "a"}]}', "each action must come once"),
        ('{"actions": [{"id": "a"}], "excludedActions": ["a"]}', "not excluded, got none"),
        ('{"actions": [{"id": "a"}], "actions": [{"id": "b"}]}', "`actions` more than once"),
        ('{"actions": [{"id": "a"}], "contextFeatures": %s}' % ("[" * 9_000 + "]" * 9_000),
         "nested too deeply"),
        ("{", "truncated"),
    ],
)  # fmt: skip
def test_what_cannot_be_ranked_is_a_bad_request_in_the_services_format(body, says):
    async def talk(client):
        return await client.post(RANK, content=body, headers={"content-type": "application/json"})

    status, code, message = error(run(talk))
    assert (status, code) == (400, "BadRequest")
    assert says in message


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("POST", "/personalizer/v1.1-preview.1/multislot/rank", "got a multi-slot call"),
        ("POST", "/personalizer/v1.1-preview.1/multislot/events/e/reward", "multi-slot"),
        ("GET", "/personalizer/v1.0/configurations/service", "got another call"),
        ("PUT", "/personalizer/v1.0/configurations/policy", "got another call"),
        ("POST", "/personalizer/v1.0/events/none/reward", "got 'none'"),
        ("POST", "/personalizer/v1.0/events/none/activate", "got 'none'"),
    ],
)
def test_what_is_not_there_is_not_found_in_the_services_format(method, path, says):
    async def talk(client):
        return await client.request(method, path, json={"value": 1.0})

    status, code, message = error(run(talk))
    assert (status, code) == (404, "ResourceNotFound")
    assert says in message


def test_without_its_table_every_path_says_so():
    async def talk(client):
        return await client.post(RANK, json=asked())

    status, _, message = error(run(talk, personalizer=None))
    assert status == 404
    assert "[http.personalizer]" in message


def test_keys_and_scopes_count_and_come_in_the_services_header(tmp_path):
    keys = {scope: make_key(scope, scopes=[scope]) for scope in ("rank", "reward")}
    for key in keys.values():
        add_key(tmp_path / "keys", key.record)

    async def talk(client):
        answers = []
        for key in ("", keys["reward"].text, keys["rank"].text):
            headers = {"ocp-apim-subscription-key": key} if key else {}
            answers.append(await client.post(RANK, json=asked(), headers=headers))
        return answers

    nobody, other, web = run(talk, keys=tmp_path / "keys")
    assert error(nobody)[:2] == (401, "Unauthorized")
    assert error(other)[:2] == (403, "Forbidden")
    assert web.status_code == 201


def test_a_trainer_sends_its_callers_to_a_ranker():
    async def talk(client):
        return await client.post(RANK, json=asked())

    assert error(run(talk, decides=False))[:2] == (503, "ServiceUnavailable")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"layout": "per_arm"}, "needs layout 'outer'.* or 'disjoint'.*, got layout 'per_arm'"),
        ({"names": FeatureNames()}, "scaling and arm_scaling .* --hash-rest WIDTH, got none in"),
        ({"names": FeatureNames(NAMES.own)}, "got none in arm_scaling"),
        ({"names": FeatureNames(NamedRows(hash_scaling({"a": 6}))), "layout": "disjoint"},
         "in layout 'disjoint' scaling under"),
        ({"personalizer": PersonalizerSettings()}, "needs user, .* looked up at bank, got none"),
    ],
)  # fmt: skip
def test_what_it_needs_is_said_at_the_start(more, says):
    async def talk(client):
        raise AssertionError("it started")

    with pytest.raises(ConfigError, match=says):
        run(talk, **more)


@pytest.mark.parametrize("path", [RANK, "/personalizer/v1.0/events/e/reward"])
def test_json_that_is_nested_too_deeply_is_a_bad_request(path):
    async def talk(client):
        body = asked() if path == RANK else {"value": 1.0}
        text = json.dumps(body)[:-1] + ', "more": ' + "[" * 5_000 + "]" * 5_000 + "}"
        return await client.post(path, content=text, headers={"content-type": "application/json"})

    assert error(run(talk)) == (400, "BadRequest", "JSON is nested too deeply")
