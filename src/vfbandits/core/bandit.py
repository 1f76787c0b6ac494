"""The bandit: decide, receive the reward, learn.

It does not know whether its contexts are masked.  ``Federation`` feeds it masked ones.
"""

import secrets
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import NamedTuple, Never, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Vector, as_array
from vfbandits.core.decision import ArmId, Decision, EventId, Propensity, choose
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.layout import MAX_ARMS, LayoutSettings, Learner, Round, build_learner
from vfbandits.core.move import Move
from vfbandits.core.pending import Evicted, Pending, PendingDecisions
from vfbandits.core.policy.base import Policy, Scored, share
from vfbandits.core.policy.linucb import OFUL
from vfbandits.core.policy.registry import describe, refuse_unless_policy, revive
from vfbandits.core.reward import Observation, as_reward
from vfbandits.core.root import RootForm
from vfbandits.core.sampler import Draws
from vfbandits.core.settings import LearnerSettings, refuse_unknown, refuse_unless_blind
from vfbandits.core.shares.slots import SlotLearner
from vfbandits.core.snapshot import AnyArray, Record, Rows, Snapshot
from vfbandits.core.state import State
from vfbandits.errors import (
    ArmError,
    ContextError,
    RewardError,
    SettingError,
    SnapshotError,
    UnknownDecisionError,
)

ALONE = ("all",)


class BanditOptions(TypedDict, total=False):
    """Options of a bandit beside its policy and width: the keywords of ``Bandit``.

    For callers that pass them on; ``Bandit`` and ``Federation`` have the defaults.
    """

    layout: str
    arm_dim: int | None
    intercept: bool
    ridge: float
    discount: float
    floor: float
    seed: int | None
    max_open: int
    max_settled: int
    max_arms: int
    penalty: str
    scaling: str


class Proposal(NamedTuple):
    """A decision that was worked out and not entered.

    ``observation`` is what its reward will teach; ``root`` says whether the state is to keep a root
    of its inverse from this decision on.
    """

    decision: Decision
    observation: Observation
    root: bool


class Bandit:
    """A contextual bandit that learns from rewards whenever they come.

    Parameters
    ----------
    policy
        How to explore: ``LinUCB``, ``LinTS``, ``LinGreedy``, ``InverseGap``, or anything with
        their one method.
    dim
        Width of a context: of an arm's row (``per_arm``) or of the user's vector.
    layout, arm_dim, intercept
        "per_arm" (one row per arm), "outer" (user ⊗ arm features of width ``arm_dim``) or
        "disjoint" (a model per arm); ``intercept`` puts a 1 before the features of the last two.
    ridge, discount
        Prior weight λ, and forgetting factor γ ≤ 1 applied with each reward learnt.
    floor
        Fraction of rounds in which an arm is taken uniformly at random, whatever the policy.
    seed
        Of the policy's randomness; None takes the operating system's.
    max_open, max_settled
        How many decisions that wait for a reward are kept, and how many that had theirs (to tell
        a repeated reward from an unknown one); the oldest go first.
    max_arms
        How many arms keep a model of their own, in layout "disjoint"; past that the arm whose last
        reward is the oldest goes first.
    penalty, scaling
        Only "l2" and "none": others look at coordinates, and are refused with the reason.

    Examples
    --------
    >>> import vfbandits as vfb
    >>> bandit = vfb.Bandit(vfb.LinUCB(beta=0.5), dim=2)
    >>> decision = bandit.decide([[1.0, 0.0], [0.0, 1.0]], arms=["tea", "coffee"])
    >>> decision.arm, decision.probability
    ('tea', 1.0)
    >>> bandit.reward(decision, 0.0)
    True
    >>> bandit.decide([[1.0, 0.0], [0.0, 1.0]], arms=["tea", "coffee"]).arm
    'coffee'
    """

    def __init__(  # noqa: PLR0913  (settings, by name)
        self,
        policy: Policy,
        *,
        dim: int,
        layout: str = "per_arm",
        arm_dim: int | None = None,
        intercept: bool = False,
        ridge: float = 1.0,
        discount: float = 1.0,
        floor: float = 0.0,
        seed: int | None = None,
        max_open: int = 100_000,
        max_settled: int = 10_000,
        max_arms: int = MAX_ARMS,
        penalty: str = "l2",
        scaling: str = "none",
        **unknown: Never,
    ) -> None:
        refuse_unknown(Bandit, unknown)
        refuse_unless_policy(policy)
        refuse_unless_blind(penalty=penalty, scaling=scaling)
        self.policy = policy
        self.layout = LayoutSettings(dim, layout, arm_dim, intercept, max_arms)
        self.settings = LearnerSettings(ridge=ridge, discount=discount)
        if self.settings.discount < 1.0 and isinstance(getattr(policy, "beta", None), OFUL):
            raise SettingError("OFUL's radius holds without forgetting, got a discount below 1")
        self.floor = share(floor, "floor")
        self._learner: Learner = build_learner(self.layout, self.settings)
        self.pending = PendingDecisions(max_open=max_open, max_settled=max_settled)
        self.seed = _seed(seed)
        self._rng: Draws = np.random.default_rng(self.seed)
        self._n_decisions = 0

    def __repr__(self) -> str:
        """Settings and counts; nothing that was learnt."""
        return (
            f"Bandit({self.policy!r}, layout={self.layout.layout!r}, dim={self.dim}, "
            f"decisions={self._n_decisions}, open={len(self.pending.open)})"
        )

    @property
    def dim(self) -> int:
        """Width of a context."""
        return self._learner.dim

    @property
    def options(self) -> BanditOptions:
        """Settings and seed, from which a bandit that decides alike can be made."""
        return {
            "layout": self.layout.layout,
            "arm_dim": self.layout.arm_dim,
            "intercept": self.layout.intercept,
            "ridge": self.settings.ridge,
            "discount": self.settings.discount,
            "floor": self.floor,
            "seed": self.seed,
            "max_open": self.pending.max_open,
            "max_settled": self.pending.max_settled,
            "max_arms": self.layout.max_arms,
        }

    @property
    def n_decisions(self) -> int:
        """How many decisions it has made."""
        return self._n_decisions

    @property
    def open_decisions(self) -> tuple[EventId, ...]:
        """Ids of the decisions that wait for a reward, oldest first."""
        return tuple(self.pending)

    @property
    def has_root(self) -> bool:
        """Whether the state keeps a root of its inverse: LinTS in parameter space asked for it."""
        if self.layout.layout != "per_arm":  # the only layout that is sampled in that space
            return False
        return isinstance(self.states[None].form, RootForm)

    @property
    def n_repairs(self) -> int:
        """How often numbers were too large for float64 and what was learnt was put right.

        A context that was learnt with less weight, or a refactoring that needed more ridge; 0 where
        all contexts are of ordinary size.
        """
        return self._learner.n_repairs

    @property
    def n_arms(self) -> int:
        """Arms with a model of their own, in layout "disjoint"; otherwise 0."""
        return self._learner.n_arms

    @property
    def n_arms_dropped(self) -> int:
        """Arms whose model was dropped, by ``max_arms`` or ``drop_arms``."""
        return self._learner.n_dropped

    @property
    def states(self) -> dict[ArmId | None, State]:
        """What was learnt: one state under None, or in layout "disjoint" one for each arm."""
        return self._learner.states()

    def state_of(self, arm: ArmId | None) -> State | None:
        """The state that an observation of ``arm`` teaches, if it was taught before."""
        return self._learner.state_of(arm)

    def drop_arms(self, arms: Iterable[ArmId]) -> int:
        """Drop the models of arms that are no longer offered, in layout "disjoint".

        Returns how many had one.  A reward that comes later, for a decision that is still open,
        starts such an arm from the prior.

        >>> import vfbandits as vfb
        >>> bandit = vfb.Bandit(vfb.LinUCB(), dim=1, layout="disjoint")
        >>> bandit.reward(bandit.decide([1.0], arms=["tea", "milk"]), 1.0)
        True
        >>> bandit.n_arms, bandit.drop_arms(["tea"]), bandit.n_arms
        (1, 1, 0)
        """
        return self._learner.drop(arms)

    def decide(
        self,
        contexts: ArrayLike,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        event_id: str | None = None,
        contributors: tuple[str, ...] = ALONE,
        shown: int | None = None,
    ) -> Decision:
        """Choose an arm.

        ``contexts`` is (n_arms, dim) in layout "per_arm" and (dim,) in the others.  Arms may come
        and go from one round to the next; ``arms`` gives their ids, needed in "disjoint".
        Decisions are numbered unless ``event_id`` names them; ``contributors`` is only noted.
        Where the caller shows another arm than the one chosen, ``shown`` is its position: the
        reward then teaches that one.
        """
        proposal = self.propose(
            contexts,
            arms=arms,
            arm_features=arm_features,
            event_id=event_id,
            contributors=contributors,
            shown=shown,
            draws=self._rng,
        )
        self.apply(proposal)
        return proposal.decision

    def propose(
        self,
        contexts: ArrayLike,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        event_id: str | None = None,
        contributors: tuple[str, ...] = ALONE,
        shown: int | None = None,
        draws: Draws,
    ) -> Proposal:
        """Work a decision out, as ``decide`` does, and change nothing; ``apply`` enters it.

        Randomness comes from ``draws``, which is the caller's.

        >>> import numpy as np, vfbandits as vfb
        >>> bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
        >>> proposal = bandit.propose([[1.0], [2.0]], draws=np.random.default_rng(0))
        >>> proposal.decision.index, bandit.n_decisions
        (1, 0)
        >>> bandit.apply(proposal)
        >>> bandit.reward(proposal.decision, 1.0), bandit.n_decisions
        (True, 1)
        """
        opened = self._learner.open_round(contexts, arms=arms, arm_features=arm_features)
        return self._propose(opened, event_id, contributors, shown, draws)

    def apply(self, proposal: Proposal) -> None:
        """Enter a decision that was worked out by ``propose``, before any other was entered."""
        decision = proposal.decision
        self._enter(decision.id, Pending(proposal.observation), root=proposal.root)

    def decide_many(
        self,
        contexts: ArrayLike,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        contributors: tuple[str, ...] = ALONE,
    ) -> list[Decision]:
        """Choose an arm for each of several users, the first axis of ``contexts``.

        Equal to calling ``decide`` for one after the other with no reward in between, for every
        policy: the same arms, and scores up to rounding.
        """
        rounds = self._learner.open_rounds(contexts, arms=arms, arm_features=arm_features)
        decisions = []
        for opened in rounds:
            proposal = self._propose(opened, None, contributors, None, self._rng)
            self.apply(proposal)
            decisions.append(proposal.decision)
        return decisions

    def fit(
        self,
        contexts: ArrayLike,
        rewards: Sequence[float] | Vector,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
    ) -> "Bandit":
        """Learn from history: one row for each arm that was shown, and what it gave.

        ``contexts`` is (n, dim); ``arms`` has the id of the arm in each row, needed in layout
        "disjoint", and ``arm_features`` its features (n, arm_dim), needed in "outer".  The rows
        count as if they had been decided and rewarded one after the other.  All are checked before
        the first is learnt.  Returns the bandit itself.

        >>> import vfbandits as vfb
        >>> bandit = vfb.Bandit(vfb.LinGreedy(), dim=1, layout="disjoint")
        >>> bandit.fit([[1.0], [1.0]], [0.0, 1.0], arms=["tea", "milk"])
        Bandit(LinGreedy(epsilon=0.0), layout='disjoint', dim=1, decisions=0, open=0)
        >>> bandit.decide([1.0], arms=["tea", "milk"]).arm
        'milk'
        """
        rows = as_array(contexts, ndim=2, width=self.dim, what="contexts")
        values = [as_reward(value) for value in rewards]
        features = None if arm_features is None else np.asarray(arm_features)
        for what, given in (("rewards", values), ("arms", arms), ("arm_features", features)):
            if given is not None and len(given) != len(rows):
                raise ContextError(
                    f"{what} must have one for each of {len(rows)} rows, got {len(given)}"
                )
        is_per_arm = self.layout.layout == "per_arm"
        observations = [
            self._learner.open_round(
                rows[place : place + 1] if is_per_arm else rows[place],
                arms=None if arms is None else (arms[place],),
                arm_features=None if features is None else features[place : place + 1],
            ).observation(0)
            for place in range(len(rows))
        ]
        for observation, value in zip(observations, values, strict=True):
            self._learner.learn(observation, value)
        return self

    def reward(self, decision: Decision | EventId, value: float) -> bool:
        """Learn the reward of a decision.

        Returns False, and changes nothing, when this very reward was learnt before; a different
        one is refused.  Rewards may come late and in any order.
        """
        key, reward = _key(decision), as_reward(value)
        observation = self.pending.match(key, reward)
        if observation is None:
            return False
        self._learner.learn(observation, reward)
        self.pending.settle(key, reward)
        return True

    def reward_many(self, decisions: Iterable[Decision | EventId], values: Iterable[float]) -> int:
        """Learn several rewards as one update; returns how many were new.

        Up to rounding Lambda, u and every statistic are the same as after ``reward`` one after
        the other, forgetting included; only LinTS in parameter space draws from another root of
        the same inverse then, equal in distribution.  All or nothing: one bad reward, and none is
        learnt.
        """
        keys = [_key(decision) for decision in decisions]
        rewards = [as_reward(value) for value in values]
        if len(keys) != len(rewards):
            raise RewardError(f"each decision needs one reward, got {len(keys)} and {len(rewards)}")
        new: dict[EventId, tuple[Observation, float]] = {}
        for key, reward in zip(keys, rewards, strict=True):
            observation = self.pending.match(key, reward)
            if observation is not None and new.setdefault(key, (observation, reward))[1] != reward:
                raise RewardError(f"decision {key!r} got two different rewards in one batch")
        if new:
            observations, learnt = zip(*new.values(), strict=True)
            self._learner.learn_many(observations, np.array(learnt))
        for key, (_, reward) in new.items():
            self.pending.settle(key, reward)
        return len(new)

    def retract(self, observation: Observation, value: float) -> None:
        """Take back a reward that was learnt, as if it had never come: exact up to rounding.

        A settled decision's context is not kept, so the caller gives the ``observation`` back, as
        it is behind the mask of today (``carry`` brings it there).  The decision stays settled: the
        same reward again changes nothing.  Refused under forgetting, and where the context was
        not learnt; nothing is changed then.

        >>> import vfbandits as vfb
        >>> bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
        >>> decision = bandit.decide([[1.0], [2.0]])
        >>> observation = bandit.observation(decision)
        >>> bandit.reward(decision, 5.0)
        True
        >>> bandit.retract(observation, 5.0)
        >>> bandit.estimate_norm()
        0.0
        """
        self._learner.unlearn(self._learner.own(observation), as_reward(value))

    def carry(self, observation: Observation, move: Move) -> Observation:
        """An observation from before ``move`` as it is after it."""
        return observation.moved(self._learner.lift(move))

    def forget(self, decision: Decision | EventId) -> None:
        """Drop an open decision whose reward will never come; nothing is learnt from it."""
        self.pending.forget(_key(decision))

    def observation(self, decision: Decision | EventId) -> Observation:
        """What an open decision left behind to learn from: enough to ``recall`` it later."""
        key = _key(decision)
        if key not in self.pending.open:
            raise UnknownDecisionError(f"an observation needs an open decision, got id {key!r}")
        return self.pending.open[key].observation

    def recall(self, event_id: EventId, observation: Observation, *, root: bool = False) -> None:
        """Enter a decision that was made before, as ``decide`` did then; nothing is drawn.

        Decisions are recalled in the order in which they were made, so a numbered one must have
        the next number.  ``root`` is what ``has_root`` was after the decision: rewards that come
        later are then learnt in the same form, to the last bit.

        >>> import vfbandits as vfb
        >>> first, second = (vfb.Bandit(vfb.LinUCB(), dim=1) for _ in range(2))
        >>> decision = first.decide([[1.0], [2.0]])
        >>> second.recall(decision.id, first.observation(decision))
        >>> second.reward(decision, 1.0), second.decide([[1.0]]).id
        (True, 1)
        """
        self.enter(event_id, Pending(observation), root=root)

    def enter(self, event_id: EventId, pending: Pending, *, root: bool = False) -> Evicted | None:
        """As ``recall``, with all that is kept of the decision; returns one that had to leave."""
        pending.observation = self._learner.own(pending.observation)
        return self._enter(event_id, pending, root=root)

    def _enter(self, event_id: EventId, pending: Pending, *, root: bool) -> Evicted | None:
        number = self._n_decisions
        if isinstance(event_id, str):
            self.pending.new_name(event_id)
        elif type(event_id) is not int or event_id != number:
            raise SettingError(f"the next decision is number {number}, got {event_id!r}")
        if root and not self.has_root:
            for state in self.states.values():
                state.root()
        self._n_decisions = number + 1
        return self.pending.enter(event_id, pending)

    def knows(self, decision: Decision | EventId) -> bool:
        """Whether the decision is kept, open or settled; others are to be found elsewhere."""
        key = _key(decision)
        return key in self.pending.open or key in self.pending.settled

    def reward_recalled(self, event_id: EventId, observation: Observation, value: float) -> None:
        """Learn the reward of a decision that is no longer kept, as ``reward`` would have.

        The caller answers for it that the reward was not learnt before.
        """
        if self.knows(event_id):
            raise SettingError(f"decision {event_id!r} is still kept: wanted one that is not")
        own, reward = self._learner.own(observation), as_reward(value)
        self._learner.learn(own, reward)
        self.pending.settle(event_id, reward)

    def resize(self, max_open: int) -> list[Evicted]:
        """Keep so many open decisions from now on; returns those that had to leave."""
        return self.pending.resize(max_open)

    def lift(self, move: Move) -> Move:
        """``move`` as it acts on what decisions leave behind to learn from."""
        return self._learner.lift(move)

    def move(self, move: Move) -> None:
        """Carry all that was learnt, and the open decisions, to another mask or width."""
        self.pending.move(self.lift(move))
        self._learner.move(move)

    def take_learnt(self, snapshot: Snapshot) -> None:
        """Replace all that was learnt here by what the bandit of a snapshot has learnt.

        Pending decisions, numbers and randomness stay as they are.  Width and settings must be the
        same; otherwise nothing is changed.

        >>> import vfbandits as vfb
        >>> bandit = vfb.Bandit(vfb.LinUCB(), dim=1)
        >>> before = bandit.copy().snapshot()
        >>> bandit.fit([[1.0]], [1.0]).take_learnt(before)
        >>> bandit.estimate_norm()
        0.0
        """
        if self.slots is not None:
            raise SettingError(
                "protection 'shares' cannot put an earlier model back: what was learnt is in "
                "shares of two servers"
            )
        other = Bandit.restore(snapshot)
        mine, theirs = _shape(self), _shape(other)
        for name, value in mine.items():
            if theirs[name] != value:
                raise SettingError(f"the model must have {name} {value!r}, got {theirs[name]!r}")
        self._learner = other._learner  # noqa: SLF001  (a bandit of this call only)

    def estimate_norm(self) -> float:
        """‖theta‖, over all states: the same number behind any mask."""
        return float(np.sqrt(sum(float(s.theta @ s.theta) for s in self.states.values())))

    @property
    def slots(self) -> SlotLearner | None:
        """The learner of a bandit whose state two servers share; None for all others."""
        return self._learner if isinstance(self._learner, SlotLearner) else None

    @property
    def draws(self) -> Draws:
        """The policy's own randomness, which ``decide`` takes."""
        return self._rng

    def draw_from(self, draws: Draws) -> None:
        """Take the policy's randomness from ``draws``: for twins that must share their draws."""
        self._rng = draws

    def learn_with(self, learner: Learner) -> None:
        """Keep what is learnt in ``learner``: for states that do not live in this process alone."""
        self._learner = learner

    def _propose(
        self,
        opened: Round,
        event_id: str | None,
        contributors: tuple[str, ...],
        shown: int | None,
        draws: Draws,
    ) -> Proposal:
        number = self._n_decisions
        key = number if event_id is None else self.pending.new_name(event_id)
        statistics = opened.statistics
        if shown is not None and not 0 <= shown < len(statistics.means):
            raise ArmError(f"shown is a position among {len(statistics.means)} arms, got {shown}")
        scored, root = self._score(statistics, draws)
        magnitude = statistics.magnitude
        floor = self.floor + scored.uniform - self.floor * scored.uniform
        index, best = choose(scored, magnitude=magnitude, floor=floor, rng=draws)
        arm = index if opened.arms is None else opened.arms[index]
        law = Propensity(scored, best, magnitude, floor, (self.seed, key))
        decision = Decision(
            id=key,
            arm=arm,
            index=index,
            scores=scored.values,
            means=statistics.means,
            contributors=contributors,
            propensity=law,
        )
        return Proposal(decision, opened.observation(index if shown is None else shown), root)

    def _score(self, statistics: ArmStatistics, draws: Draws) -> tuple[Scored, bool]:
        """Scores, and whether the state is to keep a root of its inverse from now on."""
        state = self._learner.state_of(None)
        if state is None or self.layout.layout != "per_arm":  # the others are never sampled so
            return self.policy.score(statistics, draws), False
        before = state.form
        scored = self.policy.score(statistics, draws)
        root = isinstance(state.form, RootForm)
        state.form = before  # LinTS switches the form, which is for ``apply`` to do
        return scored, root

    def copy(self) -> "Bandit":
        """Another bandit that knows the same and draws the same; they share nothing.

        >>> import vfbandits as vfb
        >>> bandit = vfb.Bandit(vfb.LinTS(), dim=2, seed=1)
        >>> other = bandit.copy()
        >>> other.fit([[1.0, 0.0]], [1.0]).estimate_norm() > bandit.estimate_norm() == 0.0
        True
        """
        return Bandit.restore(deepcopy(self.snapshot()))

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> "Bandit":
        """As ``copy``."""
        return self.copy()

    def __reduce__(self) -> tuple[Callable[[Snapshot], "Bandit"], tuple[Snapshot]]:
        """A pickle is a snapshot."""
        return Bandit.restore, (self.snapshot(),)

    def snapshot(self) -> Snapshot:
        """All that ``restore`` needs to go on as if nothing had happened, bit for bit."""
        if not isinstance(self._rng, np.random.Generator):
            raise SnapshotError("a bandit with borrowed draws has no snapshot of its own")
        learner, arrays = self._learner.pack()
        opened, contexts, settled = self.pending.pack()
        header: dict[str, object] = {
            "kind": "bandit",
            "policy": describe(self.policy),
            "dim": self.dim,
            "options": self.options,
            "rng": dict(self._rng.bit_generator.state),
            "n_decisions": self._n_decisions,
            "learner": learner,
            "open": opened,
            "settled": settled,
        }
        parts: dict[str, AnyArray | Rows] = {
            f"learner/{name}": array for name, array in arrays.items()
        }
        if opened:
            parts["open"] = contexts
        return Snapshot(header, parts)

    @classmethod
    def restore(cls, snapshot: Snapshot) -> "Bandit":
        """The bandit that the snapshot was taken of."""
        record = snapshot.record
        options = record.child("options")
        bandit = cls(
            revive(record.child("policy")),
            dim=record.integer("dim"),
            layout=options.text("layout"),
            arm_dim=options.integer("arm_dim") if options.has("arm_dim") else None,
            intercept=bool(options.values.get("intercept")),
            ridge=options.number("ridge"),
            discount=options.number("discount"),
            floor=options.number("floor"),
            seed=options.integer("seed"),
            max_open=options.integer("max_open"),
            max_settled=options.integer("max_settled"),
            max_arms=options.integer("max_arms") if options.has("max_arms") else MAX_ARMS,
        )
        learner = record.child("learner")
        if learner.has("slots"):  # the state is secret-shared between two servers
            bandit._learner = SlotLearner.of(learner, ridge=bandit.settings.ridge)
        bandit._learner.unpack(learner, snapshot.below("learner/"))
        bandit._n_decisions = record.integer("n_decisions")
        bandit._rng = _generator(record)
        bandit.pending.unpack(record, snapshot.arrays.get("open"))
        return bandit


def _shape(bandit: Bandit) -> dict[str, object]:
    """Settings that shape what is learnt."""
    layout, settings = bandit.layout, bandit.settings
    return {
        "dim": bandit.dim,
        "layout": layout.layout,
        "arm_dim": layout.arm_dim,
        "intercept": layout.intercept,
        "ridge": settings.ridge,
        "discount": settings.discount,
        "max_arms": layout.max_arms,
    }


def _key(decision: Decision | EventId) -> EventId:
    return decision.id if isinstance(decision, Decision) else decision


def _seed(seed: object) -> int:
    if seed is None:
        return secrets.randbits(128)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise SettingError(f"seed must be a whole number from 0, or None, got {seed!r}")
    return seed


def _generator(record: Record) -> np.random.Generator:
    generator = np.random.default_rng(0)
    try:
        generator.bit_generator.state = record.plain("rng")
    except (KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"the snapshot holds no state of a PCG64 generator: {error}") from error
    return generator
