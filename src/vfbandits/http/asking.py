"""A request to rank over HTTP becomes a query."""

import struct
from collections import Counter

from vfbandits.campaign.query import Query
from vfbandits.client.schemas import Arm, NamedFeatures, RankRequest
from vfbandits.errors import ArmError, ContextError
from vfbandits.features.named import FeatureNames, NamedRows

_ONLY_IDS = {str}
_NO_NAMES = FeatureNames()


def query_of(request: RankRequest, *, layout: str, names: FeatureNames = _NO_NAMES) -> Query:
    """The query of a request: arms that are not excluded, their features as bytes.

    ``names`` converts features by name to numbers.

    >>> query_of(RankRequest("ann", ["tea", "milk"], exclude=["tea"]), layout="disjoint").arms
    ('milk',)
    """
    ids, arms = _arms(request)
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise ArmError(f"each arm must come once, got {twice[:100]!r} twice")
    if layout == "per_arm":
        own, of_arms = _own_of_arms(request, ids, arms, names.own), b""
    elif arms and layout == "disjoint" and any(arm.features is not None for arm in arms):
        raise ContextError("features of arms need layout 'per_arm' or 'outer', got 'disjoint'")
    else:
        own, of_arms = _own(request, names.own), _rows(arms, names.arms, "arm_scaling")
    return Query(
        request.user,
        ids,
        request.event_id,
        own=own,
        arm_features=of_arms,
        baseline=_baseline(request, ids),
        activate=request.activate,
    )


def _arms(request: RankRequest) -> tuple[tuple[str, ...], list[Arm]]:
    """The ids of the arms that may be shown, and the arms themselves, if they have features."""
    if not request.exclude and {*map(type, request.arms)} == _ONLY_IDS:
        return tuple(request.arms), []  # type: ignore[arg-type]  # all of them are text
    excluded = frozenset(request.exclude)
    arms = [arm if isinstance(arm, Arm) else Arm(arm) for arm in request.arms]
    arms = [arm for arm in arms if arm.id not in excluded]
    return tuple([arm.id for arm in arms]), arms


def _baseline(request: RankRequest, ids: tuple[str, ...]) -> int:
    if request.baseline is None or request.baseline in request.exclude:
        return 0
    if request.baseline not in ids:
        raise ArmError(f"the baseline must be one of the arms, got {request.baseline!r}")
    return ids.index(request.baseline)


def _own(request: RankRequest, names: NamedRows | None) -> bytes:
    """The user's features, one row."""
    features = request.features
    if features is None:
        return b""
    if isinstance(features, list):
        return _floats(features)
    return _known(names, "the user").rows([features], of="the user").tobytes()


def _own_of_arms(
    request: RankRequest, ids: tuple[str, ...], arms: list[Arm], names: NamedRows | None
) -> bytes:
    """One row for each arm (layout "per_arm"); the user's features by name count for every arm."""
    of_user = request.features
    if of_user is None:
        return _rows(arms, names, "a scaling")
    if isinstance(of_user, list):
        raise ContextError(
            f"layout 'per_arm' takes features of arms, got {len(of_user)} features of the user"
        )
    each = [arm.features for arm in arms] or [None] * len(ids)
    objects = [_both(of_user, of_arm, arm) for arm, of_arm in zip(ids, each, strict=True)]
    return _known(names, "the user").rows(objects, of="the user and an arm").tobytes()


def _both(of_user: NamedFeatures, of_arm: object, arm: str) -> NamedFeatures:
    """The features of a user and of an arm in one object."""
    if of_arm is None:
        return of_user
    if not isinstance(of_arm, dict):
        raise ContextError(
            f"features of arms must come by name, like the user's, got numbers for {arm!r}"
        )
    twice = of_user.keys() & of_arm.keys()
    if twice:
        raise ContextError(
            f"a feature must belong to the user or to an arm, got {min(twice)!r} of the user and "
            f"of {arm!r}"
        )
    return {**of_user, **of_arm}


def _rows(arms: list[Arm], names: NamedRows | None, setting: str) -> bytes:
    """The features of all arms, or of none; by name they need ``setting``."""
    rows = [arm.features for arm in arms if arm.features is not None]
    if not rows:
        return b""
    kinds = {*map(type, rows)}
    if len(kinds) > 1:
        raise ContextError("features of arms must come all by name or all as numbers, got both")
    if len(rows) == len(arms) and dict in kinds:
        return _known(names, "an arm", setting).rows(rows, of="an arm").tobytes()  # type: ignore[arg-type]  # all of them are objects
    if len(rows) < len(arms) or len({len(row) for row in rows}) > 1:
        widths = sorted({0 if arm.features is None else len(arm.features) for arm in arms})
        raise ContextError(
            f"all arms must have the same number of features, got {', '.join(map(str, widths))}"
        )
    return b"".join(map(_floats, rows))  # type: ignore[arg-type]  # all of them are lists


def _known(names: NamedRows | None, whose: str, setting: str = "a scaling") -> NamedRows:
    if names is None:
        raise ContextError(
            f"features of {whose} by name need {setting} under [features] of the active "
            "participant, got none; send numbers"
        )
    return names


def _floats(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)
