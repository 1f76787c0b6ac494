"""One example of each body, and of each kind of problem, for the OpenAPI document."""

from collections.abc import Mapping

import msgspec
from starlette.exceptions import HTTPException

from vfbandits.client import schemas
from vfbandits.errors import ConflictError, ContextError, ErasedEventError, UnknownEventError
from vfbandits.http.problems import problem_of
from vfbandits.http.refusals import (
    Forbidden,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
    Unsupported,
)

EVENT_ID = "4f0c9a6e"
CAMPAIGN = "summer"

_RANK = schemas.RankRequest(
    user="u-17",
    arms=["tea", "coffee", "cocoa"],
    event_id=EVENT_ID,
    exclude=["cocoa"],
)
_RANK_WITH_FEATURES = schemas.RankRequest(
    user="u-18",
    arms=[schemas.Arm("tea", [0.4, 0.0]), schemas.Arm("coffee", [0.2, -1.0])],
    baseline="coffee",
    activate=False,
)
_RANK_BY_NAME = schemas.RankRequest(
    user="u-19",
    arms=[schemas.Arm("tea", {"price": 2.5}), schemas.Arm("coffee", {"price": 3})],
    features={"age": 31, "device": "mobile"},
)
_RANKED = schemas.RankResponse(
    event_id=EVENT_ID,
    arm="coffee",
    ranking=[
        schemas.RankedArm("coffee", score=0.71, estimate=0.52, probability=0.9),
        schemas.RankedArm("tea", score=0.64, estimate=0.6, probability=0.1),
    ],
    contributors=["shop", "bank"],
    degraded=False,
    group="policy",
    model_version=1204,
    config_version=3,
    epoch=1,
)
_REWARDED = schemas.RewardResponse(EVENT_ID, "learnt")

EXAMPLES: tuple[msgspec.Struct, ...] = (
    _RANK,
    _RANKED,
    schemas.BatchRankRequest([_RANK, _RANK_WITH_FEATURES, _RANK_BY_NAME]),
    schemas.BatchRankResponse(
        [
            schemas.RankResult(answer=_RANKED),
            schemas.RankResult(problem=problem_of(ContextError("wanted 3 features, got 2"))),
        ]
    ),
    schemas.RewardRequest(1.0),
    _REWARDED,
    schemas.BatchRewardRequest([schemas.EventReward(EVENT_ID, 1.0)]),
    schemas.BatchRewardResponse([schemas.RewardResult(answer=_REWARDED)]),
    schemas.ActivateResponse(EVENT_ID, activated=True),
    schemas.RetractResponse(EVENT_ID, 1e5),
    schemas.EventResponse(
        event_id=EVENT_ID,
        user="u-17",
        arm="coffee",
        group="policy",
        status="learnt",
        at=1_790_000_000.25,
        due=1_790_000_600.25,
        reward=1.0,
        rewards=[schemas.Report(1.0, "", 1_790_000_042.5)],
        answer=_RANKED,
    ),
    schemas.ModelResponse(
        campaign="default",
        policy="linucb",
        layout="per_arm",
        dim=24,
        mask="secret",
        aggregation="sum",
        epoch=1,
        version=1204,
        decisions=1310,
        waiting=58,
        norm=0.83,
        log_position=2514,
        participants=[schemas.ParticipantView("bank", 12, connected=True, circuit="closed")],
    ),
    schemas.ConfigChange(
        holdback=0.05, policy={"beta": 0.5}, guardrail=schemas.GuardrailChange(alpha=0.01)
    ),
    schemas.ConfigResponse(
        campaign="default",
        version=3,
        mode="learn",
        holdback=0.05,
        reward_wait_s=600.0,
        default_reward=0.0,
        aggregation="earliest",
        activation_wait_s=3600.0,
        reward_min=-1e6,
        reward_max=1e6,
        floor=0.0,
        log_contexts="all",
        policy={"name": "linucb", "beta": 0.5},
        guardrail=schemas.GuardrailView(
            state="watching",
            enabled=True,
            alpha=0.01,
            margin=0.0,
            min_events=100,
            since=1_790_000_000.25,
            n_policy=11_420,
            n_holdback=611,
            n_waiting=58,
            difference=0.021,
            low=-0.012,
            high=0.054,
            tripped=None,
        ),
    ),
    schemas.CampaignsResponse(["default", CAMPAIGN]),
    schemas.Health("ok"),
)

# Name of the response among the components, and what the status means here.
PROBLEMS: Mapping[int, tuple[str, str]] = {
    400: ("BadRequest", "The body is not JSON, or the request cannot be read."),
    401: ("Unauthorized", "The key is missing, unknown or expired."),
    403: ("Forbidden", "The key does not have the required scope, or not for this campaign."),
    404: ("NotFound", "The event or the campaign does not exist."),
    405: ("MethodNotAllowed", "The path does not have this method."),
    409: ("Conflict", "The request conflicts with the state of the event. Nothing changed."),
    410: ("Gone", "The event was erased with its user. Nothing changed."),
    413: ("ContentTooLarge", "The body is larger than the server accepts."),
    415: ("UnsupportedMediaType", "The body must be application/json."),
    422: ("UnprocessableContent", "The body is JSON, but not valid for this operation."),
    429: ("TooManyRequests", "Retry-After says how many seconds to wait."),
    500: ("InternalServerError", "An unexpected error; the log of the server has its cause."),
    503: (
        "ServiceUnavailable",
        "The server cannot process the request now. Nothing changed; try again.",
    ),
}
_ERRORS: Mapping[int, Exception] = {
    400: msgspec.DecodeError("JSON is malformed: invalid character (byte 8)"),
    401: Unauthorized("the API key is not valid"),
    403: Forbidden("wanted a key with the scope rank"),
    404: UnknownEventError("there is no event of this id"),
    405: HTTPException(405),
    409: ConflictError("wanted 1.0 again, got 0.0"),
    410: ErasedEventError("wanted an event that is kept, got one that was erased"),
    413: TooLarge("wanted a body of at most 1000000 bytes, got 1048576"),
    415: Unsupported("wanted application/json, got text/plain"),
    422: msgspec.ValidationError("Expected `float`, got `str` - at `$.value`"),
    429: TooMany("wanted at most 100 requests a second, got more", retry_after_s=1.0),
    500: RuntimeError(),
    503: Unavailable("the journal is being read"),
}


def example_of(struct: type[msgspec.Struct]) -> msgspec.Struct:
    """The example of this struct.

    >>> example_of(schemas.RewardRequest)
    RewardRequest(value=1.0, reward_id='')
    """
    return next(each for each in EXAMPLES if type(each) is struct)


def problem_example(status: int) -> schemas.Problem:
    """The problem document that the server sends with this status.

    >>> problem_example(429).status
    429
    """
    return problem_of(_ERRORS[status])
