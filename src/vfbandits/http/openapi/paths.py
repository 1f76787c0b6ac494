"""The operations of the HTTP interface: the server routes by this table, the document tells it.

What concerns a model stands twice: under ``/v1`` for the campaign "default", and under
``/v1/campaigns/{campaign}`` for any.  Both have the same ``handler``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import msgspec

from vfbandits.client import schemas

Method: TypeAlias = Literal["GET", "POST", "PATCH"]
Scope: TypeAlias = Literal["rank", "reward", "read", "admin"]
Tag: TypeAlias = Literal["decisions", "model", "process"]

CAMPAIGN_PATH = "/v1/campaigns/{campaign}"


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that may be asked for.

    Attributes
    ----------
    method, path
        As in the OpenAPI document: ``/v1/events/{event_id}``.
    operation_id
        Unique; client generators name a function after it.
    handler
        What is done; the same with and without a campaign in the path.
    scope
        That a key must have; None if no key is asked for.
    request, response
        Structs of the bodies; None for no body, or one that is not made of a struct.
    problems
        Statuses with a problem as their body.
    statuses
        Statuses with ``response`` as their body.
    media
        Content type of the answer.
    """

    method: Method
    path: str
    handler: str
    tag: Tag
    summary: str
    description: str
    operation_id: str = ""
    scope: Scope | None = None
    request: type[msgspec.Struct] | None = None
    response: type[msgspec.Struct] | None = None
    problems: tuple[int, ...] = (405, 500)
    statuses: tuple[int, ...] = (200,)
    media: str = "application/json"


# Any call with a key may meet these: it is malformed, unknown, not allowed, too frequent, or the
# server cannot.
_KEYED = (400, 401, 403, 405, 429, 500, 503)
_READ = _KEYED
_SENT = (*_KEYED, 413, 415, 422)

_OF_A_CAMPAIGN = (
    Operation(
        "POST",
        "/rank",
        "rank",
        "decisions",
        "Which arm to show to a user",
        "Decides, and makes the decision durable before it answers. The event id is an idempotency "
        "key: the same id gets the same answer, also after a restart.",
        scope="rank",
        request=schemas.RankRequest,
        response=schemas.RankResponse,
        problems=(*_SENT, 409),
    ),
    Operation(
        "POST",
        "/rank/batch",
        "rank_batch",
        "decisions",
        "Several decisions at once",
        "One result for each request, in their order: an answer, or the problem that this one met. "
        "The others are not affected by it.",
        scope="rank",
        request=schemas.BatchRankRequest,
        response=schemas.BatchRankResponse,
        problems=_SENT,
    ),
    Operation(
        "POST",
        "/events/{event_id}/reward",
        "reward",
        "decisions",
        "How a decision went",
        "The reward is durable before it is acknowledged. Sent again it changes nothing. One that "
        "contradicts an earlier one with the same reward id, or is for an event that waits to be "
        "activated, is refused with 409.",
        scope="reward",
        request=schemas.RewardRequest,
        response=schemas.RewardResponse,
        problems=(*_SENT, 404, 409),
    ),
    Operation(
        "POST",
        "/rewards/batch",
        "reward_batch",
        "decisions",
        "Several rewards at once",
        "One result for each reward, in their order: an answer, or the problem that this one met.",
        scope="reward",
        request=schemas.BatchRewardRequest,
        response=schemas.BatchRewardResponse,
        problems=_SENT,
    ),
    Operation(
        "POST",
        "/events/{event_id}/activate",
        "activate",
        "decisions",
        "The arm is shown now",
        'For an event that was ranked with "activate": false. The wait for its reward begins.',
        scope="rank",
        response=schemas.ActivateResponse,
        problems=(*_KEYED, 404, 409, 413),
    ),
    Operation(
        "POST",
        "/events/{event_id}/retract",
        "retract",
        "decisions",
        "Take back a reward that was learnt",
        "The model is then, up to rounding, as if the reward had never come; the event stays "
        "closed. An event without a learnt reward, or whose reward was taken back before, is "
        "refused with 409; a model with forgetting with 422.",
        scope="admin",
        response=schemas.RetractResponse,
        problems=(*_KEYED, 404, 409, 413, 422),
    ),
    Operation(
        "GET",
        "/events/{event_id}",
        "event",
        "decisions",
        "One event as it stands",
        "What was decided, what came of it, and whether a reward is still waited for.",
        scope="read",
        response=schemas.EventResponse,
        problems=(*_READ, 404),
    ),
    Operation(
        "GET",
        "/model",
        "model",
        "model",
        "What there is of the model that may be shown",
        "Counts, versions and participants; no weights.",
        scope="read",
        response=schemas.ModelResponse,
        problems=_READ,
    ),
    Operation(
        "GET",
        "/config",
        "config",
        "model",
        "Settings in force",
        "Settings of the campaign, and how often they were changed.",
        scope="read",
        response=schemas.ConfigResponse,
        problems=_READ,
    ),
    Operation(
        "PATCH",
        "/config",
        "change_config",
        "model",
        "Change settings",
        "What is left out stays as it is. The change is logged, and decisions name the version of "
        "the settings that they were made under.",
        scope="admin",
        request=schemas.ConfigChange,
        response=schemas.ConfigResponse,
        problems=_SENT,
    ),
)

_OF_THE_SERVER = (
    Operation(
        "GET",
        "/v1/campaigns",
        "campaigns",
        "model",
        "Names of the campaigns",
        "Each campaign is a model of its own.",
        scope="read",
        response=schemas.CampaignsResponse,
        problems=_READ,
    ),
    Operation(
        "GET",
        "/healthz",
        "healthz",
        "process",
        "Whether the process lives",
        "For a supervisor, which restarts it if not.",
        response=schemas.Health,
        statuses=(200, 503),
    ),
    Operation(
        "GET",
        "/readyz",
        "readyz",
        "process",
        "Whether it may be sent traffic",
        "For a load balancer: 503, with reasons, while the log is read or cannot be written.",
        response=schemas.Health,
        statuses=(200, 503),
    ),
    Operation(
        "GET",
        "/metrics",
        "metrics",
        "process",
        "Metrics for Prometheus",
        "In Prometheus' text format.",
        scope="read",
        problems=_READ,
        media="text/plain",
    ),
    Operation(
        "GET",
        "/openapi.json",
        "openapi",
        "process",
        "This document",
        "OpenAPI 3.1.",
    ),
)


def _all() -> Iterator[Operation]:
    for each in _OF_A_CAMPAIGN:
        yield replace(each, path=f"/v1{each.path}", operation_id=each.handler)
    for each in _OF_A_CAMPAIGN:
        yield replace(
            each,
            path=f"{CAMPAIGN_PATH}{each.path}",
            operation_id=f"{each.handler}_in_campaign",
            summary=f"{each.summary}, in a campaign",
            problems=tuple(sorted({*each.problems, 404})),
        )
    for each in _OF_THE_SERVER:
        yield replace(each, operation_id=each.handler)


OPERATIONS: tuple[Operation, ...] = tuple(_all())
