"""Where the arm enters: three ways in which contexts meet arms, one learner for each."""

from vfbandits.core.layout.base import Learner, Round
from vfbandits.core.layout.build import LAYOUTS, MAX_ARMS, LayoutSettings, build_learner

__all__ = ["LAYOUTS", "MAX_ARMS", "LayoutSettings", "Learner", "Round", "build_learner"]
