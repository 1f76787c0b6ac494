"""How to explore: arm statistics become scores.  A policy never sees a context."""

from vfbandits.core.policy.base import Policy, Scored
from vfbandits.core.policy.greedy import LinGreedy
from vfbandits.core.policy.inverse_gap import InverseGap
from vfbandits.core.policy.lints import LinTS
from vfbandits.core.policy.linucb import OFUL, LinUCB

__all__ = ["OFUL", "InverseGap", "LinGreedy", "LinTS", "LinUCB", "Policy", "Scored"]
