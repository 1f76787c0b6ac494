"""A learner whose observations name slots, for a bandit whose servers are other processes.

The two servers decide and learn by messages, which takes time and may fail; a campaign applies
events and may not wait.  So the arm is released before the campaign is asked, and a reward that the
campaign learns is queued here, in the order of the journal, until the servers have learnt it.

Beside it a plain state learns every reward on the active participant's own features.  It decides
where the helper is away.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, Vector, as_array
from vfbandits.core.decision import ArmId
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.layout.base import Arms, Round, as_arms, own_vector, refuse_arm_features
from vfbandits.core.layout.build import LayoutSettings, build_learner
from vfbandits.core.policy.base import Policy
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.shares.active import Event
from vfbandits.core.shares.covariance_active import Statistics
from vfbandits.core.shares.learner import HiddenState
from vfbandits.core.shares.released import Plan, ReleasedArm, ReleasedStatistics, plan
from vfbandits.core.shares.terms import MAX_REWARD, ShareTerms
from vfbandits.core.snapshot import AnyArray, Record
from vfbandits.errors import ArmError, ContextError, RewardError, SettingError, SnapshotError

ALONE: Event = (-1, -1)
_HEAD = 5


class QueuedReward(NamedTuple):
    """A reward that the servers must learn; ``number`` counts them from 1."""

    number: int
    event: Event
    value: float


def released_rows(
    event: Event, arm: int, own: Matrix, statistics: Statistics | None = None
) -> Matrix:
    """A round as ``SlotLearner.open_round`` takes it: its slot, what was released, the own rows.

    Columns are the window, the slot, which arm was released, and each arm's mean and form if those
    were.

    >>> released_rows((2, 5), 1, np.array([[0.5], [0.25]]))
    array([[2.  , 5.  , 0.  , 0.  , 0.  , 0.5 ],
           [2.  , 5.  , 1.  , 0.  , 0.  , 0.25]])
    """
    head = np.zeros((len(own), _HEAD))
    head[:, :2] = event
    if statistics is None:
        head[arm, 2] = 1.0
    else:
        head[:, 3] = statistics.means
        if len(statistics.forms):
            head[:, 4] = statistics.forms
    return np.hstack((head, own))


def lone_rows(own: Matrix) -> Matrix:
    """A round on the active participant's own rows alone."""
    return released_rows(ALONE, 0, own)


class SlotLearner(HiddenState):
    """References to slots, rewards that wait for the servers, and a plain state beside.

    >>> terms = ShareTerms(widths=(1, 2), max_arms=2, ridge=1.0, posterior_scale=0.0)
    >>> learner = SlotLearner(terms)
    >>> rows = released_rows((0, 3), 1, np.array([[0.5], [0.25]]))
    >>> opened = learner.open_round(rows, arms=None, arm_features=None)
    >>> learner.learn(opened.observation(1), 1.0)
    >>> learner.queue[0]
    QueuedReward(number=1, event=(0, 3), value=1.0)
    """

    def __init__(self, terms: ShareTerms) -> None:
        self.terms = terms
        self.dim = terms.dim
        self.queue: deque[QueuedReward] = deque()
        self._n_updates = 0
        self._n_queued = 0
        self._largest_reward = 0.0
        layout = LayoutSettings(terms.widths[0], "per_arm", None, intercept=False)
        self._alone = build_learner(layout, LearnerSettings(ridge=terms.ridge, discount=1.0))

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Round:
        """A round of ``released_rows`` or ``lone_rows``."""
        refuse_arm_features(arm_features)
        width = _HEAD + self.terms.widths[0]
        rows = as_array(contexts, ndim=2, width=width, what="rows of a slot")
        if not len(rows):
            raise ArmError("a decision needs at least one arm, got none")
        own = rows[:, _HEAD:]
        if rows[0, 0] < 0.0:
            opened = self._alone.open_round(own, arms=arms, arm_features=None)
            return _SlotRound(opened.statistics, opened.arms, ALONE, own)
        ids = None if arms is None else as_arms(arms, len(rows))
        return _SlotRound(self._released(rows), ids, event_of(rows[0]), own)

    def _released(self, rows: Matrix) -> ReleasedArm | ReleasedStatistics:
        terms = self.terms
        if terms.release == "arm":
            arm = int(rows[:, 2].argmax())
            return ReleasedArm(len(rows), arm, terms.ridge, self._n_updates)
        return ReleasedStatistics(
            rows[:, 3],
            rows[:, 4] if terms.reads == "widths" else rows[:0, 4],
            terms.reads,
            terms.ridge,
            self._n_updates,
            length=terms.max_length * math.sqrt(terms.ridge),
            largest_reward=self._largest_reward,
        )

    def plan(self, policy: Policy) -> Plan:
        """How a policy runs here; what is dealt fits one way of running only."""
        terms, planned = self.terms, plan(policy, self.terms.release)
        for name in ("reads", "posterior_scale", "beta"):
            pinned, ours = getattr(terms, name), getattr(planned, name)
            if pinned != ours:
                raise SettingError(
                    f"protection 'shares' has words dealt for a policy with {name} {pinned}, a "
                    f"term of the roster, got {type(policy).__name__} with {name} {ours}"
                )
        return planned

    def open_rounds(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> list[Round]:
        """Refused: a slot is one decision's."""
        raise SettingError("protection 'shares' decides one user after the other")

    def own(self, observation: Observation) -> Observation:
        """A reference to a slot, with the own features of the arm that was shown."""
        x = own_vector(observation, width=2 + self.terms.widths[0])
        if observation.model is not None or event_of(x) != tuple(x[:2]):
            raise ContextError("wanted a reference to a slot of secret shares")
        return Observation(x)

    def learn(self, observation: Observation, reward: float) -> None:
        """One reward: now on the own features, later by the two servers."""
        if not abs(reward) <= MAX_REWARD:
            raise RewardError(
                f"a reward on secret shares must be at most {MAX_REWARD:g} in size, got {reward}"
            )
        self._alone.learn(Observation(observation.x[2:]), reward)
        self._n_updates += 1
        self._largest_reward = max(self._largest_reward, abs(reward))
        event = event_of(observation.x)
        if event != ALONE:
            self._n_queued += 1
            self.queue.append(QueuedReward(self._n_queued, event, reward))

    def learn_many(self, observations: Sequence[Observation], rewards: Vector) -> None:
        """One after the other."""
        for observation, reward in zip(observations, rewards, strict=True):
            self.learn(observation, float(reward))

    def learnt_to(self, number: int) -> None:
        """The servers have learnt all rewards up to this number."""
        while self.queue and self.queue[0].number <= number:
            self.queue.popleft()

    def leave_out(self, is_done: Callable[[QueuedReward], bool]) -> None:
        """Drop those that the servers have learnt, or wait for no longer."""
        self.queue = deque(one for one in self.queue if not is_done(one))

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray | list[AnyArray]]]:
        """Counts, the queue, and the plain state."""
        alone, arrays = self._alone.pack()
        terms = self.terms
        header: dict[str, object] = {
            "slots": {
                "widths": list(terms.widths),
                "max_arms": terms.max_arms,
                "posterior_scale": terms.posterior_scale,
                "bound": terms.bound,
                "window": terms.window,
                "decisions": terms.decisions,
                "release": terms.release,
                "reads": terms.reads,
                "beta": terms.beta,
            },
            "largest_reward": self._largest_reward,
            "n_updates": self._n_updates,
            "n_queued": self._n_queued,
            "queue": [(one.number, *one.event, one.value) for one in self.queue],
            "alone": alone,
        }
        return header, arrays

    def unpack(self, record: Record, arrays: dict[str, AnyArray]) -> None:
        """Take what ``pack`` gave."""
        self._alone.unpack(record.child("alone"), arrays)
        self._n_updates = record.integer("n_updates")
        self._n_queued = record.integer("n_queued")
        self._largest_reward = record.number("largest_reward")
        self.queue = deque(map(_queued, record.items("queue")))

    @classmethod
    def of(cls, record: Record, *, ridge: float) -> "SlotLearner":
        """An empty learner under the terms that ``pack`` noted."""
        kept = record.child("slots")
        return cls(
            ShareTerms(
                widths=tuple(int(str(width)) for width in kept.items("widths")),
                max_arms=kept.integer("max_arms"),
                ridge=ridge,
                posterior_scale=kept.number("posterior_scale"),
                bound=kept.number("bound"),
                window=kept.integer("window"),
                decisions=kept.integer("decisions"),
                release=kept.text("release"),
                reads=kept.text("reads"),
                beta=kept.number("beta"),
            )
        )


@dataclass(frozen=True, slots=True)
class _SlotRound:
    statistics: ArmStatistics
    arms: Arms
    event: Event
    own: Matrix

    def observation(self, index: int) -> Observation:
        """The slot, and the own features of the arm at ``index``."""
        return Observation(
            np.concatenate((np.array(self.event, dtype=np.float64), self.own[index]))
        )


def event_of(x: Vector) -> Event:
    """The slot that an observation names; ``ALONE`` for a decision that has none."""
    return int(x[0]), int(x[1])


def _queued(packed: object) -> QueuedReward:
    match packed:
        case [int(number), int(window), int(slot), int() | float() as value]:
            return QueuedReward(number, (window, slot), float(value))
    raise SnapshotError("a queued reward in a snapshot needs its number, slot and value")
