"""What observers of a campaign receive: metrics, traces, the dashboard.

They are called after the fact, in the process that decides, and must be fast.  Nothing here holds a
context.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Ranked(NamedTuple):
    """A decision was made and is durable.

    Attributes
    ----------
    campaign, event_id, user, at
        Which one, for whom, and when in seconds since 1970.
    arm, choice, baseline
        What is shown, what the policy would show, and what would be shown without us.
    group
        "policy", "holdback", "shadow" or "guardrail".
    estimate, bonus
        Of the arm that is shown; its score is their sum.
    parts
        The estimate by participant, where the mask lets each keep its own columns; else None.
    probability
        With which the arm was shown.
    contributors, missing
        Participants whose features counted, and those whose did not.
    n_arms, model_version, seconds, bytes_received
        How many arms there were, how many rewards the model knew, how long the answer took, and
        how much the participants sent for it.
    """

    campaign: str
    event_id: str
    user: str
    at: float
    arm: str
    choice: str
    baseline: str
    group: str
    estimate: float
    bonus: float
    parts: Mapping[str, float] | None
    probability: float
    contributors: tuple[str, ...]
    missing: tuple[str, ...]
    n_arms: int
    model_version: int
    seconds: float
    bytes_received: int


class RewardSeen(NamedTuple):
    """A reward came, or the wait for one is over, or a reward was taken back.

    ``status`` is one of ``client.schemas.RewardStatus``, or "default" when the default was learnt,
    "summed" when a sum was, "forgotten" when nothing was, "retracted" when ``value`` counts no
    more.  ``waited_s`` is the time since the decision.  ``arm`` and ``group`` are those of the
    decision; both are empty in a retraction that was read from the journal.
    """

    campaign: str
    event_id: str
    arm: str
    group: str
    status: str
    value: float
    at: float
    waited_s: float


class Reconfigured(NamedTuple):
    """Settings of a campaign were changed; ``before`` is empty where it is not known.

    Both are in the form of ``CampaignSettings.pack``.
    """

    campaign: str
    before: bytes
    after: bytes
    at: float


class Guarded(NamedTuple):
    """The guardrail has switched a campaign to its baseline, or was re-armed; ``text`` says why."""

    campaign: str
    text: str
    at: float
    is_tripped: bool


class Observer(Protocol):
    """Receives what happens in a campaign."""

    def on_ranked(self, seen: Sequence[Ranked]) -> None:
        """Decisions were made, one at least, together: of one campaign, in one round."""
        ...

    def on_reward(self, seen: RewardSeen) -> None:
        """A reward came, or will not."""
        ...

    def on_configured(self, seen: Reconfigured) -> None:
        """Settings were changed."""
        ...

    def on_guardrail(self, seen: Guarded) -> None:
        """The guardrail tripped, or was re-armed."""
        ...
