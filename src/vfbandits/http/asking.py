"""A request to rank becomes what a campaign is asked, and its outcome an answer."""

import struct
from operator import attrgetter

import msgspec

from vfbandits.client.schemas import Arm, RankedArm, RankRequest, RankResponse
from vfbandits.errors import ArmError, ContextError
from vfbandits.serving.deciding import Asked, Outcome

_ONLY_IDS = {str}
_encode = msgspec.json.Encoder().encode
_by_score = attrgetter("score")


def asked_of(request: RankRequest, *, layout: str) -> Asked:
    """What the campaign is asked: arms that are not excluded, their features as bytes.

    >>> asked_of(RankRequest("ann", ["tea", "milk"], exclude=["tea"]), layout="disjoint").arms
    ('milk',)
    """
    ids, of_arms = _arms(request)
    if len(set(ids)) < len(ids):
        raise ArmError("each arm comes once, got one twice")
    own = b"" if request.features is None else _floats(request.features)
    if of_arms and layout == "disjoint":
        raise ContextError("features of arms go with layouts 'per_arm' and 'outer', got 'disjoint'")
    if own and layout == "per_arm":
        raise ContextError("with layout 'per_arm' features come with the arms, got some of a user")
    return Asked(
        request.user,
        ids,
        request.event_id,
        of_arms if layout == "per_arm" else own,
        b"" if layout == "per_arm" else of_arms,
        _baseline(request, ids),
        request.activate,
    )


def answer_of(outcome: Outcome) -> bytes:
    """The answer as it is kept in the log and sent: a ``RankResponse`` as JSON."""
    arms = outcome.arms
    places = map(RankedArm, arms, outcome.scores, outcome.means, outcome.probabilities)
    ranking = sorted(places, key=_by_score, reverse=True)  # of equal ones the first stays first
    response = RankResponse(
        outcome.event_id,
        arms[outcome.shown],
        ranking,
        list(outcome.contributors),
        outcome.degraded,
        outcome.group,  # type: ignore[arg-type]  # one of the three
        outcome.model_version,
        outcome.config_version,
        outcome.epoch,
    )
    return _encode(response)


def _arms(request: RankRequest) -> tuple[tuple[str, ...], bytes]:
    """The ids of the arms that may be shown, and their features, if they came with some."""
    if not request.exclude and {*map(type, request.arms)} == _ONLY_IDS:
        return tuple(request.arms), b""  # type: ignore[arg-type]  # all of them are text
    excluded = frozenset(request.exclude)
    arms = [arm if isinstance(arm, Arm) else Arm(arm) for arm in request.arms]
    arms = [arm for arm in arms if arm.id not in excluded]
    return tuple([arm.id for arm in arms]), _rows(arms)


def _baseline(request: RankRequest, ids: tuple[str, ...]) -> int:
    if request.baseline is None or request.baseline in request.exclude:
        return 0
    if request.baseline not in ids:
        raise ArmError(f"the baseline is one of the arms, got {request.baseline!r}")
    return ids.index(request.baseline)


def _rows(arms: list[Arm]) -> bytes:
    """The features of all arms, or of none."""
    rows = [arm.features for arm in arms if arm.features is not None]
    if not rows:
        return b""
    if len(rows) < len(arms) or len({len(row) for row in rows}) > 1:
        raise ContextError("either every arm comes with features, all as many, or none does")
    return b"".join(map(_floats, rows))


def _floats(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)
