"""A request to rank over HTTP becomes a query."""

import struct
from collections import Counter

from vfbandits.campaign.query import Query
from vfbandits.client.schemas import Arm, RankRequest
from vfbandits.errors import ArmError, ContextError

_ONLY_IDS = {str}


def query_of(request: RankRequest, *, layout: str) -> Query:
    """What the campaign is asked: arms that are not excluded, their features as bytes.

    >>> query_of(RankRequest("ann", ["tea", "milk"], exclude=["tea"]), layout="disjoint").arms
    ('milk',)
    """
    ids, of_arms = _arms(request)
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise ArmError(f"each arm comes once, got {twice[:100]!r} twice")
    own = b"" if request.features is None else _floats(request.features)
    if of_arms and layout == "disjoint":
        raise ContextError("features of arms go with layouts 'per_arm' and 'outer', got 'disjoint'")
    if own and layout == "per_arm":
        raise ContextError(
            f"layout 'per_arm' takes features of arms, got {len(own) // 8} features of the user"
        )
    return Query(
        request.user,
        ids,
        request.event_id,
        of_arms if layout == "per_arm" else own,
        b"" if layout == "per_arm" else of_arms,
        _baseline(request, ids),
        request.activate,
    )


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
        widths = sorted({0 if arm.features is None else len(arm.features) for arm in arms})
        raise ContextError(
            f"every arm needs as many features, or none any, got {', '.join(map(str, widths))}"
        )
    return b"".join(map(_floats, rows))


def _floats(values: list[float]) -> bytes:
    return struct.pack(f"<{len(values)}d", *values)
