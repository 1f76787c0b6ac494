"""Features by name over HTTP: the answers that their numbers get, bit for bit, or one problem."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from request_world import RequestWorld
from structlog.testing import capture_logs
from worlds import MORE

from vfbandits.client.async_client import AsyncClient
from vfbandits.client.calls import to_features
from vfbandits.client.schemas import Arm, RankRequest
from vfbandits.errors import ContextError
from vfbandits.features.named import FeatureNames, NamedRows
from vfbandits.features.scaling import Scaling
from vfbandits.http.asking import query_of
from vfbandits.serving.build import names_of_ranker
from vfbandits.settings.features import FeatureSettings

OWN = NamedRows(
    Scaling(
        "standard",
        ("age", "price"),
        np.array([40.0, 3.0]),
        np.array([12.5, 0.7]),
        {"device": ("mobile", "web")},
        hashed={"page": 3},
    )
)
OF_ARMS = NamedRows(Scaling("unit", ("price",), np.ones(1), np.ones(1), {"kind": ("a", "b")}))
NAMES = FeatureNames(OWN, OF_ARMS)
LAYOUTS = ("per_arm", "outer", "disjoint")

users = st.fixed_dictionaries(
    {}, optional={"age": st.floats(0, 99) | st.integers(0, 99),
                  "device": st.sampled_from(["mobile", "web", "fridge"]),
                  "page": st.text(max_size=4)},
)  # fmt: skip
prices = st.fixed_dictionaries({}, optional={"price": st.floats(0, 9)})
kinds = st.fixed_dictionaries(
    {}, optional={"price": st.floats(0, 9), "kind": st.sampled_from(["a", "b", "c"])}
)


def by_name(layout, user, of_arms):
    arms = [f"arm {i}" for i in range(len(of_arms))]
    if layout != "disjoint":
        arms = [{"id": arm, "features": each} for arm, each in zip(arms, of_arms, strict=True)]
    return {"user": "ann", "arms": arms, "features": user}


def by_number(layout, user, of_arms):
    """The same with the numbers that the scalings give."""
    asked = by_name(layout, user, of_arms)
    if layout == "per_arm":
        del asked["features"]
        rows = OWN.rows([user | each for each in of_arms], of="test")
    else:
        asked["features"] = OWN.rows([user], of="test")[0].tolist()
        rows = OF_ARMS.rows(of_arms, of="test") if layout == "outer" else []
    for arm, row in zip(asked["arms"], rows, strict=False):
        arm["features"] = row.tolist()
    return asked


def world(layout):
    arm_dim = OF_ARMS.scaling.width if layout == "outer" else None
    return RequestWorld(layout=layout, dim=OWN.scaling.width, arm_dim=arm_dim, names=NAMES)


@pytest.mark.parametrize("layout", LAYOUTS)
@given(data=st.data())
@settings(max_examples=8 * MORE, deadline=None)
def test_a_request_by_name_and_one_by_number_get_bit_equal_answers(layout, data):
    of_arms = prices if layout == "per_arm" else kinds
    asked = data.draw(st.lists(st.tuples(users, st.lists(of_arms, min_size=1, max_size=3)),
                               min_size=1, max_size=4))  # fmt: skip

    async def talk(client, spell):
        answers = []
        for number, (user, arms) in enumerate(asked):
            body = {**spell(layout, user, arms), "event_id": f"e{number}"}
            ranked = await client.post("/v1/rank", json=body)
            assert ranked.status_code == 200, ranked.text
            answers.append(ranked.content)
            rewarded = await client.post(f"/v1/events/e{number}/reward", json={"value": number})
            assert rewarded.status_code == 200
        return answers

    answers = [
        world(layout).run(lambda client, spell=spell: talk(client, spell))
        for spell in (by_name, by_number)
    ]
    assert answers[0] == answers[1]


def rank(layout, body):
    async def talk(client):
        alone = await client.post("/v1/rank", json=body)
        batch = await client.post("/v1/rank/batch", json={"requests": [body]})
        return alone, batch.json()["results"][0]

    return world(layout).run(talk)


@pytest.mark.parametrize(
    ("layout", "user", "arms", "says"),
    [
        (
            "disjoint",
            {"agee": 3},
            ["a"],
            "features of the user: 'agee' is not a feature, but 'age'",
        ),
        ("disjoint", {"age": "old"}, ["a"], "'age' must be a number, got text"),
        ("disjoint", {"age": 1}, [{"id": "a", "features": {}}], "'outer', got 'disjoint'"),
        (
            "outer",
            {},
            [{"id": "a", "features": {"colour": 1}}],
            "features of an arm: 'colour' is not a feature; features are price, kind",
        ),
        (
            "outer",
            {},
            [{"id": "a", "features": {}}, {"id": "b", "features": [1, 2, 3]}],
            "must come all by name or all as numbers, got both",
        ),
        (
            "outer",
            {},
            [{"id": "a", "features": {"kind": "a"}}, "b"],
            "all arms must have the same number of features",
        ),
        ("per_arm", {"age": 1}, [{"id": "a", "features": [1.0]}], "got numbers for 'a'"),
        (
            "per_arm",
            {"age": 1},
            [{"id": "a", "features": {"age": 2}}],
            "got 'age' of the user and of 'a'",
        ),
    ],
)
def test_what_does_not_fit_is_422_alone_and_in_a_batch(layout, user, arms, says):
    body = {"user": "ann", "arms": arms, "features": user}
    with pytest.raises(ContextError, match=says):
        query_of(read(body), layout=layout, names=NAMES)
    alone, in_batch = rank(layout, body)
    assert alone.status_code == in_batch["problem"]["status"] == 422
    assert alone.json()["detail"] == in_batch["problem"]["detail"]


def read(body):
    arms = [Arm(**arm) if isinstance(arm, dict) else arm for arm in body["arms"]]
    return RankRequest(body["user"], arms, features=body["features"])


def test_names_without_a_scaling_are_422_that_says_which_setting():
    asked = RankRequest("ann", ["a"], features={"age": 3})
    with pytest.raises(ContextError, match="of the user by name need a scaling under"):
        query_of(asked, layout="disjoint")
    asked = RankRequest("ann", [Arm("a", {"price": 3})], features={"age": 3})
    with pytest.raises(ContextError, match="of an arm by name need arm_scaling"):
        query_of(asked, layout="outer", names=FeatureNames(OWN))
    asked = RankRequest("ann", [Arm("a", {"price": 3})])
    with pytest.raises(ContextError, match="of an arm by name need a scaling"):
        query_of(asked, layout="per_arm")


def test_the_users_features_count_for_arms_that_have_none_in_layout_per_arm():
    asked = RankRequest("ann", ["a", "b"], features={"age": 3})
    query = query_of(asked, layout="per_arm", names=NAMES)
    rows = np.frombuffer(query.own).reshape(2, -1)
    assert rows[0].tobytes() == rows[1].tobytes() == OWN.rows([{"age": 3}], of="").tobytes()


def test_the_python_client_sends_names():
    asked = world("outer")

    async def talk(_):
        async with AsyncClient("http://localhost", transport=asked.transport) as client:
            features = {"age": np.float64(31.0), "device": "mobile", "page": None}
            return await client.rank("ann", [("a", {"price": np.int64(2)}), ("b", {})],
                                     features=features)  # fmt: skip

    assert {one.id for one in asked.run(talk).ranking} == {"a", "b"}
    (query,) = asked.source.queries
    assert query.own == OWN.rows([{"age": 31, "device": "mobile"}], of="").tobytes()
    assert query.arm_features == OF_ARMS.rows([{"price": 2}, {}], of="").tobytes()


def test_the_python_client_refuses_numbers_that_json_cannot_hold():
    with pytest.raises(ContextError, match="finite numbers, got nan of 'age'"):
        to_features({"age": float("nan")})


def test_a_ranker_without_the_scaling_starts_and_refuses_names(tmp_path):
    features = FeatureSettings(kind="request", scaling=tmp_path / "none.json")
    settings = SimpleNamespace(features=features)
    with capture_logs() as logs:
        names = names_of_ranker(settings, SimpleNamespace(terms=None), structlog.get_logger())
    assert names.own is None
    assert [(one["event"], one["log_level"]) for one in logs] == [("names_unavailable", "warning")]


@pytest.mark.parametrize(
    "features", ['{"age": 1, "age": 2}', '{"\\u0061ge": 1, "age": 2}', '{"page": "x", "page": "x"}']
)
def test_a_name_that_comes_twice_is_refused(features):
    body = f'{{"user": "ann", "arms": ["a"], "features": {features}}}'

    async def talk(client):
        headers = {"content-type": "application/json"}
        return await client.post("/v1/rank", content=body, headers=headers)

    answer = world("disjoint").run(talk)
    assert answer.status_code == 422
    assert "more than once" in json.loads(answer.content)["detail"]


@pytest.mark.parametrize("features", ['{"age": [1]}', '{"age": {"x": 1}}', '{"": 1}', '"age"', "3"])
def test_features_of_another_shape_do_not_match_the_schema(features):
    async def talk(client):
        body = f'{{"user": "ann", "arms": ["a"], "features": {features}}}'
        headers = {"content-type": "application/json"}
        return await client.post("/v1/rank", content=body, headers=headers)

    assert world("disjoint").run(talk).status_code == 422
