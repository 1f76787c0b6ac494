"""What goes over HTTP, both ways: server, client and the OpenAPI document are made of these."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

MAX_ARMS = 10_000
BATCH_SIZE = 1_000
MAX_ID_LENGTH = 256
MAX_FEATURES = 100_000

Mode: TypeAlias = Literal["learn", "shadow", "frozen"]
Aggregation: TypeAlias = Literal["earliest", "sum"]
Group: TypeAlias = Literal["policy", "holdback", "shadow"]
# No control characters: ids stand in addresses and logs.
Id: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=MAX_ID_LENGTH, pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)"),
]
Number: TypeAlias = Annotated[float, Meta(ge=-1e100, le=1e100)]
Features: TypeAlias = Annotated[list[Number], Meta(max_length=MAX_FEATURES)]


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One thing that may be shown, with what is known of it.

    ``features`` is its row of the active participant's own block (layout "per_arm"), or the arm's
    features (layout "outer").
    """

    id: Id
    features: Features | None = None


class RankRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask which arm a user should see.

    Attributes
    ----------
    user
        Whom it is for, by the id that all participants know.
    arms
        What may be shown, in the order in which it would be without us; ids, or ids with features.
    event_id
        Names the event; the same id gets the same answer.  One is made up if there is none.
    exclude
        Arms that must not be shown this time.
    baseline
        What would be shown without us: the first arm, unless this names another.
    features
        Of the user, at the active participant (layouts "outer" and "disjoint").
    activate
        False if it is not certain yet that the arm will be shown: ``activate`` follows then.
    """

    user: Id
    arms: Annotated[list[Id | Arm], Meta(min_length=1, max_length=MAX_ARMS)]
    event_id: Id | None = None
    exclude: Annotated[list[Id], Meta(max_length=MAX_ARMS)] = []
    baseline: Id | None = None
    features: Features | None = None
    activate: bool = True


class RankedArm(msgspec.Struct, frozen=True):
    """One place of the ranking: score = estimate + bonus."""

    id: str
    score: float
    estimate: float
    probability: float


class RankResponse(msgspec.Struct, frozen=True):
    """What to show, and why.

    Attributes
    ----------
    event_id
        To send with the reward.
    arm
        Show this one.
    ranking
        All arms, best score first.  ``probability`` is that of being shown.
    contributors
        Participants whose features counted.
    degraded
        Whether some participant's did not.
    group
        "policy", or why the baseline is shown: "holdback" or "shadow".
    model_version
        How many rewards the model had learnt.
    config_version
        How often the settings had been changed.
    epoch
        Of the masks.
    """

    event_id: str
    arm: str
    ranking: list[RankedArm]
    contributors: list[str]
    degraded: bool
    group: Group
    model_version: int
    config_version: int
    epoch: int


class RewardRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How it went.  ``reward_id`` tells one reward of an event from another."""

    value: Number
    reward_id: Annotated[str, Meta(max_length=MAX_ID_LENGTH)] = ""


RewardStatus: TypeAlias = Literal[
    "learnt", "counted", "repeated", "late", "ignored", "logged", "queued"
]


class RewardResponse(msgspec.Struct, frozen=True):
    """What became of a reward.

    "learnt": the model has it.  "counted": it will be learnt, with others, when the wait is over
    (aggregation "sum").  "repeated": it was there before.  "late": the wait is over; it is logged
    and not learnt.  "ignored": an earlier one counts (aggregation "earliest").  "logged": the model
    is frozen.  "queued": it is kept, and the process that learns will say which of these it is.
    """

    event_id: str
    status: RewardStatus


class ActivateResponse(msgspec.Struct, frozen=True):
    """The wait for a reward begins; False if it had begun before."""

    event_id: str
    activated: bool


class Report(msgspec.Struct, frozen=True):
    """A reward that came."""

    value: float
    reward_id: str
    at: float


EventStatus: TypeAlias = Literal["held", "waiting", "learnt", "forgotten", "retracted"]


class RetractResponse(msgspec.Struct, frozen=True):
    """A learnt reward was taken back; ``reward`` is its value."""

    event_id: str
    reward: float


class EventResponse(msgspec.Struct, frozen=True):
    """One event as it stands.

    ``reward`` is what was learnt: what came, the default, or the sum; null once it was retracted.
    """

    event_id: str
    user: str
    arm: str
    group: str
    status: EventStatus
    at: float
    due: float | None
    reward: float | None
    rewards: list[Report]
    answer: RankResponse | None


class ConfigChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Settings of a campaign to change; what is left out stays.

    Attributes
    ----------
    mode
        "learn", "shadow" (show the baseline and see how often the policy would agree) or "frozen".
    holdback
        Share of events that get the baseline, for an honest comparison.
    reward_wait_s
        How long a reward is waited for.
    default_reward
        What is learnt if none came; null to learn nothing.
    aggregation
        "earliest": the first reward counts.  "sum": all that come in time do.
    activation_wait_s
        How long an event that is held may wait to be activated.
    reward_min, reward_max
        Bounds of every reward: one outside is refused.  A sum counts as the bound that it exceeds.
    floor
        Share of decisions in which any arm is shown, all alike.
    policy
        Parameters of the policy, such as {"beta": 0.5}.
    """

    mode: Mode | UnsetType = UNSET
    holdback: Annotated[float, Meta(ge=0.0, le=1.0)] | UnsetType = UNSET
    reward_wait_s: Annotated[float, Meta(gt=0.0, le=31_536_000.0)] | UnsetType = UNSET
    default_reward: Number | UnsetType | None = UNSET
    aggregation: Aggregation | UnsetType = UNSET
    activation_wait_s: Annotated[float, Meta(gt=0.0, le=31_536_000.0)] | UnsetType = UNSET
    reward_min: Number | UnsetType = UNSET
    reward_max: Number | UnsetType = UNSET
    floor: Annotated[float, Meta(ge=0.0, le=1.0)] | UnsetType = UNSET
    policy: dict[str, Number] | UnsetType = UNSET


class ConfigResponse(msgspec.Struct, frozen=True):
    """Settings of a campaign; ``version`` counts changes since its log was begun."""

    campaign: str
    version: int
    mode: Mode
    holdback: float
    reward_wait_s: float | None
    default_reward: float | None
    aggregation: Aggregation
    activation_wait_s: float
    reward_min: float
    reward_max: float
    floor: float
    policy: dict[str, object]


class ParticipantView(msgspec.Struct, frozen=True):
    """A participant as the active one sees it."""

    name: str
    width: int
    connected: bool
    circuit: str


class ModelResponse(msgspec.Struct, frozen=True):
    """What there is of a model that may be shown."""

    campaign: str
    policy: str
    layout: str
    dim: int
    mask: str
    aggregation: str
    epoch: int
    version: int
    decisions: int
    waiting: int
    norm: float
    log_position: int
    participants: list[ParticipantView]


class CampaignsResponse(msgspec.Struct, frozen=True):
    """The campaigns of this server, by name."""

    campaigns: list[str]


class BatchRankRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several rank requests in one."""

    requests: Annotated[list[RankRequest], Meta(min_length=1, max_length=BATCH_SIZE)]


class EventReward(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reward that names its event."""

    event_id: Id
    value: Number
    reward_id: Annotated[str, Meta(max_length=MAX_ID_LENGTH)] = ""


class BatchRewardRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several rewards in one."""

    rewards: Annotated[list[EventReward], Meta(min_length=1, max_length=BATCH_SIZE)]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error, as RFC 9457 has it; ``title`` names its kind, ``detail`` says what was wanted."""

    type: str
    title: str
    status: int
    detail: str = ""
    instance: str = ""


class RankResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer or a problem."""

    answer: RankResponse | None = None
    problem: Problem | None = None


class BatchRankResponse(msgspec.Struct, frozen=True):
    """One result for each request, in their order."""

    results: list[RankResult]


class RewardResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer or a problem."""

    answer: RewardResponse | None = None
    problem: Problem | None = None


class BatchRewardResponse(msgspec.Struct, frozen=True):
    """One result for each reward, in their order."""

    results: list[RewardResult]


class Health(msgspec.Struct, frozen=True):
    """Whether the process lives, or may be sent traffic, and if not why."""

    status: Literal["ok", "unavailable"]
    reasons: list[str] = []
