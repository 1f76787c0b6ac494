"""Whether compiled loops are there, and for which sizes they are the faster way.

The environment variable ``VFBANDITS_COMPILED=0`` turns them off; without numba they are off.
numba takes a second to import, so that happens with the first bandit and not with the package.
"""

import os
from importlib.util import find_spec
from types import ModuleType

SMALL_UPDATE = 256
SMALL_PRODUCT = 4_096

compiled: ModuleType | None = None
_ring: ModuleType | None = None
_covariance: ModuleType | None = None
_root: ModuleType | None = None


def load() -> ModuleType | None:
    """The compiled loops, from now on also as ``compiled``; None where there are none."""
    global compiled  # noqa: PLW0603  (loaded once for all)
    if compiled is None and _are_wanted():
        from vfbandits.core.kernels import bandit as module  # noqa: PLC0415  (needs numba)

        compiled = module
    return compiled


def load_ring() -> ModuleType | None:
    """As ``load``, for the loops modulo 2^128, which few federations need."""
    global _ring  # noqa: PLW0603  (loaded once for all)
    if _ring is None and _are_wanted():
        from vfbandits.core.kernels import ring  # noqa: PLC0415  (needs numba)

        _ring = ring
    return _ring


def load_covariance() -> ModuleType | None:
    """As ``load_ring``, for the steps of the covariance form."""
    global _covariance  # noqa: PLW0603  (loaded once for all)
    if _covariance is None and load_ring() is not None:
        from vfbandits.core.kernels import covariance  # noqa: PLC0415  (needs numba)

        _covariance = covariance
    return _covariance


def load_root() -> ModuleType | None:
    """As ``load_ring``, for the steps of the root form and comparisons."""
    global _root  # noqa: PLW0603  (loaded once for all)
    if _root is None and load_ring() is not None:
        from vfbandits.core.kernels import root  # noqa: PLC0415  (needs numba)

        _root = root
    return _root


def _are_wanted() -> bool:
    return os.environ.get("VFBANDITS_COMPILED", "1") != "0" and find_spec("numba") is not None
