"""Compile the loops before there are tests: each of the workers would compile them for itself."""

from dataclasses import replace

from vfbandits.core.bandit import Bandit
from vfbandits.core.policy.linucb import LinUCB
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.core.shares.warm_up import warm_up_shares
from vfbandits.core.warm_up import warm_up

ROOT = ShareTerms((1, 1), max_arms=2, ridge=1.0, posterior_scale=0.1)
COVARIANCE = replace(ROOT, posterior_scale=0.0, reads="widths", beta=0.5)

if __name__ == "__main__":
    warm_up(Bandit(LinUCB(), dim=1))
    for terms in (ROOT, COVARIANCE):
        warm_up_shares(terms)
