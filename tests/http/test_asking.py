"""A request to rank becomes what a campaign is asked."""

import struct

import msgspec
import pytest

from vfbandits.campaign.answer import Answer, encode_answer
from vfbandits.client.schemas import Arm, RankRequest, RankResponse
from vfbandits.errors import ArmError, ContextError
from vfbandits.http.asking import query_of

ARMS = ["tea", "coffee", "milk"]
WITH_FEATURES = [Arm("tea", [1.0, 2.0]), Arm("coffee", [3.0, 4.0])]


def floats(data):
    return struct.unpack(f"<{len(data) // 8}d", data)


def test_excluded_arms_are_gone_and_the_order_of_the_others_stays():
    asked = query_of(RankRequest("ann", ARMS, exclude=["coffee", "beer"]), layout="disjoint")
    assert (asked.arms, asked.baseline) == (("tea", "milk"), 0)


def test_the_baseline_is_the_first_arm_unless_another_is_named():
    assert query_of(RankRequest("ann", ARMS), layout="disjoint").baseline == 0
    named = RankRequest("ann", ARMS, baseline="milk", exclude=["tea"])
    assert query_of(named, layout="disjoint").baseline == 1
    gone = RankRequest("ann", ARMS, baseline="milk", exclude=["milk"])
    assert query_of(gone, layout="disjoint").baseline == 0


def test_features_of_arms_are_the_own_block_or_those_of_the_arms_by_layout():
    request = RankRequest("ann", WITH_FEATURES)
    per_arm = query_of(request, layout="per_arm")
    assert (floats(per_arm.own), per_arm.arm_features) == ((1.0, 2.0, 3.0, 4.0), b"")
    outer = query_of(RankRequest("ann", WITH_FEATURES, features=[7.0]), layout="outer")
    assert (floats(outer.own), floats(outer.arm_features)) == ((7.0,), (1.0, 2.0, 3.0, 4.0))


@pytest.mark.parametrize(
    ("request_", "layout", "error", "said"),
    [
        (RankRequest("ann", ["a", "a"]), "per_arm", ArmError, "got 'a' twice"),
        (RankRequest("ann", ARMS, baseline="beer"), "per_arm", ArmError, "got 'beer'"),
        (
            RankRequest("ann", ["a", Arm("b", [1.0])]),
            "per_arm",
            ContextError,
            "the same number of features, got 0, 1",
        ),
        (
            RankRequest("ann", [Arm("a", [1.0]), Arm("b", [1.0, 2.0])]),
            "outer",
            ContextError,
            "the same number of features, got 1, 2",
        ),
        (RankRequest("ann", WITH_FEATURES), "disjoint", ContextError, "got 'disjoint'"),
        (
            RankRequest("ann", ARMS, features=[1.0]),
            "per_arm",
            ContextError,
            "got 1 features of the user",
        ),
    ],
)
def test_what_does_not_fit_is_one_clear_error(request_, layout, error, said):
    with pytest.raises(error, match=said):
        query_of(request_, layout=layout)


def test_an_answer_ranks_by_score_and_says_what_is_shown():
    outcome = Answer(
        "e",
        ("a", "b", "c"),
        0,
        [0.1, 0.9, 0.5],
        [0.0, 0.8, 0.5],
        [0.2, 0.8, 0.0],
        ("shop",),
        degraded=True,
        group="holdback",
        model_version=3,
        config_version=1,
        epoch=2,
    )
    answer = msgspec.json.decode(encode_answer(outcome), type=RankResponse)
    assert [place.id for place in answer.ranking] == ["b", "c", "a"]
    assert (answer.arm, answer.group, answer.degraded) == ("a", "holdback", True)
    assert answer.ranking[0].probability == 0.8


@pytest.mark.parametrize("text", ["", "a\n", "a\x00", "x" * 257, 7, None])
def test_an_id_is_printable_text_of_a_sensible_length(text):
    body = msgspec.json.encode({"user": text, "arms": ["a"]})
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=RankRequest)
