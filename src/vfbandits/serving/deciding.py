"""One decision of a campaign: who gets the baseline, what is shown, what is kept of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from vfbandits.campaign.observer import Ranked
from vfbandits.campaign.parts import parts_of
from vfbandits.campaign.pending import Book
from vfbandits.campaign.settings import SHADOW, CampaignSettings
from vfbandits.core.bandit import Bandit
from vfbandits.core.context import Split
from vfbandits.core.decision import Decision
from vfbandits.serving.rounds import Contexts
from vfbandits.serving.showing import Kept

POLICY, HOLDBACK = "policy", "holdback"


@dataclass(slots=True)
class Asked:
    """A request to rank; ``baseline`` is a position among ``arms``.

    ``own`` and ``arm_features`` as in ``DecideRequest``.
    """

    user: str
    arms: tuple[str, ...]
    event_id: str | None = None
    own: bytes = field(default=b"", repr=False)
    arm_features: bytes = field(default=b"", repr=False)
    baseline: int = 0
    activate: bool = True


@dataclass(slots=True, eq=False)
class Outcome:
    """A decision as the application is told of it; lists have one number for each arm."""

    event_id: str
    arms: tuple[str, ...]
    shown: int
    scores: list[float] = field(repr=False)
    means: list[float] = field(repr=False)
    probabilities: list[float] = field(repr=False)
    contributors: tuple[str, ...]
    degraded: bool
    group: str
    model_version: int
    config_version: int
    epoch: int


class Learnt(Protocol):
    """What a decision is made with."""

    @property
    def bandit(self) -> Bandit:
        """The model."""
        ...

    @property
    def book(self) -> Book:
        """What waits for a reward, and how much was learnt."""
        ...


@dataclass(slots=True)
class Occasion:
    """What decisions that are made together have in common.

    ``started`` is when they were asked for, by ``time.perf_counter``.
    """

    settings: CampaignSettings
    contexts: Contexts
    at: float
    config_version: int
    epoch: int
    model: Learnt
    split: Split
    is_blockwise: bool
    encode: Callable[[Outcome], bytes]
    started: float
    missing: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Say whose features did not come."""
        came = self.contexts.contributors
        self.missing = tuple([name for name in self.split.names if name not in came])


class Deciding:
    """A decision under way; ``share`` is the event's own number in [0, 1).

    ``forced`` is the arm that is shown whatever the policy chooses, if any, ``group`` says why,
    and ``due`` until when a reward is waited for.
    """

    __slots__ = (
        "_choice",
        "_outcome",
        "_parts",
        "answer",
        "asked",
        "due",
        "event_id",
        "forced",
        "group",
        "occasion",
    )

    def __init__(self, event_id: str, asked: Asked, occasion: Occasion, share: float) -> None:
        self.event_id = event_id
        self.asked = asked
        self.occasion = occasion
        settings = occasion.settings
        self.group, self.forced = POLICY, None
        if settings.mode == SHADOW:
            self.group, self.forced = SHADOW, asked.baseline
        elif share < settings.holdback:
            self.group, self.forced = HOLDBACK, asked.baseline
        wait = settings.reward_wait_s if asked.activate else settings.activation_wait_s
        self.due = occasion.at + wait
        self.answer = b""
        self._outcome: Outcome | None = None
        self._choice = 0
        self._parts: dict[str, float] | None = None

    def keep(self, decision: Decision) -> Kept:
        """What is logged of the decision, the answer among it."""
        occasion, arms = self.occasion, self.asked.arms
        self._choice = decision.index
        shown = decision.index if self.forced is None else self.forced
        if occasion.is_blockwise:
            bandit = occasion.model.bandit
            self._parts = parts_of(bandit, bandit.observation(decision), occasion.split)
        probabilities = self._probabilities(decision)
        self._outcome = Outcome(
            self.event_id,
            arms,
            shown,
            decision.scores.tolist(),
            decision.means.tolist(),
            probabilities,
            occasion.contexts.contributors,
            bool(occasion.missing),
            self.group,
            occasion.model.book.n_learnt,
            occasion.config_version,
            occasion.epoch,
        )
        self.answer = occasion.encode(self._outcome)
        held = not self.asked.activate
        chance = probabilities[shown]
        seconds = round(time.perf_counter() - occasion.started, 6)
        return Kept(arms[shown], shown, chance, self.group, self.due, held, self.answer, seconds)

    def seen(self, campaign: str, seconds: float) -> Ranked:
        """What observers are told, once it is durable."""
        outcome, occasion, asked = self._outcome, self.occasion, self.asked
        if outcome is None:
            raise RuntimeError("observers are told of a decision after it was made")
        shown, arms = outcome.shown, outcome.arms
        estimate = outcome.means[shown]
        return Ranked(
            campaign,
            self.event_id,
            asked.user,
            occasion.at,
            arms[shown],
            arms[self._choice],
            arms[asked.baseline],
            self.group,
            estimate,
            outcome.scores[shown] - estimate,
            self._parts,
            outcome.probabilities[shown],
            outcome.contributors,
            occasion.missing,
            len(arms),
            outcome.model_version,
            seconds,
            occasion.contexts.bytes_received,
        )

    def _probabilities(self, decision: Decision) -> list[float]:
        """Of being shown, the share of the baseline included."""
        settings = self.occasion.settings
        to_baseline = 1.0 if settings.mode == SHADOW else settings.holdback
        shares = decision.propensity.probabilities()
        if to_baseline:
            shares = (1.0 - to_baseline) * shares
            shares[self.asked.baseline] += to_baseline
        probabilities: list[float] = shares.tolist()
        return probabilities
