"""One decision of a campaign: who gets the baseline, what is shown, what is kept of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from vfbandits.core.arrays import Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.context import Split
from vfbandits.core.decision import Decision
from vfbandits.service.batch import Contexts
from vfbandits.service.campaign_settings import SHADOW, CampaignSettings
from vfbandits.service.observer import Ranked
from vfbandits.service.parts import parts_of
from vfbandits.service.showing import Kept
from vfbandits.store.book import Book

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
    """A decision as the application is told of it; arrays are one number for each arm."""

    event_id: str
    arms: tuple[str, ...]
    shown: int
    scores: Vector = field(repr=False)
    means: Vector = field(repr=False)
    probabilities: Vector = field(repr=False)
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
class Deciding:
    """A decision under way; ``share`` is the event's own number in [0, 1).

    ``forced`` is the arm that is shown whatever the policy chooses, if any, ``group`` says why.
    """

    event_id: str
    asked: Asked
    settings: CampaignSettings
    contexts: Contexts
    at: float
    share: float
    config_version: int
    epoch: int
    model: Learnt
    split: Split
    is_blockwise: bool
    encode: Callable[[Outcome], bytes]
    group: str = POLICY
    forced: int | None = None
    due: float = 0.0
    answer: bytes = field(default=b"", repr=False)
    outcome: Outcome | None = None
    choice: int = 0
    parts: dict[str, float] | None = None

    def __post_init__(self) -> None:
        """Say who gets the baseline, and until when a reward is waited for."""
        settings, asked = self.settings, self.asked
        if settings.mode == SHADOW:
            self.group, self.forced = SHADOW, asked.baseline
        elif self.share < settings.holdback:
            self.group, self.forced = HOLDBACK, asked.baseline
        wait = settings.reward_wait_s if asked.activate else settings.activation_wait_s
        self.due = self.at + wait

    def keep(self, decision: Decision) -> Kept:
        """What is logged of the decision, the answer among it."""
        arms, contributors = self.asked.arms, self.contexts.contributors
        self.choice = decision.index
        shown = decision.index if self.forced is None else self.forced
        if self.is_blockwise:
            bandit = self.model.bandit
            self.parts = parts_of(bandit, bandit.observation(decision), self.split)
        self.outcome = Outcome(
            self.event_id,
            arms,
            shown,
            decision.scores,
            decision.means,
            self._probabilities(decision),
            contributors,
            len(contributors) < len(self.split.names),
            self.group,
            self.model.book.n_learnt,
            self.config_version,
            self.epoch,
        )
        self.answer = self.encode(self.outcome)
        probability = float(self.outcome.probabilities[shown])
        held = not self.asked.activate
        return Kept(arms[shown], shown, probability, self.group, self.due, held, self.answer)

    def seen(self, campaign: str, seconds: float) -> Ranked:
        """What observers are told, once it is durable."""
        outcome = self.outcome
        if outcome is None:
            raise RuntimeError("observers are told of a decision after it was made")
        shown, arms = outcome.shown, outcome.arms
        estimate = float(outcome.means[shown])
        came = outcome.contributors
        return Ranked(
            campaign=campaign,
            event_id=self.event_id,
            user=self.asked.user,
            at=self.at,
            arm=arms[shown],
            choice=arms[self.choice],
            baseline=arms[self.asked.baseline],
            group=self.group,
            estimate=estimate,
            bonus=float(outcome.scores[shown]) - estimate,
            parts=self.parts,
            probability=float(outcome.probabilities[shown]),
            contributors=came,
            missing=tuple(n for n in self.split.names if n not in came) if outcome.degraded else (),
            n_arms=len(arms),
            model_version=outcome.model_version,
            seconds=seconds,
            bytes_received=self.contexts.bytes_received,
        )

    def _probabilities(self, decision: Decision) -> Vector:
        """Of being shown, the share of the baseline included."""
        to_baseline = 1.0 if self.settings.mode == SHADOW else self.settings.holdback
        shares = decision.propensity.probabilities()
        if not to_baseline:
            return shares
        shares = (1.0 - to_baseline) * shares
        shares[self.asked.baseline] += to_baseline
        return shares
