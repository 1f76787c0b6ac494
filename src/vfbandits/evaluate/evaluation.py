"""All estimates of one target on one log.

Two kinds of target, and every estimate says which it is about:

* *frozen*: taught by the first part of the log, then left as it is; its probabilities weigh the
  rest (ips, snips, dm, dr, sndr);
* *learning*: starts untaught and learns while it walks through the whole log (replay).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.errors import SettingError
from vfbandits.evaluate.bootstrap import Bootstrap
from vfbandits.evaluate.diagnosis import (
    MODEL_ERROR,
    doubts_about_model,
    doubts_about_replay,
    doubts_about_weights,
)
from vfbandits.evaluate.estimators import dm, dr, ips, sndr, snips
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.evaluate.player import MakeAgent
from vfbandits.evaluate.replay import replay
from vfbandits.evaluate.reward_model import RewardModel
from vfbandits.evaluate.target import split_log, target_probabilities, teach
from vfbandits.evaluate.terms import Terms
from vfbandits.evaluate.weights import effective_size, importance_weights
from vfbandits.simulate.engine import Engine, HereEngine, OnStep

FROZEN = ("ips", "snips", "dm", "dr", "sndr")
ESTIMATORS = ("replay", *FROZEN)
MODELLED = {"dm", "dr", "sndr"}
Maybe: TypeAlias = float | None
Numbers: TypeAlias = tuple[Maybe, Maybe, Maybe, Maybe, Maybe, Maybe]


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """How much of the log teaches the frozen target, and how estimates are made."""

    train_share: float = 0.5
    clip: float | None = None
    model: RewardModel = field(default_factory=RewardModel)
    bootstrap: Bootstrap = field(default_factory=Bootstrap)


@dataclass(frozen=True, slots=True)
class Estimate:
    """One estimator's answer.

    Attributes
    ----------
    target
        "frozen" or "learning"; see the module.
    value, low, high, standard_error
        Expected reward per round, its confidence interval and delta-method error; None where no
        round counts.
    logging_value, relative
        Mean reward of the logging policy on the same rounds, and value over that (None if 0).
    gain_low, gain_high
        Confidence interval of value − logging_value, rounds resampled for both together.
    n_rounds, effective_size
        Rounds that were used, and how many equally weighted ones would be as informative; for
        replay the matched ones, for dm all.
    doubts
        Reasons not to trust the value, as sentences.
    """

    estimator: str
    target: str
    value: float | None
    low: float | None
    high: float | None
    standard_error: float | None
    gain_low: float | None
    gain_high: float | None
    logging_value: float
    n_rounds: int
    effective_size: float
    doubts: tuple[str, ...] = ()

    @property
    def relative(self) -> float | None:
        """Value over the logging policy's own on the same rounds; above 1 the target is better."""
        if self.value is None or self.logging_value == 0.0:
            return None
        return self.value / self.logging_value


def evaluate(
    log: LoggedBandit,
    make_agent: MakeAgent,
    *,
    rng: np.random.Generator,
    estimators: Sequence[str] = ESTIMATORS,
    settings: EvaluationSettings | None = None,
    engine: Engine | None = None,
    on_step: OnStep | None = None,
) -> list[Estimate]:
    """What the policy of ``make_agent`` would have earned per round, by each of ``estimators``.

    ``make_agent`` gives a new ``Bandit`` or ``Federation`` each time: one is frozen, one learns.
    They are two tasks of ``engine``, which unless it is this process needs an ``AgentFactory``.
    ``rng`` deals out folds and resamples; the policy's own randomness is the agent's.  ``on_step``
    is called with the number of rounds that were replayed.
    """
    settings = settings or EvaluationSettings()
    _refuse_unknown(estimators)
    streams = dict(zip(ESTIMATORS, rng.spawn(len(ESTIMATORS)), strict=True))
    folds = rng.spawn(1)[0]
    parts = ([one for one in estimators if (one in FROZEN) == kind] for kind in (True, False))
    tasks = [_Task(tuple(names), folds, streams) for names in parts if names]
    function = partial(_estimate, log, make_agent, settings)
    found: dict[str, Estimate] = {}
    for _, some in (engine or HereEngine()).run(function, tasks, on_step=on_step):
        found |= {one.estimator: one for one in some}
    return [found[name] for name in estimators]


@dataclass(frozen=True, slots=True)
class _Task:
    """Estimators of one target, with the randomness of each."""

    names: tuple[str, ...]
    folds: np.random.Generator
    streams: dict[str, np.random.Generator]


def _estimate(
    log: LoggedBandit, make_agent: MakeAgent, settings: EvaluationSettings, task: _Task
) -> list[Estimate]:
    if task.names == ("replay",):
        return [_replayed(log, make_agent, settings.bootstrap, task.streams["replay"])]
    first, rest = split_log(log, train_share=settings.train_share)
    agent = make_agent()
    if first is not None:
        teach(agent, first)
    probabilities = target_probabilities(agent, rest)
    judge = FrozenTarget(rest, probabilities, settings=settings, rng=task.folds)
    return [judge.estimate(name, task.streams[name]) for name in task.names]


class FrozenTarget:
    """A log, and a target that does not change: its probability of each arm, (n, n_arms).

    ``rng`` deals out the folds of the reward model, unless its predictions are given.
    """

    def __init__(
        self,
        log: LoggedBandit,
        probabilities: Matrix,
        *,
        settings: EvaluationSettings,
        rng: np.random.Generator,
        modelled: Matrix | None = None,
    ) -> None:
        self.log = log
        self.probabilities = probabilities
        self.settings = settings
        self.weights = importance_weights(log, probabilities, clip=settings.clip)
        self._rng = rng
        self._modelled = modelled

    @property
    def modelled(self) -> Matrix:
        """Cross-fitted rewards of all arms, (n, n_arms), worked out when first asked for."""
        if self._modelled is None:
            self._modelled = self.settings.model.predict(self.log, self._rng)
        return self._modelled

    def terms(self, name: str) -> Terms:
        """The estimator called ``name`` on this log."""
        log, weights = self.log, self.weights
        if name == "ips":
            return ips(weights, log.rewards)
        if name == "snips":
            return snips(weights, log.rewards)
        if name == "dm":
            return dm(self.probabilities, self.modelled)
        corrected = dr if name == "dr" else sndr
        return corrected(log, self.probabilities, self.modelled, weights)

    def doubts(self, name: str) -> tuple[str, ...]:
        """Reasons to distrust one estimator here."""
        log = self.log
        found: tuple[str, ...] = ()
        if name != "dm":
            found = doubts_about_weights(self.weights, log.rewards, clip=self.settings.clip)
        if name in MODELLED:
            unseen = self.modelled[np.arange(len(log)), log.chosen]
            found = (*found, *doubts_about_model(log.rewards, unseen))
        return (*found, MODEL_ERROR) if name == "dm" else found

    def estimate(self, name: str, rng: np.random.Generator) -> Estimate:
        """Value, intervals and doubts of one estimator."""
        weights: Vector = np.ones(len(self.log)) if name == "dm" else self.weights
        return Estimate(
            name,
            "frozen",
            *_numbers(self.terms(name), self.log, self.settings.bootstrap, rng),
            self.log.value,
            len(self.log),
            effective_size(weights),
            self.doubts(name),
        )


def _replayed(
    log: LoggedBandit,
    make_agent: MakeAgent,
    bootstrap: Bootstrap,
    rng: np.random.Generator,
) -> Estimate:
    done = replay(make_agent(), log)
    numbers: Numbers = (None, None, None, None, None, None)
    if done.n_matched:
        numbers = _numbers(done.terms, log, bootstrap, rng)
    size = float(done.n_matched)
    doubts = doubts_about_replay(done)
    return Estimate("replay", "learning", *numbers, log.value, len(log), size, doubts)


def _numbers(
    terms: Terms, log: LoggedBandit, bootstrap: Bootstrap, rng: np.random.Generator
) -> Numbers:
    interval = bootstrap.interval(terms, rng)
    gain = bootstrap.interval(terms.over(log.rewards), rng)
    return terms.value, *interval, terms.standard_error, *gain


def _refuse_unknown(estimators: Sequence[str]) -> None:
    unknown = [name for name in estimators if name not in ESTIMATORS]
    if unknown or not estimators or len(set(estimators)) != len(estimators):
        raise SettingError(
            f"estimators must be some of {', '.join(ESTIMATORS)}, each once, "
            f"got {', '.join(estimators) or 'none'}"
        )
