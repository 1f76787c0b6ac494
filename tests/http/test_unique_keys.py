"""Keys that come twice in one object are refused, however they are written."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.client import schemas
from vfbandits.http import unique_keys
from vfbandits.http.unique_keys import (
    count_rank,
    count_ranks,
    refuse_repeated_keys,
    texts_of_rank,
    texts_of_ranks,
    texts_of_reward,
    texts_of_rewards,
)

IDS = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\x7f"),
    min_size=1,
    max_size=8,
) | st.sampled_from(["user", "id", "arms", "features", '"', "a\\b", '"user": "x"'])
NAMED = st.dictionaries(IDS, IDS | st.integers(-9, 9) | st.booleans() | st.none(), max_size=3)
FLOATS = st.lists(st.floats(-1e6, 1e6), max_size=3) | NAMED
ARMS = st.lists(
    IDS | st.fixed_dictionaries({"id": IDS}, optional={"features": FLOATS | st.none()}),
    min_size=1,
    max_size=4,
)
RANKS = st.fixed_dictionaries(
    {"user": IDS, "arms": ARMS},
    optional={
        "event_id": IDS | st.none(),
        "exclude": st.lists(IDS, max_size=3),
        "baseline": IDS | st.none(),
        "features": FLOATS | st.none(),
        "activate": st.booleans(),
    },
)
REWARDS = st.fixed_dictionaries({"value": st.floats(-1e6, 1e6)}, optional={"reward_id": st.text()})
ASCII = st.booleans()


def read(kind, body):
    return msgspec.json.decode(body, type=kind)


def check(body):
    request = read(schemas.RankRequest, body)
    refuse_repeated_keys(body, texts_of_rank(request), count_again=count_rank)
    batch = b'{"requests": [%b, %b]}' % (body, body)
    n_texts = texts_of_ranks(read(schemas.BatchRankRequest, batch).requests)
    refuse_repeated_keys(batch, n_texts, count_again=count_ranks)


def spelled(value, ascii_only):
    return json.dumps(value, ensure_ascii=ascii_only).encode()


@given(RANKS, ASCII)
def test_a_request_without_repeated_keys_passes(value, ascii_only):
    body = spelled(value, ascii_only)
    check(body)


@given(RANKS, ASCII, st.data())
def test_a_repeated_key_is_found_wherever_it_is(value, ascii_only, data):
    keys = list(value)
    key = data.draw(st.sampled_from(keys))
    body = spelled(value, ascii_only)
    name = data.draw(st.sampled_from([key, f"\\u{ord(key[0]):04x}{key[1:]}"]))
    again = b'"%b": %b, ' % (name.encode(), spelled(value[key], ascii_only))
    first, last = b"{" + again + body[1:], body[:-1] + b", " + again[:-2] + b"}"
    body = data.draw(st.sampled_from([first, last]))
    request = read(schemas.RankRequest, body)
    with pytest.raises(msgspec.ValidationError, match=f"`{key}` more than once"):
        refuse_repeated_keys(body, texts_of_rank(request), count_again=count_rank)


@pytest.mark.parametrize(
    "arm",
    [
        '{"id": "a", "id": "b"}',
        '{"id": "a", "features": [1.0], "features": [2.0]}',
        '{"id": "a", "features": [1.0], "features": null}',
        '{"id": "a", "features": null, "features": null}',
        '{"id": "a", "i\\u0064": "b"}',
    ],
)
def test_a_repeated_key_of_an_arm_is_found(arm):
    body = f'{{"user": "ann", "arms": ["tea", {arm}]}}'.encode()
    with pytest.raises(msgspec.ValidationError, match="more than once"):
        check(body)
    batch = b'{"requests": [%b]}' % body
    n_texts = texts_of_ranks(read(schemas.BatchRankRequest, batch).requests)
    with pytest.raises(msgspec.ValidationError, match="more than once"):
        refuse_repeated_keys(batch, n_texts, count_again=count_ranks)


@given(st.lists(REWARDS, min_size=1, max_size=3), ASCII)
def test_rewards_pass_alone_and_in_batches(values, ascii_only):
    for value in values:
        body = spelled(value, ascii_only)
        refuse_repeated_keys(body, texts_of_reward(read(schemas.RewardRequest, body)))
    named = [{"event_id": "e", **value} for value in values]
    body = spelled({"rewards": named}, ascii_only)
    rewards = read(schemas.BatchRewardRequest, body).rewards
    refuse_repeated_keys(body, texts_of_rewards(rewards))


@pytest.mark.parametrize(
    "reward", ['{"value": 1, "value": 2}', '{"value": 1, "reward_id": "a", "reward_id": "b"}']
)
def test_a_repeated_key_of_a_reward_is_found(reward):
    body = reward.encode()
    with pytest.raises(msgspec.ValidationError, match="more than once"):
        refuse_repeated_keys(body, texts_of_reward(read(schemas.RewardRequest, body)))
    batch = b'{"rewards": [%b]}' % body.replace(b"{", b'{"event_id": "e", ')
    rewards = read(schemas.BatchRewardRequest, batch).rewards
    with pytest.raises(msgspec.ValidationError, match="more than once"):
        refuse_repeated_keys(batch, texts_of_rewards(rewards))


def test_a_repeated_parameter_of_a_policy_is_found():
    with pytest.raises(msgspec.ValidationError, match="`beta` more than once"):
        refuse_repeated_keys(b'{"policy": {"beta": 1, "beta": 2}}')


def test_a_number_with_many_digits_is_read_too():
    refuse_repeated_keys(b'{"value": %b}' % (b"1" * 10_000))


def test_what_applications_send_is_not_read_twice(monkeypatch):
    def refuse(*args, **more):
        raise AssertionError("it was read twice")

    monkeypatch.setattr(unique_keys.json, "loads", refuse)
    check(b'{"user":"ann","arms":["tea",{"id":"milk","features":[1.0]}],"event_id":"e-1"}')
    check(msgspec.json.encode(schemas.RankRequest("ann", ["tea", schemas.Arm("milk")])))
    check(msgspec.json.encode(schemas.RankRequest("ann", [schemas.Arm("milk", [1.0])], "e-1")))
    body = b'{"value": 1.0}'
    refuse_repeated_keys(body, texts_of_reward(read(schemas.RewardRequest, body)))
