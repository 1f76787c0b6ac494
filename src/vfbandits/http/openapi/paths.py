"""The operations of the HTTP interface: a table for the router and for the OpenAPI document.

Operations on a model are listed twice: under ``/v1`` for the campaign "default", and under
``/v1/campaigns/{campaign}`` for any.  Both have the same ``handler``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import msgspec

from vfbandits.client import schemas

Method: TypeAlias = Literal["GET", "POST", "PATCH"]
Scope: TypeAlias = Literal["rank", "reward", "figures", "read", "admin"]
Tag: TypeAlias = Literal["decisions", "model", "process"]

CAMPAIGN_PATH = "/v1/campaigns/{campaign}"


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the HTTP interface.

    Attributes
    ----------
    method, path
        As in the OpenAPI document: ``/v1/events/{event_id}``.
    operation_id
        Unique; client generators name a function after it.
    handler
        Name of its handler, with and without a campaign in the path.
    scope
        Scope that a key must have; None if no key is needed.
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


# Statuses of any call with a key: the call is malformed, unknown, not allowed or too frequent, or
# the server fails.
_KEYED = (400, 401, 403, 405, 429, 500, 503)
_READ = _KEYED
_SENT = (*_KEYED, 413, 415, 422)

_OF_A_CAMPAIGN = (
    Operation(
        "POST",
        "/rank",
        handler="rank",
        tag="decisions",
        summary="Choose an arm for a user",
        description=(
            "The decision is durable before the response is sent. The event id is an idempotency "
            "key: a request with the same id gets the same response, also after a restart."
        ),
        scope="rank",
        request=schemas.RankRequest,
        response=schemas.RankResponse,
        problems=(*_SENT, 409, 410),
    ),
    Operation(
        "POST",
        "/rank/batch",
        handler="rank_batch",
        tag="decisions",
        summary="Choose arms for several users",
        description=(
            "One result for each request, in the order of the requests: an answer or a problem. A "
            "problem with one request does not affect the others."
        ),
        scope="rank",
        request=schemas.BatchRankRequest,
        response=schemas.BatchRankResponse,
        problems=_SENT,
    ),
    Operation(
        "POST",
        "/events/{event_id}/reward",
        handler="reward",
        tag="decisions",
        summary="Send the reward of an event",
        description=(
            "The reward is durable before it is acknowledged. Sending it again changes nothing. A "
            "different value with the same reward id is refused with 409. A reward of an event "
            "that is not activated yet counts once it is."
        ),
        scope="reward",
        request=schemas.RewardRequest,
        response=schemas.RewardResponse,
        problems=(*_SENT, 404, 409, 410),
    ),
    Operation(
        "POST",
        "/rewards/batch",
        handler="reward_batch",
        tag="decisions",
        summary="Send several rewards",
        description=(
            "One result for each reward, in the order of the rewards: an answer or a problem."
        ),
        scope="reward",
        request=schemas.BatchRewardRequest,
        response=schemas.BatchRewardResponse,
        problems=_SENT,
    ),
    Operation(
        "POST",
        "/events/{event_id}/activate",
        handler="activate",
        tag="decisions",
        summary="Activate a held event",
        description=(
            'For an event that was ranked with "activate": false: its arm is shown now, and the '
            "wait for its reward starts."
        ),
        scope="rank",
        response=schemas.ActivateResponse,
        problems=(*_KEYED, 404, 409, 410, 413),
    ),
    Operation(
        "POST",
        "/events/{event_id}/retract",
        handler="retract",
        tag="decisions",
        summary="Retract a learnt reward",
        description=(
            "Afterwards the model is, up to rounding, as if it had never learnt the reward; the "
            "event stays closed. An event without a learnt reward, or with a retracted one, is "
            "refused with 409, a model with forgetting (discount below 1) with 422."
        ),
        scope="admin",
        response=schemas.RetractResponse,
        problems=(*_KEYED, 404, 409, 410, 413, 422),
    ),
    Operation(
        "GET",
        "/events/{event_id}",
        handler="event",
        tag="decisions",
        summary="Get an event",
        description="The decision, its rewards, and whether the event is still pending.",
        scope="read",
        response=schemas.EventResponse,
        problems=(*_READ, 404, 410),
    ),
    Operation(
        "GET",
        "/model",
        handler="model",
        tag="model",
        summary="Get the state of the model",
        description="Counts, versions and participants; no weights.",
        scope="figures",
        response=schemas.ModelResponse,
        problems=_READ,
    ),
    Operation(
        "GET",
        "/config",
        handler="config",
        tag="model",
        summary="Get the settings",
        description="The settings of the campaign that are in force, and their version.",
        scope="figures",
        response=schemas.ConfigResponse,
        problems=_READ,
    ),
    Operation(
        "PATCH",
        "/config",
        handler="change_config",
        tag="model",
        summary="Change the settings",
        description=(
            "Settings that are left out stay as they are. The change is recorded in the journal; "
            "each decision has the version of the settings that it was made with."
        ),
        scope="admin",
        request=schemas.ConfigChange,
        response=schemas.ConfigResponse,
        problems=_SENT,
    ),
    Operation(
        "POST",
        "/guardrail/rearm",
        handler="rearm_guardrail",
        tag="model",
        summary="Re-arm the guardrail",
        description=(
            "The policy decides again, and its comparison with the holdback starts from zero. A "
            "ranker refuses it with 409: only the process that learns can do it."
        ),
        scope="admin",
        response=schemas.ConfigResponse,
        problems=(*_KEYED, 409, 413),
    ),
)

_OF_THE_SERVER = (
    Operation(
        "GET",
        "/v1/campaigns",
        handler="campaigns",
        tag="model",
        summary="List the campaigns",
        description="Each campaign has its own model.",
        scope="figures",
        response=schemas.CampaignsResponse,
        problems=_READ,
    ),
    Operation(
        "GET",
        "/healthz",
        handler="healthz",
        tag="process",
        summary="Liveness",
        description="For a supervisor, which restarts the process if this fails.",
        response=schemas.Health,
        statuses=(200, 503),
    ),
    Operation(
        "GET",
        "/readyz",
        handler="readyz",
        tag="process",
        summary="Readiness",
        description=(
            "For a load balancer: 503, with reasons, while the journal is being read or cannot be "
            "written."
        ),
        response=schemas.Health,
        statuses=(200, 503),
    ),
    Operation(
        "GET",
        "/metrics",
        handler="metrics",
        tag="process",
        summary="Metrics for Prometheus",
        description="In the text format of Prometheus.",
        scope="figures",
        problems=_READ,
        media="text/plain",
    ),
    Operation(
        "GET",
        "/openapi.json",
        handler="openapi",
        tag="process",
        summary="This document",
        description="OpenAPI 3.1.",
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
