"""Bodies of HTTP requests and responses, for the server, the client and the OpenAPI document."""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

MAX_ARMS = 10_000
BATCH_SIZE = 1_000
MAX_ID_LENGTH = 256
MAX_FEATURES = 100_000

Mode: TypeAlias = Literal["learn", "shadow", "frozen"]
Aggregation: TypeAlias = Literal["earliest", "sum"]
Group: TypeAlias = Literal["policy", "holdback", "shadow", "guardrail"]
# No control characters: ids are part of URLs and logs.
Id: TypeAlias = Annotated[
    str,
    Meta(min_length=1, max_length=MAX_ID_LENGTH, pattern=r"^[^\x00-\x1f\x7f]+$(?!\n)"),
]
Number: TypeAlias = Annotated[float, Meta(ge=-1e100, le=1e100)]
LogContexts: TypeAlias = Literal["all", "chosen"] | Annotated[float, Meta(ge=0.0, le=1.0)]
Parameter: TypeAlias = Number | Annotated[str, Meta(max_length=32)]
FeatureName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=MAX_ID_LENGTH)]
FeatureValue: TypeAlias = int | float | str | bool | None
NamedFeatures: TypeAlias = Annotated[dict[FeatureName, FeatureValue], Meta(max_length=MAX_FEATURES)]
Features: TypeAlias = Annotated[list[Number], Meta(max_length=MAX_FEATURES)] | NamedFeatures


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An arm with its features.

    ``features`` is its row of the active participant's block (layout "per_arm"), or the arm's
    features (layout "outer"): numbers as the model sees them, or names with raw values, which the
    active participant's scaling turns into these numbers.
    """

    id: Id
    features: Features | None = None


class RankRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request for a decision.

    Attributes
    ----------
    user
        Id of the user, the same at all participants.
    arms
        Candidates in the order without a policy: ids, or ids with features.
    event_id
        Idempotency key: the same id gets the same response.  By default the server makes one.
    exclude
        Arms that must not be chosen.
    baseline
        The arm that is shown without a policy; by default the first one.
    features
        Features of the user at the active participant: numbers as the model sees them (layouts
        "outer" and "disjoint"), or names with raw values, which its scaling turns into these
        numbers (in layout "per_arm" they count for every arm).  A name that is left out counts as
        the mean.
    activate
        False if it is not certain that the arm will be shown: the event is held until ``activate``.
    """

    user: Id
    arms: Annotated[list[Id | Arm], Meta(min_length=1, max_length=MAX_ARMS)]
    event_id: Id | None = None
    exclude: Annotated[list[Id], Meta(max_length=MAX_ARMS)] = []
    baseline: Id | None = None
    features: Features | None = None
    activate: bool = True


class RankedArm(msgspec.Struct, frozen=True):
    """An arm of the ranking: its score is the estimate plus the exploration bonus.

    Under protection "shares" nobody knows scores and estimates, nor LinTS's probabilities: null.
    """

    id: str
    score: float | None
    estimate: float | None
    probability: float | None


class RankResponse(msgspec.Struct, frozen=True):
    """A decision.

    Attributes
    ----------
    event_id
        Id to send with the reward.
    arm
        The arm to show.
    ranking
        All arms, best score first.  ``probability`` is the probability of being shown.
    contributors
        Participants whose features were used.
    degraded
        Whether the features of some participant are missing.
    group
        "policy", or the reason why the baseline is shown: "holdback", "shadow" or "guardrail".
    model_version
        Number of changes of the model so far: rewards learnt, and retractions.
    config_version
        Number of changes of the settings so far.
    epoch
        Mask epoch in force.
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
    """The reward of an event; ``reward_id`` distinguishes several rewards of one event."""

    value: Number
    reward_id: Annotated[str, Meta(max_length=MAX_ID_LENGTH)] = ""


RewardStatus: TypeAlias = Literal[
    "learnt", "counted", "repeated", "late", "ignored", "logged", "queued"
]


class RewardResponse(msgspec.Struct, frozen=True):
    """The status of a reward.

    "learnt": the model has learnt it.  "counted": it is learnt when the wait ends, as part of a sum
    (aggregation "sum"), or because the event was not activated yet.  "repeated": it was received
    before.  "late": the wait has ended; it is recorded but not learnt.  "ignored": an earlier one
    was learnt (aggregation "earliest").  "logged": it is recorded but not learnt, because the model
    is frozen.  "queued": it is durable in the inbox, and the leader gives it one of the other
    statuses.
    """

    event_id: str
    status: RewardStatus


class ActivateResponse(msgspec.Struct, frozen=True):
    """Whether the wait for a reward starts now; False if the event was activated before."""

    event_id: str
    activated: bool


class Report(msgspec.Struct, frozen=True):
    """A received reward."""

    value: float
    reward_id: str
    at: float


EventStatus: TypeAlias = Literal["held", "waiting", "learnt", "forgotten", "retracted"]


class RetractResponse(msgspec.Struct, frozen=True):
    """A retracted reward, with its value."""

    event_id: str
    reward: float


class EventResponse(msgspec.Struct, frozen=True):
    """The state of an event.

    ``reward`` is the learnt value: a reward, the default, or a sum; null after a retraction.
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


class GuardrailChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of the guardrail; settings that are left out stay as they are.

    Attributes
    ----------
    enabled
        Whether a policy that loses against the holdback is switched to the baseline.
    alpha
        Probability that a policy is ever stopped which loses no more than ``margin``.
    margin
        Loss per event that is tolerated, in the unit of the rewards.
    min_events
        Settled events that each group needs before the policy can be stopped; a whole number.
    """

    enabled: bool | UnsetType = UNSET
    alpha: Annotated[float, Meta(gt=0.0, le=0.5)] | UnsetType = UNSET
    margin: Annotated[float, Meta(ge=0.0, le=1e100)] | UnsetType = UNSET
    min_events: Annotated[float, Meta(ge=2.0, le=1e9)] | UnsetType = UNSET


class ConfigChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Changes of a campaign's settings; settings that are left out stay as they are.

    Attributes
    ----------
    mode
        "learn", "shadow" (show the baseline, record what the policy would choose) or "frozen".
    holdback
        Fraction of events that get the baseline, for an unbiased comparison.
    reward_wait_s
        Wait for a reward, in seconds.
    default_reward
        Reward that is learnt if none arrives in time; null to learn nothing.
    aggregation
        "earliest": the first reward is learnt.  "sum": the sum of all that arrive in time is.
    activation_wait_s
        How long a held event waits for its activation, in seconds.
    reward_min, reward_max
        Bounds of each reward: one outside is refused.  A sum is clipped to them.
    floor
        Fraction of decisions that choose an arm uniformly at random.
    log_contexts
        Contexts that the journal keeps: of the "chosen" arm, of "all" arms, or of all arms in a
        fraction of events.
    policy
        Parameters of the policy, such as {"beta": 0.5}; with "name", those of another one, such as
        {"name": "lints", "posterior_scale": 0.1}.
    guardrail
        Settings of the guardrail, such as {"alpha": 0.01}.
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
    log_contexts: LogContexts | UnsetType = UNSET
    policy: dict[str, Parameter] | UnsetType = UNSET
    guardrail: GuardrailChange | UnsetType = UNSET


class Tripped(msgspec.Struct, frozen=True):
    """When the guardrail switched the campaign to its baseline, and why.

    Attributes
    ----------
    at
        When, in seconds since 1970.
    n_policy, n_holdback
        Settled events of both groups.
    mean_policy, mean_holdback
        Their mean rewards.
    difference, low, high
        Difference of the means per event, policy minus holdback, with its anytime-valid interval.
    alpha
        The interval holds at all times together with probability 1 - alpha.
    """

    at: float
    n_policy: int
    n_holdback: int
    mean_policy: float
    mean_holdback: float
    difference: float
    low: float
    high: float
    alpha: float


class GuardrailView(msgspec.Struct, frozen=True):
    """The guardrail of a campaign: its settings, and what it has seen.

    Attributes
    ----------
    state
        "off" (not enabled, or no holdback), "watching", or "tripped": the baseline is shown until
        an operator re-arms the guardrail.
    enabled, alpha, margin, min_events
        Its settings.
    since
        Time of the first event of the comparison, in seconds since 1970; null before it.
    n_policy, n_holdback
        Settled events of both groups since then.
    n_waiting
        Events that are not compared yet: their reward, or that of an earlier one, is missing.
    difference, low, high
        How much more the policy's events bring than the holdback's, per event, with an interval
        that holds at all times together; null before there are enough events.
    tripped
        Why the baseline is shown; null while the policy decides.
    """

    state: Literal["off", "watching", "tripped"]
    enabled: bool
    alpha: float
    margin: float
    min_events: int
    since: float | None
    n_policy: int
    n_holdback: int
    n_waiting: int
    difference: float | None
    low: float | None
    high: float | None
    tripped: Tripped | None


class ConfigResponse(msgspec.Struct, frozen=True):
    """Settings of a campaign; ``version`` counts the changes since its journal was created."""

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
    log_contexts: LogContexts
    policy: dict[str, object]
    guardrail: GuardrailView | None = None


class ParticipantView(msgspec.Struct, frozen=True):
    """A participant, as seen by the active participant."""

    name: str
    width: int
    connected: bool
    circuit: str


class ModelResponse(msgspec.Struct, frozen=True):
    """The state of a model, without its weights."""

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
    norm: float | None
    log_position: int
    participants: list[ParticipantView]
    protection: str = "mask"


class CampaignsResponse(msgspec.Struct, frozen=True):
    """Names of the campaigns."""

    campaigns: list[str]


class BatchRankRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several rank requests."""

    requests: Annotated[list[RankRequest], Meta(min_length=1, max_length=BATCH_SIZE)]


class EventReward(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reward with the id of its event."""

    event_id: Id
    value: Number
    reward_id: Annotated[str, Meta(max_length=MAX_ID_LENGTH)] = ""


class BatchRewardRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Several rewards."""

    rewards: Annotated[list[EventReward], Meta(min_length=1, max_length=BATCH_SIZE)]


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error in the format of RFC 9457; ``detail`` says what was wanted and what came."""

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
    """One result for each request, in the order of the requests."""

    results: list[RankResult]


class RewardResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """An answer or a problem."""

    answer: RewardResponse | None = None
    problem: Problem | None = None


class BatchRewardResponse(msgspec.Struct, frozen=True):
    """One result for each reward, in the order of the rewards."""

    results: list[RewardResult]


class Health(msgspec.Struct, frozen=True):
    """The health of the process, with the reasons if it is unavailable.

    Of a process that is "ok" they say what its operator should look at, to callers that may read.
    """

    status: Literal["ok", "unavailable"]
    reasons: list[str] = []
