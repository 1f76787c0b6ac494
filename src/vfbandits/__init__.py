"""Vertical federated contextual bandits: learn on masked contexts, decide as if on plain ones."""

from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import Decision
from vfbandits.core.mask import MaskShare, sample_mask, split_columns
from vfbandits.core.move import drop, embed, rotate
from vfbandits.core.policy import OFUL, InverseGap, LinGreedy, LinTS, LinUCB, Policy
from vfbandits.core.round import Federation
from vfbandits.errors import VFBanditsError
from vfbandits.simulate.parity import ParityReport, parity
from vfbandits.store.snapshot import load, save

__all__ = [
    "OFUL",
    "Bandit",
    "Decision",
    "Federation",
    "InverseGap",
    "LinGreedy",
    "LinTS",
    "LinUCB",
    "MaskShare",
    "ParityReport",
    "Policy",
    "VFBanditsError",
    "drop",
    "embed",
    "load",
    "parity",
    "rotate",
    "sample_mask",
    "save",
    "split_columns",
]
