"""What is no longer positive definite is an error and never a number."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import vfbandits as vfb
from vfbandits.core.inverse import InverseForm
from vfbandits.core.layout import LayoutSettings, build_learner
from vfbandits.core.reward import Observation
from vfbandits.core.root import RootForm
from vfbandits.core.settings import LearnerSettings
from vfbandits.errors import ArmError, ContextError, NumericalError


@pytest.mark.parametrize("form", [InverseForm, RootForm])
def test_a_matrix_that_is_not_positive_definite_has_no_inverse(form):
    with pytest.raises(NumericalError, match="positive definite"):
        form(2, 1.0).refactor(-np.eye(2))


def test_a_batch_on_a_broken_inverse_is_refused():
    form = InverseForm(2, 1.0)
    form.load(np.asfortranarray(-np.eye(2)))
    with pytest.raises(NumericalError, match="batch of 1 rewards"):
        form.update_many(np.array([[2.0, 0.0]]))


def test_a_square_root_serves_arm_space_as_well():
    inverse, root = InverseForm(3, 0.5), RootForm(3, 0.5)
    X = np.random.default_rng(0).standard_normal((3, 3))
    for x in X:
        inverse.update(x)
        root.update(x)
    assert_allclose(root.factor(X, 0.9), inverse.factor(X, 0.9), atol=1e-10)


def test_a_model_of_its_own_needs_an_arm():
    learner = build_learner(LayoutSettings(1, "disjoint"), LearnerSettings())
    with pytest.raises(ArmError, match="one arm at a time"):
        learner.learn(Observation(np.ones(1)), 1.0)


def test_a_batch_names_the_owner_of_a_nan_and_passes_over_who_is_missing():
    federation = vfb.Federation(vfb.LinUCB(), widths={"a": 1, "b": 1, "c": 1})
    blocks = {"a": np.ones((2, 1, 1)), "b": None, "c": np.full((2, 1, 1), np.nan)}
    with pytest.raises(ContextError, match="block of 'c' must be finite"):
        federation.decide_many(blocks)
    assert federation.bandit.open_decisions == ()


def test_an_error_that_is_nobody_s_block_stays_what_it_is():
    outer = {"layout": "outer", "arm_dim": 1}
    federation = vfb.Federation(vfb.LinUCB(), widths={"a": 1, "b": 1}, **outer)
    bad = {"arm_features": [[np.nan]]}
    with pytest.raises(ContextError, match="arm_features must be finite"):
        federation.decide({"a": [1.0], "b": [1.0]}, **bad)
    with pytest.raises(ContextError, match="arm_features must be finite"):
        federation.decide_many({"a": [[1.0]], "b": [[1.0]]}, **bad)
