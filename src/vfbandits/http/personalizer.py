"""The paths and fields of Azure Personalizer, API v1.0, in front of one campaign.

Applications that were written for that service, which is retired, keep its clients: only the
endpoint and the key change.  Features have no schema there.  They are flattened and hashed into the
width that the scaling declares, and never refused.  An *action* is an arm, and the *context* is the
active participant's block.

Not supported: slots, management calls, and apprentice mode.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Final, Protocol, TypeVar

import msgspec
import structlog
from msgspec import Meta
from starlette.responses import Response

from vfbandits.campaign.query import Query
from vfbandits.campaign.settings import SUM
from vfbandits.client.schemas import MAX_ARMS, MAX_ID_LENGTH, Id, Number, RankResponse
from vfbandits.errors import ArmError, ConfigError
from vfbandits.features.named import FeatureNames, NamedRows, Pair, flatten
from vfbandits.features.open import refuse_without_hashing
from vfbandits.http.access.caller import Right
from vfbandits.http.openapi.paths import Operation
from vfbandits.http.problems import PERSONALIZER
from vfbandits.http.refusals import NotFound
from vfbandits.http.request import JSON, BufferedRequest
from vfbandits.http.unique_keys import refuse_repeated_keys
from vfbandits.protocol.roster import Roster
from vfbandits.serving.event_ids import EventIds
from vfbandits.serving.served import Served
from vfbandits.settings.http import PersonalizerSettings

ACTION_ID: Final = "id"  # an action's id is one of its features, as it was for the service

T = TypeVar("T")
_log = structlog.get_logger(__name__)


class Action(msgspec.Struct, frozen=True):
    """An action with its free-form features."""

    id: Id
    features: object = None


class RankRequest(msgspec.Struct, frozen=True, rename="camel"):
    """As the service's clients send it."""

    actions: Annotated[list[Action], Meta(min_length=1, max_length=MAX_ARMS)]
    context_features: object = None
    excluded_actions: list[str] | None = None
    event_id: Id | None = None
    defer_activation: bool | None = False


class RankedAction(msgspec.Struct, frozen=True):
    """An action with the probability of being chosen; 0 if it was excluded."""

    id: str
    probability: float


class RankAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """As the service's clients read it."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardRequest(msgspec.Struct, frozen=True):
    """The reward of an event."""

    value: Number


_encode = msgspec.json.Encoder().encode
_rank = msgspec.json.Decoder(RankRequest).decode
_reward = msgspec.json.Decoder(RewardRequest).decode
_answer = msgspec.json.Decoder(RankResponse).decode


class FindCampaign(Protocol):
    """``Handlers.campaign``."""

    def __call__(self, request: BufferedRequest, right: Right, name: str) -> Served:
        """The campaign, for a caller that has ``right`` in it."""
        ...


class Personalizer:
    """Handlers of the facade; ``bound`` is the longest row that the federation takes."""

    def __init__(
        self,
        find_campaign: FindCampaign,
        settings: PersonalizerSettings,
        names: FeatureNames,
        *,
        bound: float,
    ) -> None:
        self._find = find_campaign
        self._settings = settings
        self._names = names
        self._bound = bound
        self._ids = EventIds()

    async def rank(self, request: BufferedRequest) -> Response:
        """POST /personalizer/v1.0/rank."""
        campaign = self._campaign(request, "rank")
        asked = _read(_rank, request.json())
        answer = _answer(await campaign.rank(self._query(asked, campaign.layout)))
        return Response(_encode(_as_answer(answer, asked)), status_code=201, media_type=JSON)

    async def reward(self, request: BufferedRequest) -> Response:
        """POST /personalizer/v1.0/events/{event_id}/reward."""
        campaign = self._campaign(request, "reward")
        value = _read(_reward, request.json()).value
        # The service's rewards have no ids.  Each call adds to a sum; otherwise the earliest
        # counts, and the same value again is a call that was repeated.
        is_sum = campaign.settings.aggregation == SUM
        reward_id = self._ids.draw() if is_sum else f"{value!r}"
        await campaign.reward(request.params["event_id"], value, reward_id=reward_id)
        return Response(status_code=204)

    async def activate(self, request: BufferedRequest) -> Response:
        """POST /personalizer/v1.0/events/{event_id}/activate."""
        await self._campaign(request, "rank").activate(request.params["event_id"])
        return Response(status_code=204)

    def _campaign(self, request: BufferedRequest, right: Right) -> Served:
        return self._find(request, right, self._settings.campaign)

    def _query(self, asked: RankRequest, layout: str) -> Query:
        excluded = frozenset(asked.excluded_actions or ())
        actions = [action for action in asked.actions if action.id not in excluded]
        ids = tuple([action.id for action in actions])
        if len({action.id for action in asked.actions}) < len(asked.actions):
            raise ArmError("each action must come once, got one of them twice")
        if not ids:
            raise ArmError("a ranking needs an action that is not excluded, got none")
        event_id = self._ids.draw() if asked.event_id is None else asked.event_id
        user, context = self._user([*flatten(asked.context_features)])
        of_arms = b""
        if layout == "outer":
            pairs = [[(ACTION_ID, one.id), *flatten(one.features)] for one in actions]
            of_arms = self._bytes(self._names.arms, pairs)
        return Query(
            user or event_id,
            ids,
            event_id,
            self._bytes(self._names.own, [context]),
            of_arms,
            activate=not asked.defer_activation,
        )

    def _bytes(self, names: NamedRows | None, objects: Sequence[Sequence[Pair]]) -> bytes:
        return b"" if names is None else names.free_rows(objects, longest=self._bound).tobytes()

    def _user(self, context: list[Pair]) -> tuple[str, list[Pair]]:
        """The user's id, if a feature has it, and the other features."""
        name = self._settings.user
        found = [str(value) for known, value in context if known == name] if name else []
        if not found or not _is_id(found[0]):
            return "", context
        return found[0], [pair for pair in context if pair[0] != name]


def _read(decode: Callable[[bytes], T], body: bytes) -> T:
    """The request in a body, which may have unknown fields, nested to any depth."""
    try:
        read = decode(body)
        refuse_repeated_keys(body)
    except RecursionError:
        raise msgspec.DecodeError("JSON is nested too deeply") from None
    return read


def _is_id(text: str) -> bool:
    return 1 <= len(text) <= MAX_ID_LENGTH and text.isprintable()


def _as_answer(answer: RankResponse, asked: RankRequest) -> RankAnswer:
    """The chosen action first, the others by their scores; excluded ones stay where they were.

    An event that was ranked before has the actions of its first answer, whatever is asked now.
    """
    # Each is a number: the facade is refused where probabilities are unknown.
    ranked = {one.id: RankedAction(one.id, one.probability or 0.0) for one in answer.ranking}
    ranking = [ranked.pop(answer.arm), *ranked.values()]
    excluded = frozenset(asked.excluded_actions or ()) - {one.id for one in ranking}
    for place, action in enumerate(asked.actions):
        if action.id in excluded:
            ranking.insert(place, RankedAction(action.id, 0.0))
    return RankAnswer(ranking, answer.event_id, answer.arm)


def build_personalizer(
    settings: PersonalizerSettings,
    *,
    find_campaign: FindCampaign,
    names: FeatureNames,
    roster: Roster,
) -> Personalizer:
    """The facade, if the federation can serve it; otherwise a ConfigError that says what it needs.

    The log has its layout and its widths.
    """
    rules = roster.terms.shares
    if rules is not None and rules.posterior_scale:
        raise ConfigError(
            "http.personalizer answers with probabilities, which are unknown for LinTS under "
            "protection 'shares'; wanted lingreedy, or no [http.personalizer]"
        )
    widths = refuse_without_hashing(settings, names, roster)
    layout = roster.terms.layout
    hashed = ", ".join(f"{key} {width}" for key, width in widths.items())
    _log.info("personalizer_ready", campaign=settings.campaign, layout=layout, hashed=hashed)
    return Personalizer(find_campaign, settings, names, bound=roster.terms.bound)


async def refuse_call(request: BufferedRequest) -> Response:
    """Any other path of the service: slots, and its management calls."""
    if "multislot" in request.scope["path"]:
        raise NotFound(
            "wanted a call for one slot, got a multi-slot call: rank each slot with a call of its "
            "own, and exclude the actions of the slots before"
        )
    raise NotFound(
        "wanted rank, events/{eventId}/reward or events/{eventId}/activate of API v1.0, got "
        "another call"
    )


async def refuse_all(request: BufferedRequest) -> Response:
    """Every path of the service, where it is not configured."""
    del request
    raise NotFound("wanted a server with a table [http.personalizer], got one without")


def _operation(path: str, handler: str, *, method: str = "POST") -> Operation:
    return Operation(
        method,  # type: ignore[arg-type]  # one of them
        f"{PERSONALIZER}{path}",
        handler=handler,
        tag="decisions",
        summary="",
        description="",
    )


# Not in the OpenAPI document: the service's own documentation describes them.
OPERATIONS: Final = (
    _operation("v1.0/rank", "rank"),
    _operation("v1.0/events/{event_id}/reward", "reward"),
    _operation("v1.0/events/{event_id}/activate", "activate"),
    *(_operation("{other_call}", "other", method=one) for one in ("GET", "POST", "PUT", "DELETE")),
)
