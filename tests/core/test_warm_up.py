"""After a warm-up no decision and no reward loads or compiles a loop."""

import json
import subprocess
import sys

import pytest

from vfbandits.core import kernels

pytestmark = pytest.mark.skipif(
    kernels.load() is None, reason="numba (extra 'fast') is off or missing"
)

SCRIPT = """
import json, sys
import numpy as np
import vfbandits as vfb
from vfbandits.core import kernels
from vfbandits.core.warm_up import warm_up

options = json.loads(sys.argv[1])
bandit = vfb.Bandit(vfb.LinUCB(), dim=7, seed=1, **options)
loops = kernels.load()

def loaded():
    names = [name for name in dir(loops) if hasattr(getattr(loops, name), "signatures")]
    return {name: len(getattr(loops, name).signatures) for name in names}

before = loaded()
warm_up(bandit)
warm = loaded()
assert bandit.n_decisions == 0
policies = [vfb.LinUCB(0.5), vfb.LinUCB(vfb.OFUL(noise=0.1)), vfb.LinTS(), vfb.LinGreedy(0.1),
            vfb.InverseGap(), vfb.LinTS(space="parameter"), vfb.LinTS(space="arm")]
for policy in policies:
    bandit.policy = policy
    for n_arms in (2, 30):
        shape = 7 if "layout" in options else (n_arms, 7)
        features = np.ones((n_arms, options["arm_dim"])) if "arm_dim" in options else None
        decision = bandit.decide(np.ones(shape), arms=range(n_arms), arm_features=features)
        decision.probability
        bandit.reward(decision, 1.0)
print(json.dumps({"before": before, "warm": warm, "after": loaded()}))
"""


@pytest.mark.parametrize("options", [{}, {"layout": "outer", "arm_dim": 3}, {"layout": "disjoint"}])
def test_no_loop_is_loaded_after_it(options):
    command = [sys.executable, "-c", SCRIPT, json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    seen = json.loads(done.stdout)
    assert not any(seen["before"].values())
    assert seen["warm"]["update"] >= 1
    assert seen["after"] == seen["warm"]


SHARED = """
import json, sys
import numpy as np
from vfbandits.core import kernels
from vfbandits.core.arrays import PlainBlock
from vfbandits.core.mask import MaskShare
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.offer import Offer
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.core.shares.warm_up import warm_up_shares

rules = json.loads(sys.argv[1])
terms = ShareTerms(widths=(3, 4), max_arms=5, ridge=2.0, bound=2.0, window=3, decisions=4, **rules)
loops = [kernels.load_ring(), kernels.load_root(), kernels.load_covariance()]

def loaded():
    named = {name: value for module in loops for name, value in vars(module).items()}
    return {name: len(v.signatures) for name, v in named.items() if hasattr(v, "signatures")}

warm_up_shares(terms)
warm = loaded()
local = LocalShares(terms, rotations=[MaskShare(np.eye(width)) for width in terms.widths])
for k, n_arms in enumerate((5, 4, 2, 3, 5)):
    n_rows = n_arms if terms.layout == "per_arm" else 1
    blocks = [PlainBlock(np.full((n_rows, width), 0.1 * k)) for width in terms.widths]
    outer = Offer(features=np.full((n_arms, terms.arm_dim), 0.2))
    offers = {"disjoint": Offer((1, *range(2, n_arms), 0), 5), "outer": outer}
    local.learn(local.pick(local.decide(blocks, offers.get(terms.layout)), 1), 0.5)
print(json.dumps({"warm": warm, "after": loaded()}))
"""
LINTS = {"posterior_scale": 0.3}
GREEDY = {"posterior_scale": 0.0, "reads": "means"}
LINUCB = {"posterior_scale": 0.0, "reads": "widths", "beta": 0.7}


@pytest.mark.parametrize(
    "rules",
    [
        LINTS,
        {**LINTS, "layout": "outer", "arm_dim": 3},
        LINUCB,
        {**LINUCB, "release": "statistics"},
        {**GREEDY, "layout": "disjoint", "intercept": True},
    ],
    ids=["root", "root, outer", "Lambda⁻¹", "Lambda⁻¹, statistics", "Lambda⁻¹, disjoint"],
)
def test_no_loop_of_secret_shares_is_loaded_after_it(rules):
    """In a service that would be the first decision, which took seconds more."""
    command = [sys.executable, "-c", SHARED, json.dumps(rules)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    seen = json.loads(done.stdout)
    assert sum(seen["warm"].values()) > 5
    assert seen["after"] == seen["warm"]
