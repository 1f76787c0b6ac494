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
from typing import NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, Vector, as_array
from vfbandits.core.decision import ArmId
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.layout.base import Arms, Round, own_vector
from vfbandits.core.layout.build import LayoutSettings, build_learner
from vfbandits.core.move import Move
from vfbandits.core.policy import LinTS
from vfbandits.core.policy.base import Policy
from vfbandits.core.reward import Observation
from vfbandits.core.settings import LearnerSettings
from vfbandits.core.shares.active import Event, Opened
from vfbandits.core.shares.covariance.active import Statistics
from vfbandits.core.shares.learner import HiddenState
from vfbandits.core.shares.released import (
    Plan,
    ReleasedArm,
    ReleasedStatistics,
    plan,
    released_statistics,
)
from vfbandits.core.shares.terms import MAX_REWARD, ShareTerms
from vfbandits.core.snapshot import AnyArray, Record, Rows
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


def released_row(event: Event, arm: int, own: Matrix, means: Vector, squares: Vector) -> Matrix:
    """The same where the own row is one for all arms: (1, 3 + 2·n_arms + width).

    >>> nothing = np.zeros(2)
    >>> released_row((2, 5), 1, np.array([[0.5, 0.25]]), nothing, nothing)
    array([[2.  , 5.  , 1.  , 0.  , 0.  , 0.  , 0.  , 0.5 , 0.25]])
    """
    return np.concatenate(((*event, arm), means, squares, own[0]))[None]


def lone_rows(terms: ShareTerms, own: Matrix, n_arms: int) -> Matrix:
    """A round on the active participant's own rows alone."""
    if terms.layout == "per_arm":
        return released_rows(ALONE, 0, own)
    return released_row(ALONE, 0, own, np.zeros(n_arms), np.zeros(n_arms))


def rows_of(terms: ShareTerms, opened: Opened, own: Matrix) -> Matrix:
    """A round as ``SlotLearner.open_round`` takes it, from what was released of it."""
    if terms.layout == "per_arm":
        return released_rows(opened.event, opened.arm, own, opened.statistics)
    means = squares = np.zeros(opened.n_arms)
    if opened.statistics is not None:
        offer = opened.rows.offer
        of_arms = released_statistics(
            terms, opened.statistics, offer, n_updates=0, largest_reward=0.0
        )
        means = of_arms.means
        if terms.reads != "means":
            squares = of_arms.widths**2
    return released_row(opened.event, opened.arm, own, means, squares)


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
        self.dim = sum(terms.widths)
        self.queue: deque[QueuedReward] = deque()
        self._n_updates = 0
        self._n_queued = 0
        self._largest_reward = 0.0
        layout = LayoutSettings(
            terms.widths[0], terms.layout, terms.arm_dim or None, intercept=terms.intercept
        )
        self._alone = build_learner(layout, LearnerSettings(ridge=terms.ridge, discount=1.0))

    def open_round(
        self, contexts: ArrayLike, *, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> Round:
        """A round of ``rows_of`` or ``lone_rows``; one row where it is for all arms."""
        heads, own = self._parts(contexts, arms, arm_features)
        opened = self._alone.open_round(own, arms=arms, arm_features=arm_features)
        event = event_of(heads[0])
        statistics = opened.statistics if event == ALONE else self._released(heads)
        return _SlotRound(statistics, opened.arms, event, opened)

    def _parts(
        self, contexts: ArrayLike, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
    ) -> tuple[Matrix, Matrix | Vector]:
        """Heads of all arms, (n_arms, 5), and the own rows or row."""
        width = self.terms.widths[0]
        if self.terms.layout == "per_arm":
            rows = as_array(contexts, ndim=2, width=_HEAD + width, what="rows of a slot")
            if not len(rows):
                raise ArmError("a decision needs at least one arm, got none")
            return rows[:, :_HEAD], rows[:, _HEAD:]
        given = arms if arm_features is None else np.asarray(arm_features)
        n_arms = 0 if given is None else len(given)
        if not n_arms:
            raise ArmError("a decision needs at least one arm, got none")
        row = as_array(contexts, ndim=1, width=3 + 2 * n_arms + width, what="row of a slot")
        heads = np.zeros((n_arms, _HEAD))
        heads[:, :2] = row[:2]
        heads[int(row[2]), 2] = 1.0
        heads[:, 3], heads[:, 4] = row[3 : 3 + n_arms], row[3 + n_arms : 3 + 2 * n_arms]
        return heads, row[3 + 2 * n_arms :]

    def _released(self, heads: Matrix) -> ReleasedArm | ReleasedStatistics:
        terms = self.terms
        if terms.release == "arm":
            arm = int(heads[:, 2].argmax())
            return ReleasedArm(len(heads), arm, terms.ridge, self._n_updates)
        reads = "means" if terms.reads == "means" else "widths"
        return ReleasedStatistics(
            heads[:, 3],
            heads[:, 4] if reads == "widths" else heads[:0, 4],
            reads,
            terms.ridge,
            self._n_updates,
            length=terms.max_length * math.sqrt(terms.ridge),
            largest_reward=self._largest_reward,
            is_independent=terms.layout == "disjoint",
        )

    def plan(self, policy: Policy) -> Plan:
        """How a policy runs here; what is dealt fits one way of running only."""
        terms, planned = self.terms, plan(policy, self.terms.release, self.terms.layout)
        if isinstance(planned.policy, LinTS) and terms.layout != "disjoint":
            raise SettingError(
                "release 'statistics' opens covariances for LinTS, for which a request has no "
                "place: release 'arm' draws it in parameter space"
            )
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
        terms = self.terms
        width = (terms.widths[0] + terms.intercept) * terms.arm_width
        x = own_vector(observation, width=2 + width)
        has_model = observation.model is not None
        if has_model != (terms.layout == "disjoint") or event_of(x) != tuple(x[:2]):
            raise ContextError("wanted a reference to a slot of secret shares")
        return Observation(x, observation.model)

    def learn(self, observation: Observation, reward: float) -> None:
        """One reward: now on the own features, later by the two servers."""
        if not abs(reward) <= MAX_REWARD:
            raise RewardError(
                f"a reward on secret shares must be at most {MAX_REWARD:g} in size, got {reward}"
            )
        self._alone.learn(Observation(observation.x[2:], observation.model), reward)
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

    def lift(self, move: Move) -> Move:
        """References and own features stay as they are, whatever the servers do."""
        del move
        return _Still()

    def move(self, move: Move) -> None:
        """The servers hand over to other secrets, and perhaps participants (``take_terms``)."""
        self.dim = len(move.vector(np.zeros(self.dim)))

    def take_terms(self, terms: ShareTerms) -> None:
        """Go by the terms of the roster in force."""
        if sum(terms.widths) != self.dim or terms.widths[0] != self.terms.widths[0]:
            raise SettingError(
                f"wanted terms of {self.dim} features, {self.terms.widths[0]} of them the active "
                f"participant's, got widths {list(terms.widths)}"
            )
        self.terms = terms

    def pack(self) -> tuple[dict[str, object], dict[str, AnyArray | Rows]]:
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
                "layout": terms.layout,
                "arm_dim": terms.arm_dim,
                "arm_bound": terms.arm_bound,
                "intercept": int(terms.intercept),
            },
            "features": self.dim,
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
        # Older snapshots have "dim", the width of the state, or nothing.
        for name in ("features", "dim") if self.terms.layout == "per_arm" else ("features",):
            if record.has(name):
                self.dim = record.integer(name)
                break
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
                **_layout_of(kept),
            )
        )


class _Layout(TypedDict, total=False):
    layout: str
    arm_dim: int
    arm_bound: float
    intercept: bool


def _layout_of(kept: Record) -> _Layout:
    if not kept.has("layout"):  # noted before there were other layouts
        return {}
    return {
        "layout": kept.text("layout"),
        "arm_dim": kept.integer("arm_dim"),
        "arm_bound": kept.number("arm_bound"),
        "intercept": bool(kept.integer("intercept")),
    }


class _Still:
    """A move that moves nothing here: servers carry what was learnt themselves."""

    def vector(self, x: Vector) -> Vector:
        """The same."""
        return x

    def matrix(self, Lambda: Matrix, ridge: float) -> Matrix:
        """The same."""
        del ridge
        return Lambda

    def lifted(self, *, before: int, factor: int) -> "_Still":
        """The same."""
        del before, factor
        return self


@dataclass(frozen=True, slots=True)
class _SlotRound:
    statistics: ArmStatistics
    arms: Arms
    event: Event
    own: Round

    def observation(self, index: int) -> Observation:
        """The slot, and the own features of the arm at ``index``."""
        own = self.own.observation(index)
        event = np.array(self.event, dtype=np.float64)
        return Observation(np.concatenate((event, own.x)), own.model)


def event_of(x: Vector) -> Event:
    """The slot that an observation names; ``ALONE`` for a decision that has none."""
    return int(x[0]), int(x[1])


def _queued(packed: object) -> QueuedReward:
    match packed:
        case [int(number), int(window), int(slot), int() | float() as value]:
            return QueuedReward(number, (window, slot), float(value))
    raise SnapshotError("a queued reward in a snapshot needs its number, slot and value")
