"""A decision made aside is the one that would be made, and leaves no trace."""

import numpy as np
import pytest
from durables import parts

import vfbandits as vfb
from vfbandits.serving.standin import StandIn

POLICIES = {
    "linucb": vfb.LinUCB(beta=0.5),
    "arm": vfb.LinTS(posterior_scale=0.3, space="arm", n_draws=5),
    "parameter": vfb.LinTS(posterior_scale=0.3, space="parameter", n_draws=5),
    "greedy": vfb.LinGreedy(epsilon=0.5),
}
LAYOUTS = {
    "per_arm": ((4, 3), {}),
    "outer": ((3,), {"arm_features": np.eye(4, 2)}),
    "disjoint": ((3,), {}),
}


def play(bandit, layout, numbers):
    shape, more = LAYOUTS[layout]
    for number in numbers:
        contexts = np.random.default_rng(number).standard_normal(shape)
        name = f"e{number}"
        yield name, bandit.decide(contexts, arms=list("abcd"), decision_id=name, **more)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_decision_made_aside_is_the_same_and_leaves_no_trace(policy, layout):
    """Exact: state, form of the inverse, open decisions and counts are those from before."""
    more = {"arm_dim": 2} if layout == "outer" else {}
    options = {"dim": 3, "layout": layout, "seed": 1, "max_open": 3, "max_settled": 3, **more}
    aside, plain = (kind(POLICIES[policy], **options) for kind in (StandIn, vfb.Bandit))
    # A LinTS in parameter space has not been asked yet, so the states keep an inverse and no root.
    start = vfb.LinUCB()
    for bandit in (aside, plain):
        bandit.policy = start
        for name, _ in play(bandit, layout, range(12)):
            if not name.endswith(("9", "10", "11")):
                bandit.reward(name, 0.5)
        bandit.policy = POLICIES[policy]
    before = parts(aside)
    made = []
    for bandit in (aside, plain):
        bandit.draw_from(np.random.default_rng(7))
    for number in range(20, 24):
        with aside.aside():
            ((name, decision),) = play(aside, layout, [number])
            made.append(
                (decision.arm, decision.scores.tobytes(), aside.observation(name).x.tobytes())
            )
            assert aside.has_root is (policy == "parameter" and layout == "per_arm")
        assert parts(aside) == before
    wanted = [(decision.arm, decision.scores.tobytes(), plain.observation(name).x.tobytes())
              for name, decision in play(plain, layout, range(20, 24))]  # fmt: skip
    assert made == wanted


def test_an_error_leaves_no_trace_either():
    bandit = StandIn(vfb.LinUCB(), dim=2)
    before = parts(bandit)
    with pytest.raises(vfb.VFBanditsError), bandit.aside():
        bandit.decide(np.full((2, 2), np.nan), decision_id="b")
    assert parts(bandit) == before
