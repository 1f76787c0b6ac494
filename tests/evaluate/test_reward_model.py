"""The cross-fitted ridge: against the normal equations, and blind to rotations."""

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.errors import SettingError
from vfbandits.evaluate import LoggedBandit, RewardModel

LAYOUTS = ["per_arm", "outer", "disjoint"]


def make_log(layout, rng, *, n=60, n_arms=3, dim=4, contexts=None):
    shape = (n, n_arms, dim) if layout == "per_arm" else (n, dim)
    return LoggedBandit.of(
        rng.standard_normal(shape) if contexts is None else contexts,
        rng.integers(n_arms, size=n),
        rewards=rng.standard_normal(n),
        probabilities=np.full(n, 1 / n_arms),
        arms=range(n_arms),
        layout=layout,
        arm_features=rng.standard_normal((n_arms, 2)) if layout == "outer" else None,
    )


def row(log, kind, number, arm):
    """The obvious features of one round and arm."""
    x = log.contexts[number, arm] if log.layout == "per_arm" else log.contexts[number]
    one = np.concatenate([[1.0], x])
    if kind == "arm":
        return np.kron(np.eye(log.n_arms)[arm], one)  # a block per arm is a model per arm
    if log.layout == "outer":
        return np.kron(one, np.concatenate([[1.0], log.arm_features[arm]]))
    return np.concatenate([one, np.eye(log.n_arms)[arm]]) if log.layout == "disjoint" else one


@pytest.mark.parametrize("kind", ["shared", "arm"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_fold_is_predicted_by_a_ridge_on_the_others(layout, kind):
    log = make_log(layout, np.random.default_rng(0))
    modelled = RewardModel(kind, ridge=0.7, n_folds=3).predict(log, np.random.default_rng(1))
    folds = np.random.default_rng(1).permutation(np.arange(60) % 3)
    for fold in range(3):
        train = np.flatnonzero(folds != fold)
        rows = np.array([row(log, kind, number, log.chosen[number]) for number in train])
        centre = log.rewards[train].mean()
        gram = rows.T @ rows + 0.7 * np.eye(rows.shape[1])
        theta = np.linalg.solve(gram, rows.T @ (log.rewards[train] - centre))
        for number in np.flatnonzero(folds == fold):
            wanted = [centre + row(log, kind, number, arm) @ theta for arm in range(3)]
            np.testing.assert_allclose(modelled[number], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["shared", "arm"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_masked_contexts_give_the_predictions_of_plain_ones(layout, kind):
    """Equal up to rounding: the active participant may fit the model on what it sees."""
    plain = make_log(layout, np.random.default_rng(0))
    rotated = plain.contexts @ vfb.sample_mask(4).T
    masked = make_log(layout, np.random.default_rng(0))
    masked = LoggedBandit.of(
        rotated,
        masked.chosen,
        rewards=masked.rewards,
        probabilities=masked.probabilities,
        arms=masked.arms,
        layout=layout,
        arm_features=masked.arm_features,
    )
    model = RewardModel(kind)
    predictions = [model.predict(log, np.random.default_rng(5)) for log in (plain, masked)]
    np.testing.assert_allclose(*predictions, rtol=1e-9, atol=1e-12)


def test_an_arm_without_rounds_gets_the_mean():
    log = make_log("disjoint", np.random.default_rng(0))
    never = LoggedBandit.of(
        log.contexts,
        np.zeros(60, dtype=int),
        rewards=np.full(60, 3.0),
        probabilities=np.ones(60),
        arms=["played", "never"],
    )
    assert RewardModel().predict(never, np.random.default_rng(0)) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"kind": "tree"}, "model must be one of auto, shared, arm, got 'tree'"),
        ({"ridge": 0.0}, "ridge must be a positive number, got 0.0"),
        ({"n_folds": 1}, "folds must be a whole number from 2, got 1"),
    ],
)
def test_what_is_no_model_is_refused(setting, message):
    with pytest.raises(SettingError, match=message):
        RewardModel(**setting)


def test_more_folds_than_rounds_are_refused():
    log = make_log("disjoint", np.random.default_rng(0), n=4)
    with pytest.raises(SettingError, match="5 folds need as many rounds, got 4"):
        RewardModel().predict(log, np.random.default_rng(0))
