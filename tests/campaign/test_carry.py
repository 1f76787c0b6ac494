"""Decisions behind older masks, carried to those in force."""

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.campaign.carry import carried
from vfbandits.campaign.events import Decided, MasksChanged, Offered
from vfbandits.core.layout import LayoutSettings


@pytest.mark.parametrize("layout", ["per_arm", "outer"])
def test_the_contexts_of_all_arms_are_carried_as_the_chosen_one_is(layout):
    """Up to rounding; a participant of two features joins at the second change."""
    rng = np.random.default_rng(0)
    first, second = (np.linalg.qr(rng.standard_normal((n, 3)))[0] for n in (3, 5))
    moves = [MasksChanged(2, first), MasksChanged(3, second)]
    options = {"layout": layout, "intercept": layout == "outer"}
    rows = rng.standard_normal((2, 3) if layout == "per_arm" else (1, 3))
    features = rng.standard_normal((2, 2)) if layout == "outer" else None
    if layout == "outer":
        options["arm_dim"] = 2
        x = np.kron([1.0, *rows[0]], [1.0, *features[1]])
    else:
        x = rows[1]
    event = Decided("a", "milk", 1, x, epoch=1, offered=Offered(("tea", "milk"), rows, features))
    done = carried(event, moves, epoch=3, layout=LayoutSettings(dim=3, **options))
    wanted = rows @ first.T @ second.T
    np.testing.assert_allclose(done.offered.rows, wanted, atol=1e-12)
    assert (done.offered.arms, done.offered.arm_features is features) == (("tea", "milk"), True)
    bandit = vfb.Bandit(vfb.LinUCB(), dim=5, **options)
    contexts = done.offered.rows if layout == "per_arm" else done.offered.rows[0]
    again = bandit.propose(contexts, arm_features=features, shown=1, draws=rng)
    np.testing.assert_allclose(again.observation.x, done.x, atol=1e-12)


def test_a_decision_without_them_is_carried_without_them():
    event = Decided("a", "tea", 0, np.ones(3), epoch=1)
    done = carried(event, [MasksChanged(2, np.eye(3))], epoch=2, layout=LayoutSettings(dim=3))
    assert (done.offered, done.epoch) == (None, 2)
