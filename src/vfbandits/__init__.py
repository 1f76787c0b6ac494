"""Vertical federated contextual bandits: learn on masked contexts, decide as if on plain ones."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vfbandits.core.bandit import Bandit
    from vfbandits.core.decision import Decision
    from vfbandits.core.mask import MaskShare, sample_mask, split_columns
    from vfbandits.core.move import drop, embed, rotate
    from vfbandits.core.noise import VectorNoise
    from vfbandits.core.policy import OFUL, InverseGap, LinGreedy, LinTS, LinUCB, Policy
    from vfbandits.core.round import Federation
    from vfbandits.errors import VFBanditsError
    from vfbandits.journal.snapshot import load, save
    from vfbandits.simulate.parity import ParityReport, parity
    from vfbandits.simulate.play import play
    from vfbandits.simulate.result import StudyResult

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
    "StudyResult",
    "VFBanditsError",
    "VectorNoise",
    "drop",
    "embed",
    "load",
    "parity",
    "play",
    "rotate",
    "sample_mask",
    "save",
    "split_columns",
]

# Imported when they are first used: SciPy alone takes longer than all that `vfb --help` does.
_HOMES = {
    "vfbandits.core.bandit": ("Bandit",),
    "vfbandits.core.decision": ("Decision",),
    "vfbandits.core.mask": ("MaskShare", "sample_mask", "split_columns"),
    "vfbandits.core.move": ("drop", "embed", "rotate"),
    "vfbandits.core.noise": ("VectorNoise",),
    "vfbandits.core.policy": ("OFUL", "InverseGap", "LinGreedy", "LinTS", "LinUCB", "Policy"),
    "vfbandits.core.round": ("Federation",),
    "vfbandits.errors": ("VFBanditsError",),
    "vfbandits.simulate.parity": ("ParityReport", "parity"),
    "vfbandits.simulate.play": ("play",),
    "vfbandits.simulate.result": ("StudyResult",),
    "vfbandits.journal.snapshot": ("load", "save"),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(home), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
