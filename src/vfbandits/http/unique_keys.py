"""Refuses JSON objects that have a key twice.

msgspec takes the last of equal keys, other parsers take the first, so a filter in front of the
server could see another request than the server.  A search in every body would take longer than
decoding it.  But quotes can be counted: without escapes, a body has two for each key and each text.
If it has no more than the decoded request accounts for, then no key came twice.  Fields that were
sent although they have their default are found by decoding the body again without its numbers.  All
other bodies, such as those with escapes, are read key by key.
"""

import json
from collections.abc import Callable, Sequence
from types import NoneType

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from vfbandits.client.schemas import (
    Arm,
    EventReward,
    NamedFeatures,
    RankRequest,
    RewardRequest,
)

_ONLY_IDS = {str}


def refuse_repeated_keys(
    body: bytes, n_texts: int = 0, *, count_again: Callable[[bytes], int] | None = None
) -> None:
    """Raise ValidationError if some object in ``body``, which is JSON, has a key twice.

    ``n_texts`` is the least number of keys and texts of the decoded request; ``count_again`` counts
    them in the body, with optional fields that were sent.

    >>> refuse_repeated_keys(b'{"value": 1, "value": 2}', 1)
    Traceback (most recent call last):
    msgspec.ValidationError: Object contains the field `value` more than once
    """
    if b"\\" not in body:
        n_quotes = body.count(b'"')
        if n_quotes == 2 * n_texts:
            return
        if count_again is not None and n_quotes == 2 * count_again(body):
            return
    # Numbers as float: a whole one may have more digits than Python reads as an integer.
    json.loads(body, object_pairs_hook=_refuse_pairs, parse_int=float)


def texts_of_rank(request: RankRequest) -> int:
    """Keys and texts that a request to rank has at least.

    >>> texts_of_rank(RankRequest("ann", ["tea", Arm("milk", [1.0])]))
    7
    """
    arms = request.arms
    count = 3 + len(arms)
    if {*map(type, arms)} != _ONLY_IDS:
        features = [arm.features for arm in arms if isinstance(arm, Arm)]
        kinds = [*map(type, features)]
        count += 2 * len(kinds) - kinds.count(NoneType)
        if dict in kinds:
            count += sum(_texts_of(each) for each in features if isinstance(each, dict))
    if request.event_id is not None:
        count += 2
    if request.exclude:
        count += 1 + len(request.exclude)
    if request.baseline is not None:
        count += 2
    if request.features is not None:
        count += 1
        if isinstance(request.features, dict):
            count += _texts_of(request.features)
    return count if request.activate else count + 1


def _texts_of(features: NamedFeatures) -> int:
    """Keys and texts of features by name."""
    return len(features) + sum(isinstance(value, str) for value in features.values())


class _SentArm(Struct):
    id: str
    features: Raw | UnsetType = UNSET


class _SentRank(Struct):
    """A request to rank that knows which fields were sent."""

    user: str
    arms: list[str | _SentArm]
    event_id: str | UnsetType | None = UNSET
    exclude: list[str] | UnsetType = UNSET
    baseline: str | UnsetType | None = UNSET
    features: Raw | UnsetType = UNSET
    activate: bool | UnsetType = UNSET


class _SentRanks(Struct):
    requests: list[_SentRank]


_named_features = msgspec.json.Decoder(NamedFeatures).decode
_sent_rank = msgspec.json.Decoder(_SentRank).decode
_sent_ranks = msgspec.json.Decoder(_SentRanks).decode


def count_rank(body: bytes) -> int:
    """Keys and texts of a request to rank, each key once.

    >>> count_rank(b'{"user": "ann", "arms": ["tea"], "baseline": null, "activate": true}')
    6
    """
    return _count(_sent_rank(body))


def count_ranks(body: bytes) -> int:
    """Keys and texts of a batch of requests to rank, each key once."""
    return 1 + sum(map(_count, _sent_ranks(body).requests))


def _count(sent: _SentRank) -> int:
    arms = sent.arms
    count = 3 + len(arms)
    if {*map(type, arms)} != _ONLY_IDS:
        own = [arm for arm in arms if isinstance(arm, _SentArm)]
        count += len(own) + sum(map(_count_features, [arm.features for arm in own]))
    for text in (sent.event_id, sent.baseline):
        if text is not UNSET:
            count += 1 if text is None else 2
    if sent.exclude is not UNSET:
        count += 1 + len(sent.exclude)
    return count + _count_features(sent.features) + (sent.activate is not UNSET)


def _count_features(sent: Raw | UnsetType) -> int:
    """The key, and what features by name add to it."""
    if sent is UNSET:
        return 0
    is_object = bytes(sent)[:1] == b"{"
    return 1 + (_texts_of(_named_features(sent)) if is_object else 0)


def texts_of_reward(reward: RewardRequest) -> int:
    """Keys and texts that a reward has at least."""
    return 3 if reward.reward_id else 1


def texts_of_ranks(requests: Sequence[RankRequest]) -> int:
    """Keys and texts that a batch of requests to rank has at least."""
    return 1 + sum(map(texts_of_rank, requests))


def texts_of_rewards(rewards: Sequence[EventReward]) -> int:
    """Keys and texts that a batch of rewards has at least."""
    return 1 + sum(5 if one.reward_id else 3 for one in rewards)


def _refuse_pairs(pairs: list[tuple[str, object]]) -> None:
    """Check the keys of one object; values are ignored."""
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            raise msgspec.ValidationError(f"Object contains the field `{key[:100]}` more than once")
        seen.add(key)
