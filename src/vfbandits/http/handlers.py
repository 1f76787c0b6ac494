"""What each route does: a request is read, a campaign asked, an answer written."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from vfbandits.campaign.history import History
from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import DEFAULT, CampaignSettings
from vfbandits.client import schemas
from vfbandits.errors import VFBanditsError
from vfbandits.http.access.caller import CALLER, Caller, Right
from vfbandits.http.access.guard import caller_of, require
from vfbandits.http.access.limits import Limits
from vfbandits.http.asking import query_of
from vfbandits.http.problems import problem_of
from vfbandits.http.refusals import Unavailable, Unsupported
from vfbandits.http.unique_keys import (
    count_rank,
    count_ranks,
    refuse_repeated_keys,
    texts_of_rank,
    texts_of_ranks,
    texts_of_reward,
    texts_of_rewards,
)
from vfbandits.serving.concurrency import Told
from vfbandits.serving.served import Served, ServedCampaigns

JSON = "application/json"
# Reasons that tell a stranger nothing: they are given to everybody.
PLAIN_REASONS = frozenset({"the server is stopping", "standing by", "waiting for the log"})
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

    One that does not ``decide`` sends those who rank and reward to others.  ``problems`` are the
    reasons for which no traffic should come; those of the campaigns unless they are given.
    """

    def __init__(
        self,
        campaigns: ServedCampaigns,
        *,
        model_facts: Callable[[], "ModelFacts"],
        limits: Limits,
        decides: bool = True,
        problems: Callable[[], list[str]] | None = None,
    ) -> None:
        self._problems = campaigns.problems if problems is None else problems
        self._logged_problems: list[str] = []
        self._campaigns = campaigns
        self._decides = decides
        self._limits = limits
        self._model_facts = model_facts

    async def rank(self, request: Request) -> Response:
        """POST /v1/rank."""
        campaign = self._campaign(request, "rank")
        return Response(await self.rank_bytes(campaign, await _raw(request)), media_type=JSON)

    def rank_bytes(self, campaign: Served, body: bytes) -> Awaitable[bytes]:
        """The answer to a body of ``/v1/rank``."""
        return campaign.rank(self.query_in(campaign, body))

    def query_in(self, campaign: Served, body: bytes) -> Query:
        """What a body of ``/v1/rank`` asks."""
        request = _rank(body)
        refuse_repeated_keys(body, texts_of_rank(request), count_again=count_rank)
        return query_of(request, layout=campaign.layout)

    async def rank_batch(self, request: Request) -> Response:
        """POST /v1/rank/batch: those that come together are gathered together."""
        campaign = self._campaign(request, "rank")
        body = await _raw(request)
        batch = _ranks(body)
        refuse_repeated_keys(body, texts_of_ranks(batch.requests), count_again=count_ranks)
        self._charge(request, len(batch.requests))
        answers = await _rank_read(
            campaign, [_read(one, campaign.layout) for one in batch.requests]
        )
        return _json(schemas.BatchRankResponse([_rank_result(answer) for answer in answers]))

    async def rank_many(self, read: Sequence[Query | Exception]) -> list[Told]:
        """Answers to several calls of ``/v1/rank``, or errors; those that it was given stay."""
        return await _rank_read(self._campaigns[DEFAULT], read)

    async def reward(self, request: Request) -> Response:
        """POST /v1/events/{event_id}/reward."""
        campaign = self._campaign(request, "reward")
        event_id, body = request.path_params["event_id"], await _raw(request)
        return Response(await self.reward_bytes(campaign, event_id, body), media_type=JSON)

    async def reward_bytes(self, campaign: Served, event_id: str, body: bytes) -> bytes:
        """The answer to a body of ``/v1/events/{event_id}/reward``."""
        reward = _reward(body)
        refuse_repeated_keys(body, texts_of_reward(reward))
        status = await campaign.reward(event_id, reward.value, reward_id=reward.reward_id)
        return _encode(schemas.RewardResponse(event_id, status))  # type: ignore[arg-type]  # one of them

    async def reward_batch(self, request: Request) -> Response:
        """POST /v1/rewards/batch: in their order, and durable together."""
        campaign = self._campaign(request, "reward")
        body = await _raw(request)
        batch = _rewards(body)
        refuse_repeated_keys(body, texts_of_rewards(batch.rewards))
        self._charge(request, len(batch.rewards))
        results = await asyncio.gather(*(_rewarded(campaign, one) for one in batch.rewards))
        return _json(schemas.BatchRewardResponse(results))

    async def activate(self, request: Request) -> Response:
        """POST /v1/events/{event_id}/activate."""
        event_id = request.path_params["event_id"]
        activated = await self._campaign(request, "rank").activate(event_id)
        return _json(schemas.ActivateResponse(event_id, activated))

    async def retract(self, request: Request) -> Response:
        """POST /v1/events/{event_id}/retract."""
        event_id, campaign = request.path_params["event_id"], self._campaign(request, "admin")
        value = await campaign.retract(event_id, by=caller_of(request.scope).name)
        return _json(schemas.RetractResponse(event_id, value))

    async def event(self, request: Request) -> Response:
        """GET /v1/events/{event_id}."""
        campaign = self._campaign(request, "read")
        past = await campaign.history(request.path_params["event_id"])
        return _json(event_of(past))

    async def model(self, request: Request) -> Response:
        """GET /v1/model."""
        return _json(self._model_facts().of(self._campaign(request, "read")))

    async def config(self, request: Request) -> Response:
        """GET /v1/config."""
        campaign = self._campaign(request, "read")
        return _json(_config_of(campaign, campaign.settings))

    async def change_config(self, request: Request) -> Response:
        """PATCH /v1/config."""
        campaign = self._campaign(request, "admin")
        body = await _raw(request)
        change = _change(body)
        refuse_repeated_keys(body)
        settings = await campaign.configure(
            {name: value for name, value in msgspec.structs.asdict(change).items()
             if value is not msgspec.UNSET}
        )  # fmt: skip
        return _json(_config_of(campaign, settings))

    async def list_campaigns(self, request: Request) -> Response:
        """GET /v1/campaigns."""
        require(request.scope, "read")
        return _json(schemas.CampaignsResponse(self._campaigns.names))

    async def healthz(self, request: Request) -> Response:
        """GET /healthz: the process lives."""
        del request
        return _json(schemas.Health("ok"))

    async def readyz(self, request: Request) -> Response:
        """GET /readyz: it may be sent traffic; why not is for callers that may read, and the log.

        A reason may name files, hosts and campaigns.
        """
        problems = self._problems()
        if problems != self._logged_problems:
            self._logged_problems = problems
            for reason in problems:
                _log.warning("http_not_ready", reason=reason)
        if not problems:
            return _json(schemas.Health("ok"))
        caller = request.scope.get(CALLER)
        if not isinstance(caller, Caller) or not caller.may("read"):
            problems = sorted({_public_reason(reason) for reason in problems})
        return _json(schemas.Health("unavailable", problems), status=503)

    def _charge(self, request: Request, n_requests: int) -> None:
        """A batch counts as many requests as it holds; one was counted when it came in."""
        self._limits.callers.owe(caller_of(request.scope).name, n_requests - 1)

    def campaign(self, scope: Scope, right: Right, name: str = DEFAULT) -> Served:
        """The campaign of this name, for a caller that has ``right`` in it."""
        require(scope, right, name)
        if right in _DECIDING and not self._decides:
            raise Unavailable("this process trains and does not decide: ask a ranker")
        return self._campaigns[name]

    def _campaign(self, request: Request, right: Right) -> Served:
        name = request.path_params.get("campaign", DEFAULT)
        return self.campaign(request.scope, right, name)


class ModelFacts(msgspec.Struct, frozen=True):
    """What all campaigns share: the federation's terms, and who is there."""

    mask: str
    aggregation: str
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
            norm=bandit.estimate_norm(),
            log_position=model.position,
            participants=self.participants,
        )


def event_of(past: History) -> schemas.EventResponse:
    """An event as it stands."""
    decided = past.decided
    reports = [schemas.Report(came.value, name, came.at) for name, came in past.came.items()]
    return schemas.EventResponse(
        event_id=str(decided.decision_id),
        user=decided.user or "",
        arm=str(decided.arm),
        group=decided.group,
        status=past.status,  # type: ignore[arg-type]  # one of them
        at=decided.at,
        due=past.due,
        reward=past.learnt,
        rewards=reports,
        answer=_answer(decided.note) if decided.note else None,
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
        policy=settings.described,
    )


def _read(one: schemas.RankRequest, layout: str) -> Query | VFBanditsError:
    try:
        return query_of(one, layout=layout)
    except VFBanditsError as error:
        return error


async def _rank_read(campaign: Served, read: Sequence[Query | Exception]) -> list[Told]:
    """The answers to what could be read, each in its place."""
    ranked = iter(await campaign.rank_many([one for one in read if isinstance(one, Query)]))
    return [next(ranked) if isinstance(one, Query) else one for one in read]


def _rank_result(answer: Told) -> schemas.RankResult:
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


def refuse_unless_json(content_type: str) -> None:
    """Raise Unsupported unless this is how JSON is announced."""
    if content_type.split(";", 1)[0].strip().lower() != JSON:
        got = repr(content_type) if content_type else "none"
        raise Unsupported(f"wanted a body with the content-type {JSON}, got {got}")


async def _raw(request: Request) -> bytes:
    refuse_unless_json(request.headers.get("content-type", ""))
    return await request.body()


def _json(answer: msgspec.Struct, *, status: int = 200) -> Response:
    return Response(_encode(answer), status_code=status, media_type=JSON)
