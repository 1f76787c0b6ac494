"""The common part of both clients: requests, how their answers are read, and errors.

A call is a value; ``client.py`` and ``async_client.py`` only send it, and ``retry.py`` decides when
it is sent again.
"""

import math
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeAlias, TypedDict, TypeVar
from urllib.parse import quote

import httpx2
import msgspec

from vfbandits.client import schemas
from vfbandits.errors import ContextError, RewardError, VFBanditsError, WireError

Answer_co = TypeVar("Answer_co", covariant=True)
FeaturesLike: TypeAlias = Iterable[float] | Mapping[str, schemas.FeatureValue]
ArmLike: TypeAlias = str | schemas.Arm | tuple[str, FeaturesLike]
RewardLike: TypeAlias = schemas.EventReward | tuple[str, float]
DEFAULT_CAMPAIGN = "default"
_JSON = {"content-type": "application/json"}


class ApiError(VFBanditsError):
    """The server refused the call, or its answer cannot be read.

    Attributes
    ----------
    status
        HTTP status: 404 for an unknown event, 409 for a conflict, and so on.
    title, detail
        The kind of problem, and its details, in the server's words.
    retry_after_s
        How long the server asks to wait; None if it does not.
    """

    def __init__(
        self, status: int, title: str, detail: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(status, title, detail, retry_after_s)
        self.status = status
        self.title = title
        self.detail = detail
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        """Status, title and detail.

        >>> str(ApiError(404, "The event does not exist", "wanted a known id"))
        '404 The event does not exist: wanted a known id'
        """
        head = f"{self.status} {self.title}"
        return f"{head}: {self.detail}" if self.detail else head


class ApiUnreachable(VFBanditsError, ConnectionError):  # noqa: N818  (a state, not a mistake)
    """No connection was made, or no answer came in time: the server may have carried out the call.

    Call again with the same event id to find out: nothing is done twice.
    """


class Changes(TypedDict, total=False):
    """Settings to change, as keywords; see ``schemas.ConfigChange``."""

    mode: schemas.Mode
    holdback: float
    reward_wait_s: float
    default_reward: float | None
    aggregation: schemas.Aggregation
    activation_wait_s: float
    reward_min: float
    reward_max: float
    floor: float
    log_contexts: schemas.LogContexts
    policy: dict[str, float | str]
    guardrail: schemas.GuardrailChange


@dataclass(frozen=True, slots=True)
class Call(Generic[Answer_co]):
    """One request.

    Attributes
    ----------
    answer
        Type of the body of a good answer.
    repeatable
        Whether it is idempotent, so that it may be sent again.
    good
        Statuses whose body is an ``answer``.
    """

    method: str
    path: str
    answer: type[Answer_co]
    body: bytes = field(default=b"", repr=False)
    repeatable: bool = True
    good: tuple[int, ...] = (200,)

    @property
    def headers(self) -> dict[str, str]:
        """Header fields of this call; the client adds the key."""
        return _JSON if self.body else {}

    def read(self, response: httpx2.Response, *, retry_after_s: float | None = None) -> Answer_co:
        """The answer, or an ``ApiError``."""
        if response.status_code not in self.good:
            raise _refusal(response, retry_after_s)
        try:
            return msgspec.json.decode(response.content, type=self.answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            # The bytes are not quoted: an answer may have features.
            kind, size = response.headers.get("content-type", "no type"), len(response.content)
            detail = f"wanted a {self.answer.__name__} in JSON, got {size} bytes of {kind[:60]!r}"
            raise ApiError(response.status_code, "Unreadable answer", detail) from error


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls about one campaign.

    >>> Calls("summer").activate("a/b").path
    '/v1/campaigns/summer/events/a%2Fb/activate'
    """

    campaign: str = DEFAULT_CAMPAIGN

    def __post_init__(self) -> None:
        """Refuse a name that no path can have."""
        _segment(self.campaign)

    def rank(self, request: schemas.RankRequest) -> Call[schemas.RankResponse]:
        """Decide; a missing event id is generated, so that the call can be sent again."""
        return Call("POST", self._path("/rank"), schemas.RankResponse, _body(_named(request)))

    def rank_many(self, requests: Iterable[schemas.RankRequest]) -> Call[schemas.BatchRankResponse]:
        """Decide several."""
        batch = schemas.BatchRankRequest([_named(each) for each in requests])
        return Call("POST", self._path("/rank/batch"), schemas.BatchRankResponse, _body(batch))

    def reward(self, event_id: str, value: float, reward_id: str) -> Call[schemas.RewardResponse]:
        """Send a reward."""
        path = self._path(f"/events/{_segment(event_id)}/reward")
        request = schemas.RewardRequest(_reward(value), reward_id)
        return Call("POST", path, schemas.RewardResponse, _body(request))

    def reward_many(self, rewards: Iterable[RewardLike]) -> Call[schemas.BatchRewardResponse]:
        """Send several rewards."""
        batch = schemas.BatchRewardRequest([_event_reward(each) for each in rewards])
        return Call("POST", self._path("/rewards/batch"), schemas.BatchRewardResponse, _body(batch))

    def activate(self, event_id: str) -> Call[schemas.ActivateResponse]:
        """The arm is shown now."""
        path = self._path(f"/events/{_segment(event_id)}/activate")
        return Call("POST", path, schemas.ActivateResponse)

    def retract(self, event_id: str) -> Call[schemas.RetractResponse]:
        """Retract a learnt reward.  Not repeatable: a second call is refused with 409."""
        path = self._path(f"/events/{_segment(event_id)}/retract")
        return Call("POST", path, schemas.RetractResponse, repeatable=False)

    def event(self, event_id: str) -> Call[schemas.EventResponse]:
        """The state of an event."""
        return Call("GET", self._path(f"/events/{_segment(event_id)}"), schemas.EventResponse)

    def model(self) -> Call[schemas.ModelResponse]:
        """The state of the model."""
        return Call("GET", self._path("/model"), schemas.ModelResponse)

    def config(self) -> Call[schemas.ConfigResponse]:
        """Settings in force."""
        return Call("GET", self._path("/config"), schemas.ConfigResponse)

    def change_config(self, changes: Changes) -> Call[schemas.ConfigResponse]:
        """Change settings.  Not repeatable: a second call could undo a change in between."""
        body = _body(schemas.ConfigChange(**changes))
        return Call("PATCH", self._path("/config"), schemas.ConfigResponse, body, repeatable=False)

    def rearm_guardrail(self) -> Call[schemas.ConfigResponse]:
        """Let the policy decide again.  Not repeatable: a second call restarts the comparison."""
        path = self._path("/guardrail/rearm")
        return Call("POST", path, schemas.ConfigResponse, repeatable=False)

    def campaigns(self) -> Call[schemas.CampaignsResponse]:
        """Names of the campaigns."""
        return Call("GET", "/v1/campaigns", schemas.CampaignsResponse)

    def ready(self) -> Call[schemas.Health]:
        """Whether the server is ready for traffic; 503 is an answer too, not an error."""
        return Call("GET", "/readyz", schemas.Health, good=(200, 503))

    def _path(self, rest: str) -> str:
        if self.campaign == DEFAULT_CAMPAIGN:
            return f"/v1{rest}"
        return f"/v1/campaigns/{_segment(self.campaign)}{rest}"


def rank_request(
    user: str,
    arms: Iterable[ArmLike],
    *,
    event_id: str | None,
    exclude: Iterable[str],
    baseline: str | None,
    features: FeaturesLike | None,
    activate: bool,
) -> schemas.RankRequest:
    """A request to rank, from what the clients' ``rank`` takes."""
    return schemas.RankRequest(
        user=user,
        arms=to_arms(arms),
        event_id=event_id,
        exclude=list(exclude),
        baseline=baseline,
        features=None if features is None else to_features(features),
        activate=activate,
    )


def to_arms(arms: Iterable[ArmLike]) -> list[schemas.Id | schemas.Arm]:
    """Arms as a request has them.

    >>> to_arms(["tea", ("milk", (0.5, 2))])
    ['tea', Arm(id='milk', features=[0.5, 2.0])]
    """
    return [
        schemas.Arm(each[0], to_features(each[1])) if isinstance(each, tuple) else each
        for each in arms
    ]


def to_features(features: FeaturesLike) -> list[float] | dict[str, schemas.FeatureValue]:
    """Features as a request has them, from names with values, or from finite numbers.

    >>> to_features({"age": 31, "device": "mobile"}), to_features((0.5, 2))
    ({'age': 31, 'device': 'mobile'}, [0.5, 2.0])
    """
    if isinstance(features, Mapping):
        return {name: _feature(value, name) for name, value in features.items()}
    made = list(map(float, features))
    # JSON cannot encode these, and the server's error would be about null.
    for place, value in enumerate(made):
        if not math.isfinite(value):
            raise ContextError(f"features must be finite numbers, got {value} at feature {place}")
    return made


def _feature(value: schemas.FeatureValue, name: str) -> schemas.FeatureValue:
    """A value that JSON can encode; numbers of NumPy become plain ones."""
    if value is None or isinstance(value, str | bool):
        return value
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float) and not math.isfinite(plain):
        raise ContextError(f"features must be finite numbers, got {plain} of {name!r}")
    return plain


def _named(request: schemas.RankRequest) -> schemas.RankRequest:
    if request.event_id is not None:
        return request
    return msgspec.structs.replace(request, event_id=uuid.uuid4().hex)


def _event_reward(reward: RewardLike) -> schemas.EventReward:
    if isinstance(reward, tuple):
        return schemas.EventReward(reward[0], _reward(reward[1]))
    return schemas.EventReward(reward.event_id, _reward(reward.value), reward.reward_id)


def _reward(value: float) -> float:
    if not math.isfinite(value):
        raise RewardError(f"a reward must be a finite number, got {value}")
    return float(value)


def _segment(name: str) -> str:
    """A name, quoted so that it is one segment of a path."""
    if not 1 <= len(name) <= schemas.MAX_ID_LENGTH:
        raise WireError(f"an id has 1 to {schemas.MAX_ID_LENGTH} characters, got {len(name)}")
    try:
        # Dots too: "." and ".." have a meaning in paths.
        return quote(name, safe="").replace(".", "%2E")
    except UnicodeEncodeError as error:
        raise WireError(f"an id must be valid Unicode for UTF-8, got {name[:60]!a}") from error


def _body(request: msgspec.Struct) -> bytes:
    try:
        return msgspec.json.encode(request)
    except UnicodeEncodeError as error:
        came = f"{error.object[error.start]!a} at character {error.start}"
        raise WireError(f"text must be valid Unicode for UTF-8, got {came}") from error


def _refusal(response: httpx2.Response, retry_after_s: float | None) -> ApiError:
    """The error of a problem document; any other body is not quoted."""
    status = response.status_code
    try:
        problem = msgspec.json.decode(response.content, type=schemas.Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ApiError(status, response.reason_phrase or "Refused", "", retry_after_s)
    return ApiError(status, problem.title, problem.detail, retry_after_s)
