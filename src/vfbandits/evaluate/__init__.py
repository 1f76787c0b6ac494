"""Off-policy evaluation: what a policy would have earned, from a log that another one wrote."""

from vfbandits.evaluate.bootstrap import Bootstrap
from vfbandits.evaluate.evaluation import ESTIMATORS, Estimate, EvaluationSettings, evaluate
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.evaluate.read import LogFormat, read_log
from vfbandits.evaluate.replay import Replay, replay
from vfbandits.evaluate.reward_model import RewardModel
from vfbandits.evaluate.target import split_log, target_probabilities, teach
from vfbandits.evaluate.tune import Candidate, TuneSettings, Tuning, make_grid, tune

__all__ = [
    "ESTIMATORS",
    "Bootstrap",
    "Candidate",
    "Estimate",
    "EvaluationSettings",
    "LogFormat",
    "LoggedBandit",
    "Replay",
    "RewardModel",
    "TuneSettings",
    "Tuning",
    "evaluate",
    "make_grid",
    "read_log",
    "replay",
    "split_log",
    "target_probabilities",
    "teach",
    "tune",
]
