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
