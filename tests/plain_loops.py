"""Arithmetic on secret shares as it is without numba."""

import pytest

from vfbandits.core import kernels


def turn_off_loops(patch: pytest.MonkeyPatch) -> None:
    """No compiled loop is found from here on."""
    for load in ("load_ring", "load_root", "load_covariance"):
        patch.setattr(kernels, load, lambda: None)
