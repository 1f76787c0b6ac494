"""Handlers of the routes: read a request, ask a campaign, write the answer."""

import asyncio
from collections.abc import Callable
from typing import Literal

import msgspec
import structlog
from starlette.responses import Response

from vfbandits.campaign.history import History
from vfbandits.campaign.machine import is_watched
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import DEFAULT, CampaignSettings
from vfbandits.client import schemas
from vfbandits.errors import VFBanditsError
from vfbandits.features.named import FeatureNames
from vfbandits.http.access.caller import CALLER, Caller, Right
from vfbandits.http.access.guard import caller_of, require
from vfbandits.http.access.limits import Limits
from vfbandits.http.asking import query_of
from vfbandits.http.problems import problem_of
from vfbandits.http.refusals import Unavailable
from vfbandits.http.request import JSON, BufferedRequest
from vfbandits.http.unique_keys import (
    count_rank,
    count_ranks,
    refuse_repeated_keys,
    texts_of_rank,
    texts_of_ranks,
    texts_of_reward,
    texts_of_rewards,
)
from vfbandits.serving.served import Served, ServedCampaigns

# Reasons that reveal nothing, and are given to callers without a key too.
PLAIN_REASONS = frozenset({"the server is stopping", "standing by", "waiting for the journal"})
NOT_READY = "not ready: the log of the process, or a key that may read, gives the reason"
_DECIDING = ("rank", "reward")

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode
_rank = msgspec.json.Decoder(schemas.RankRequest).decode
_ranks = msgspec.json.Decoder(schemas.BatchRankRequest).decode
_reward = msgspec.json.Decoder(schemas.RewardRequest).decode
_rewards = msgspec.json.Decoder(schemas.BatchRewardRequest).decode
_change = msgspec.json.Decoder(schemas.ConfigChange).decode
_answer = msgspec.json.Decoder(schemas.RankResponse).decode


class Handlers:
    """Handlers of one server.

    Without ``decides``, calls to rank and reward are refused: other processes answer them.
    ``names`` converts features by name to numbers.  ``problems`` returns the reasons why the server
    is not ready, by default those of the campaigns.  ``warnings`` returns what needs an operator's
    attention although the server is ready.
    """

    def __init__(
        self,
        campaigns: ServedCampaigns,
        *,
        model_facts: Callable[[], "ModelFacts"],
        limits: Limits,
        decides: bool = True,
        names: FeatureNames | None = None,
        problems: Callable[[], list[str]] | None = None,
        warnings: Callable[[], list[str]] = list,
    ) -> None:
        self._warnings = warnings
        self._problems = campaigns.problems if problems is None else problems
        self._logged_problems: list[str] = []
        self._campaigns = campaigns
        self._decides = decides
        self._names = FeatureNames() if names is None else names
        self._limits = limits
        self._model_facts = model_facts

    async def rank(self, request: BufferedRequest) -> Response:
        """POST /v1/rank."""
        campaign = self._campaign(request, "rank")
        layout = campaign.layout
        body = request.json()
        asked = _rank(body)
        refuse_repeated_keys(body, texts_of_rank(asked), count_again=count_rank)
        query = query_of(asked, layout=layout, names=self._names)
        answer = await campaign.rank(query)
        return Response(answer, media_type=JSON)

    async def rank_batch(self, request: BufferedRequest) -> Response:
        """POST /v1/rank/batch: the contexts of a batch are gathered together."""
        campaign = self._campaign(request, "rank")
        body = request.json()
        batch = _ranks(body)
        refuse_repeated_keys(body, texts_of_ranks(batch.requests), count_again=count_ranks)
        self._charge(request, len(batch.requests))
        read = [_read(one, campaign.layout, self._names) for one in batch.requests]
        ranked = iter(await campaign.rank_many([one for one in read if isinstance(one, Query)]))
        answers = [next(ranked) if isinstance(one, Query) else one for one in read]
        return _json(schemas.BatchRankResponse([_rank_result(answer) for answer in answers]))

    async def reward(self, request: BufferedRequest) -> Response:
        """POST /v1/events/{event_id}/reward."""
        campaign = self._campaign(request, "reward")
        event_id, body = request.params["event_id"], request.json()
        reward = _reward(body)
        refuse_repeated_keys(body, texts_of_reward(reward))
        status = await campaign.reward(event_id, reward.value, reward_id=reward.reward_id)
        return _json(schemas.RewardResponse(event_id, status))  # type: ignore[arg-type]  # one of them

    async def reward_batch(self, request: BufferedRequest) -> Response:
        """POST /v1/rewards/batch: rewards in their order, in one commit."""
        campaign = self._campaign(request, "reward")
        body = request.json()
        batch = _rewards(body)
        refuse_repeated_keys(body, texts_of_rewards(batch.rewards))
        self._charge(request, len(batch.rewards))
        results = await asyncio.gather(*(_rewarded(campaign, one) for one in batch.rewards))
        return _json(schemas.BatchRewardResponse(results))

    async def activate(self, request: BufferedRequest) -> Response:
        """POST /v1/events/{event_id}/activate."""
        event_id = request.params["event_id"]
        activated = await self._campaign(request, "rank").activate(event_id)
        return _json(schemas.ActivateResponse(event_id, activated))

    async def retract(self, request: BufferedRequest) -> Response:
        """POST /v1/events/{event_id}/retract."""
        event_id, campaign = request.params["event_id"], self._campaign(request, "admin")
        value = await campaign.retract(event_id, by=caller_of(request.scope).name)
        return _json(schemas.RetractResponse(event_id, value))

    async def event(self, request: BufferedRequest) -> Response:
        """GET /v1/events/{event_id}."""
        campaign = self._campaign(request, "read")
        past = await campaign.history(request.params["event_id"])
        return _json(event_of(past))

    async def model(self, request: BufferedRequest) -> Response:
        """GET /v1/model."""
        return _json(self._model_facts().of(self._campaign(request, "figures")))

    async def config(self, request: BufferedRequest) -> Response:
        """GET /v1/config."""
        campaign = self._campaign(request, "figures")
        return _json(_config_of(campaign, campaign.settings))

    async def change_config(self, request: BufferedRequest) -> Response:
        """PATCH /v1/config."""
        campaign = self._campaign(request, "admin")
        body = request.json()
        change = _change(body)
        refuse_repeated_keys(body)
        changes: dict[str, object] = msgspec.to_builtins(change)
        settings = await campaign.configure(changes, by=caller_of(request.scope).name)
        return _json(_config_of(campaign, settings))

    async def rearm_guardrail(self, request: BufferedRequest) -> Response:
        """POST /v1/guardrail/rearm."""
        campaign = self._campaign(request, "admin")
        await campaign.rearm_guardrail(by=caller_of(request.scope).name)
        return _json(_config_of(campaign, campaign.settings))

    async def list_campaigns(self, request: BufferedRequest) -> Response:
        """GET /v1/campaigns."""
        require(request.scope, "figures")
        return _json(schemas.CampaignsResponse(self._campaigns.names))

    async def healthz(self, request: BufferedRequest) -> Response:
        """GET /healthz: the process lives."""
        del request
        return _json(schemas.Health("ok"))

    async def readyz(self, request: BufferedRequest) -> Response:
        """GET /readyz: whether it takes traffic; reasons are for the log and callers that may read.

        A reason may name files, hosts and campaigns.
        """
        problems = self._problems()
        if problems != self._logged_problems:
            self._logged_problems = problems
            for reason in problems:
                _log.warning("http_not_ready", reason=reason)
        may_read = self._may_read(request)
        if not problems:
            return _json(schemas.Health("ok", self._warnings() if may_read else []))
        if not may_read:
            problems = sorted({_public_reason(reason) for reason in problems})
        return _json(schemas.Health("unavailable", problems), status=503)

    def _may_read(self, request: BufferedRequest) -> bool:
        caller = request.scope.get(CALLER)
        return isinstance(caller, Caller) and caller.may("read")

    def _charge(self, request: BufferedRequest, n_requests: int) -> None:
        """Count each request of a batch; the first was counted on arrival."""
        self._limits.callers.owe(caller_of(request.scope).name, n_requests - 1)

    def _campaign(self, request: BufferedRequest, right: Right) -> Served:
        """The campaign that the path names."""
        return self.campaign(request, right, request.params.get("campaign", DEFAULT))

    def campaign(self, request: BufferedRequest, right: Right, name: str) -> Served:
        """A campaign, for a caller that has ``right`` in it."""
        require(request.scope, right, name)
        if right in _DECIDING and not self._decides:
            raise Unavailable("this process trains and does not decide: ask a ranker")
        return self._campaigns[name]


class ModelFacts(msgspec.Struct, frozen=True):
    """What all campaigns share: the federation's terms, and its participants."""

    mask: str
    aggregation: str
    protection: str
    participants: list[schemas.ParticipantView]

    def of(self, campaign: Served) -> schemas.ModelResponse:
        """A campaign's model, as far as it may be shown."""
        model = campaign.model
        bandit = model.bandit
        return schemas.ModelResponse(
            campaign=campaign.name,
            policy=str(campaign.settings.described["name"]),
            layout=campaign.layout,
            dim=bandit.dim,
            mask=self.mask,
            aggregation=self.aggregation,
            epoch=model.epoch,
            version=model.n_learnt,
            decisions=bandit.n_decisions,
            waiting=campaign.n_waiting,
            norm=campaign.model_norm,
            log_position=model.position,
            participants=self.participants,
            protection=self.protection,
        )


def event_of(past: History) -> schemas.EventResponse:
    """The current state of an event."""
    decided = past.decided
    reports = [schemas.Report(came.value, name, came.at) for name, came in past.came.items()]
    return schemas.EventResponse(
        event_id=str(decided.event_id),
        user=decided.user or "",
        arm=str(decided.arm),
        group=decided.group,
        status=past.status,  # type: ignore[arg-type]  # one of them
        at=decided.at,
        due=past.due,
        reward=past.learnt,
        rewards=reports,
        answer=_answer(decided.answer) if decided.answer else None,
    )


def _config_of(campaign: Served, settings: CampaignSettings) -> schemas.ConfigResponse:
    return schemas.ConfigResponse(
        campaign=campaign.name,
        version=campaign.config_version,
        mode=settings.mode,  # type: ignore[arg-type]  # one of the three
        holdback=settings.holdback,
        reward_wait_s=settings.reward_wait_s,
        default_reward=settings.default_reward,
        aggregation=settings.aggregation,  # type: ignore[arg-type]  # one of the two
        activation_wait_s=settings.activation_wait_s,
        reward_min=settings.reward_min,
        reward_max=settings.reward_max,
        floor=settings.floor,
        log_contexts=settings.log_contexts,  # type: ignore[arg-type]  # one of the two words
        policy=settings.described,
        guardrail=guardrail_of(campaign, settings),
    )


def guardrail_of(campaign: Served, settings: CampaignSettings) -> schemas.GuardrailView:
    """The guardrail of a campaign under these settings."""
    rules, tripped = settings.guardrail, campaign.model.tripped
    comparison = campaign.model.comparison
    found = comparison.difference(alpha=rules.alpha, min_events=rules.min_events)
    state: Literal["off", "watching", "tripped"] = "watching" if is_watched(settings) else "off"
    n_policy, n_holdback = comparison.whole.n_events
    return schemas.GuardrailView(
        state=state if tripped is None else "tripped",
        enabled=rules.enabled,
        alpha=rules.alpha,
        margin=rules.margin,
        min_events=rules.min_events,
        since=comparison.since,
        n_policy=n_policy,
        n_holdback=n_holdback,
        n_waiting=len(comparison),
        difference=None if found is None else found.difference,
        low=None if found is None else found.low,
        high=None if found is None else found.high,
        tripped=None
        if tripped is None
        else msgspec.convert(tripped, schemas.Tripped, from_attributes=True),
    )


def _read(one: schemas.RankRequest, layout: str, names: FeatureNames) -> Query | VFBanditsError:
    try:
        return query_of(one, layout=layout, names=names)
    except VFBanditsError as error:
        return error


def _rank_result(answer: bytes | Exception) -> schemas.RankResult:
    if isinstance(answer, bytes):
        return schemas.RankResult(_answer(answer))
    if isinstance(answer, VFBanditsError):
        return schemas.RankResult(problem=problem_of(answer))
    raise answer


async def _rewarded(campaign: Served, one: schemas.EventReward) -> schemas.RewardResult:
    try:
        status = await campaign.reward(one.event_id, one.value, reward_id=one.reward_id)
    except VFBanditsError as error:
        return schemas.RewardResult(problem=problem_of(error))
    return schemas.RewardResult(schemas.RewardResponse(one.event_id, status))  # type: ignore[arg-type]  # one of them


def _public_reason(reason: str) -> str:
    return reason if reason in PLAIN_REASONS else NOT_READY


def _json(answer: msgspec.Struct, *, status: int = 200) -> Response:
    return Response(_encode(answer), status_code=status, media_type=JSON)
