"""Which policy, with which parameters: candidates judged on rounds that they did not learn from.

Every candidate learns from the first part of the log and is then frozen, as in an evaluation; one
estimator judges all of them on the rest, and ``best_set`` says which of them may be the best.
Learning from a log does not depend on the policy: candidates with the same ridge and discount share
what was learnt, and differ in how they act on it.

So the judgement is of *acting now*.  What exploration earns later is not part of it: a log cannot
show what would have been learnt from other decisions.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Protocol, TypeAlias

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.core.bandit import Bandit
from vfbandits.core.policy import InverseGap, LinGreedy, LinTS, Policy
from vfbandits.core.policy.base import share
from vfbandits.core.policy.registry import describe, make_policy
from vfbandits.core.settings import LearnerSettings, whole
from vfbandits.errors import SettingError
from vfbandits.evaluate.best_set import best_set
from vfbandits.evaluate.evaluation import MODELLED, EvaluationSettings, FrozenTarget
from vfbandits.evaluate.log import Indices, LoggedBandit
from vfbandits.evaluate.target import split_log, target_probabilities, teach
from vfbandits.evaluate.terms import Terms, influences
from vfbandits.evaluate.weights import effective_size
from vfbandits.simulate.engine import Engine, HereEngine

# IPS pays for the level of rewards, and the interval of DM leaves out the error of its model.
JUDGES = ("dr", "sndr", "snips")
MIN_JUDGED = 100
_UNUSED = np.random.default_rng(0)  # no folds are dealt: the reward model is fitted before
_UNTOLD = {"space": "auto", "n_draws": 1_000}  # parameters that are named only where they differ


@dataclass(frozen=True, slots=True)
class Candidate:
    """A policy, and the settings of the bandit that matter for what it earns.

    >>> import vfbandits as vfb
    >>> Candidate(vfb.LinTS(posterior_scale=0.1), floor=0.05).label
    'lints posterior_scale=0.1 floor=0.05'
    """

    policy: Policy
    floor: float = 0.0
    ridge: float = 1.0
    discount: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what no bandit takes."""
        share(self.floor, "floor")
        LearnerSettings(ridge=self.ridge, discount=self.discount)

    @property
    def is_certain(self) -> bool:
        """Whether it plays one arm with probability 1."""
        policy = self.policy
        is_random = isinstance(policy, LinTS | InverseGap) or (
            isinstance(policy, LinGreedy) and policy.epsilon > 0.0
        )
        return not is_random and self.floor == 0.0

    @property
    def parameters(self) -> dict[str, object]:
        """The policy's parameters, its ``name`` first, as ``PATCH /v1/config`` takes them."""
        return {
            key: value
            for key, value in describe(self.policy).items()
            if key not in _UNTOLD or value != _UNTOLD[key]
        }

    @property
    def label(self) -> str:
        """The policy and what differs from the defaults, in one line."""
        named = self.parameters
        words = [
            str(named.pop("name")),
            *(f"{key}={_spell(value)}" for key, value in named.items()),
        ]
        usual = Candidate(self.policy)
        for key in ("floor", "ridge", "discount"):
            value = getattr(self, key)
            words += [f"{key}={value:g}"] if value != getattr(usual, key) else []
        return " ".join(words)


def _spell(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def make_grid(
    policies: Mapping[str, Mapping[str, Sequence[object]]],
    *,
    floors: Sequence[float] = (0.0,),
    ridges: Sequence[float] = (1.0,),
    discounts: Sequence[float] = (1.0,),
) -> list[Candidate]:
    """Every policy with every combination of its parameters, with every floor and so on.

    >>> grid = make_grid({"linucb": {"beta": [0.1, 1.0]}, "lingreedy": {}}, floors=[0.0, 0.1])
    >>> len(grid), grid[0].label
    (6, 'linucb beta=0.1')
    """
    made = []
    for name, parameters in policies.items():
        for values in product(*parameters.values()):
            policy = make_policy(name, dict(zip(parameters, values, strict=True)))
            made += [
                Candidate(policy, floor, ridge, discount)
                for floor, ridge, discount in product(floors, ridges, discounts)
            ]
    twice = {one.label for one in made if made.count(one) > 1}
    if twice or not made:
        raise SettingError(
            f"candidates must differ, at least one, got {', '.join(sorted(twice)) or 'none'}"
            f"{' twice' if twice else ''}"
        )
    return made


@dataclass(frozen=True, slots=True)
class TuneSettings:
    """How candidates are judged.

    ``intercept`` (not in layout "per_arm") and ``seed`` are a bandit's.  ``evaluation`` has the
    part of the log to learn from, the clipping, the reward model and, of its bootstrap, the
    confidence and the number of resamples.
    """

    estimator: str = "dr"
    intercept: bool = True
    seed: int = 0
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)

    def __post_init__(self) -> None:
        """Refuse estimators whose differences would mislead."""
        if self.estimator not in JUDGES:
            raise SettingError(
                f"estimator must be one of {', '.join(JUDGES)}, got {self.estimator!r}"
            )
        if self.evaluation.train_share <= 0.0:
            raise SettingError(
                f"train_share must be above 0, got {self.evaluation.train_share}: candidates that "
                "have learnt nothing cannot be compared"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Judgement:
    """What the held-out rounds say of one candidate.

    ``explores`` is the fraction of decisions that are not the greedy ones of what was learnt.
    """

    columns: Matrix = field(repr=False)
    explores: float
    effective_size: float
    doubts: tuple[str, ...] = ()


class Keeps(Protocol):
    """Judgements from an earlier run, and where new ones go."""

    def load(self, candidate: Candidate) -> Judgement | None:
        """The saved judgement, if there is one."""
        ...

    def save(self, candidate: Candidate, judgement: Judgement) -> None:
        """Keep it."""
        ...


@dataclass(frozen=True, slots=True)
class Rated:
    """A candidate with its verdict.

    Attributes
    ----------
    value, low, high
        Reward per round, and an interval; those of all candidates hold simultaneously.
    gain, gain_low, gain_high
        The same of the difference to what the log earned on the same rounds.
    behind, behind_low, behind_high
        The same of the difference to the highest estimate; there is no interval where the two
        differ in too few rounds.
    p_value, in_set
        Of "it is the best", and whether it may be.
    """

    candidate: Candidate
    value: float
    low: float
    high: float
    gain: float
    gain_low: float
    gain_high: float
    behind: float
    behind_low: float | None
    behind_high: float | None
    p_value: float
    in_set: bool
    explores: float
    effective_size: float
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tuning:
    """All candidates, the best estimate first; ``n_judged`` rounds were held out."""

    rated: tuple[Rated, ...]
    settings: TuneSettings
    n_learnt: int
    n_judged: int
    logging_value: float

    @property
    def best(self) -> Rated:
        """The one with the highest estimate; it is in the set."""
        return self.rated[0]

    @property
    def in_set(self) -> tuple[Rated, ...]:
        """Those that may be the best."""
        return tuple(one for one in self.rated if one.in_set)


Learnt: TypeAlias = tuple[float, float]  # ridge and discount


def tune(
    log: LoggedBandit,
    candidates: Sequence[Candidate],
    *,
    rng: np.random.Generator,
    settings: TuneSettings | None = None,
    engine: Engine | None = None,
    keeps: Keeps | None = None,
    on_candidate: Callable[[int, int], None] | None = None,
) -> Tuning:
    """Judge candidates on a log; each is a task of ``engine``.

    ``keeps`` has what an interrupted run has judged.  ``on_candidate(done, total)`` is called
    before the first and after each.

    >>> import vfbandits as vfb
    >>> rng = np.random.default_rng(0)
    >>> users, arms = rng.standard_normal((800, 1)), rng.integers(2, size=800)
    >>> log = LoggedBandit.of(users, arms, rewards=users[:, 0] * (1 - 2 * arms),
    ...                       probabilities=np.full(800, 0.5), arms=["tea", "milk"])
    >>> grid = make_grid({"lingreedy": {"epsilon": [0.0, 0.2, 0.5]}})
    >>> tuning = tune(log, grid, rng=rng)
    >>> [one.candidate.label for one in tuning.in_set]
    ['lingreedy epsilon=0']
    """
    settings = settings or TuneSettings()
    folds, resamples = rng.spawn(2)
    first, rest = split_log(log, train_share=settings.evaluation.train_share)
    if first is None or len(rest) < MIN_JUDGED:
        raise SettingError(
            f"tuning needs rounds to learn from and {MIN_JUDGED} held out, got {len(log)} in all"
        )
    runner = engine or HereEngine()
    done = {} if keeps is None else _kept(keeps, candidates)
    to_do = [one for one in candidates if one not in done]
    if on_candidate is not None:
        on_candidate(len(done), len(candidates))
    if to_do:
        wanted = sorted({(one.ridge, one.discount) for one in to_do})
        bandits = partial(_learn, first, rest, settings)
        learnt = {wanted[place]: made for place, made in runner.run(bandits, wanted)}
        modelled = None
        if settings.estimator in MODELLED:
            modelled = settings.evaluation.model.predict(rest, folds)
        judge = partial(_judge, rest, learnt, modelled, settings)
        for place, judgement in runner.run(judge, to_do):
            done[to_do[place]] = judgement
            if keeps is not None:
                keeps.save(to_do[place], judgement)
            if on_candidate is not None:
                on_candidate(len(done), len(candidates))
    return _rate(candidates, done, rest, settings, resamples, n_learnt=len(first))


def _kept(keeps: Keeps, candidates: Sequence[Candidate]) -> dict[Candidate, Judgement]:
    found = ((one, keeps.load(one)) for one in candidates)
    return {one: judgement for one, judgement in found if judgement is not None}


def _learn(
    first: LoggedBandit, rest: LoggedBandit, settings: TuneSettings, learnt: Learnt
) -> tuple[Bandit, Indices]:
    """A bandit that has learnt from the first rounds, and its greedy choices in the others."""
    ridge, discount = learnt
    features = first.arm_features
    bandit = Bandit(
        LinGreedy(),
        dim=first.dim,
        layout=first.layout,
        arm_dim=None if features is None else features.shape[-1],
        intercept=settings.intercept and first.layout != "per_arm",
        ridge=ridge,
        discount=discount,
        seed=settings.seed,
    )
    teach(bandit, first)
    return bandit, np.asarray(target_probabilities(bandit, rest).argmax(axis=1))


def _judge(
    rest: LoggedBandit,
    learnt: Mapping[Learnt, tuple[Bandit, Indices]],
    modelled: Matrix | None,
    settings: TuneSettings,
    candidate: Candidate,
) -> Judgement:
    bandit, greedy = learnt[candidate.ridge, candidate.discount]
    bandit = bandit.copy()
    bandit.policy, bandit.floor = candidate.policy, candidate.floor
    probabilities = target_probabilities(bandit, rest)
    target = FrozenTarget(
        rest, probabilities, settings=settings.evaluation, rng=_UNUSED, modelled=modelled
    )
    return Judgement(
        target.terms(settings.estimator).columns,
        float(1.0 - probabilities[np.arange(len(rest)), greedy].mean()),
        effective_size(target.weights),
        target.doubts(settings.estimator),
    )


def _rate(
    candidates: Sequence[Candidate],
    done: Mapping[Candidate, Judgement],
    rest: LoggedBandit,
    settings: TuneSettings,
    rng: np.random.Generator,
    *,
    n_learnt: int,
) -> Tuning:
    judged = [done[one] for one in candidates]
    terms = [Terms(*one.columns.T) for one in judged]
    over = [one.over(rest.rewards) for one in terms]
    bootstrap = settings.evaluation.bootstrap
    of_values, of_gains = (
        best_set(
            np.array([one.value for one in some]),
            np.column_stack([influences(one.columns) for one in some]),
            rng=rng,
            confidence=bootstrap.confidence,
            n_resamples=whole(bootstrap.n_resamples, "resamples"),
        )
        for some in (terms, over)
    )
    highest = max(one.value for one in terms)
    rated = []
    for place, candidate in enumerate(candidates):
        value, gain = terms[place].value, over[place].value
        low, high = _around(value, of_values.margins[place])
        gain_low, gain_high = _around(gain, of_gains.margins[place])
        is_known = not np.isnan(of_values.margins_behind[place])
        behind = _around(value - highest, of_values.margins_behind[place])
        rated.append(
            Rated(
                candidate,
                value=value,
                low=low,
                high=high,
                gain=gain,
                gain_low=gain_low,
                gain_high=gain_high,
                behind=value - highest,
                behind_low=behind[0] if is_known else None,
                behind_high=behind[1] if is_known else None,
                p_value=float(of_values.p_values[place]),
                in_set=bool(of_values.keep[place]),
                explores=judged[place].explores,
                effective_size=judged[place].effective_size,
                doubts=judged[place].doubts,
            )
        )
    rated.sort(key=lambda one: -one.value)
    return Tuning(tuple(rated), settings, n_learnt, len(rest), rest.value)


def _around(value: float, margin: float) -> tuple[float, float]:
    return value - float(margin), value + float(margin)


def as_patch(candidate: Candidate, *, with_floor: bool) -> dict[str, object]:
    """The body of ``PATCH /v1/config`` that applies a candidate to a campaign.

    >>> import vfbandits as vfb
    >>> as_patch(Candidate(vfb.LinUCB(beta=0.3), floor=0.05), with_floor=True)
    {'policy': {'name': 'linucb', 'beta': 0.3}, 'floor': 0.05}
    """
    patch: dict[str, object] = {"policy": candidate.parameters}
    return {**patch, "floor": candidate.floor} if with_floor else patch
