"""Run every loop that a bandit needs once, before anybody waits for it.

Compiled loops are loaded (or, without a cache, compiled) when they are first called, and LAPACK
wrappers are imported: the first decision of a process would take hundreds of milliseconds.
"""

import numpy as np

from vfbandits.core.bandit import Bandit, BanditOptions
from vfbandits.core.policy.lints import LinTS
from vfbandits.core.policy.linucb import LinUCB
from vfbandits.core.shares.warm_up import warm_up_shares

FEW = 2


def warm_up(bandit: Bandit) -> None:
    """Decide and learn with small twins of ``bandit``, which itself is left alone.

    Settings may change its policy while it serves, so the loops of all shipped policies are run.
    They are the same for every width.
    """
    arm_dim = None if bandit.layout.arm_dim is None else FEW
    options: BanditOptions = {**bandit.options, "arm_dim": arm_dim, "floor": 0.0, "seed": 0}
    if bandit.slots is not None:
        warm_up_shares(bandit.slots.terms)
    for policy in (bandit.policy, LinUCB(), LinTS(space="arm"), LinTS(space="parameter")):
        _visit(Bandit(policy, dim=FEW, **options), n_arms=FEW + 1)


def _visit(bandit: Bandit, *, n_arms: int) -> None:
    layout = bandit.layout
    contexts = np.full((n_arms, bandit.dim) if layout.layout == "per_arm" else bandit.dim, 0.5)
    features = None if layout.arm_dim is None else np.full((n_arms, layout.arm_dim), 0.5)
    for _ in range(FEW):
        decision = bandit.decide(contexts, arms=range(n_arms), arm_features=features)
        decision.propensity.probabilities()
        bandit.reward(decision, 0.5)
    bandit.reward_many([bandit.decide(contexts, arms=range(n_arms), arm_features=features)], [0.5])
    for state in bandit.states.values():
        state.refactor()
