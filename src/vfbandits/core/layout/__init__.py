"""Where the arm enters: three ways in which contexts meet arms, one learner for each."""

from vfbandits.core.layout.base import Learner, Round
from vfbandits.core.layout.build import LAYOUTS, LayoutSettings, build_learner

__all__ = ["LAYOUTS", "LayoutSettings", "Learner", "Round", "build_learner"]
