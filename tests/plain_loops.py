"""Arithmetic on secret shares as it is without numba."""

import pytest

from vfbandits.core import kernels

# The plain loops send the same bytes, as shorter tests show.
needs_loops = pytest.mark.skipif(
    kernels.load_ring() is None, reason="without compiled loops this takes half a minute"
)


def fewer_if_plain(count: int) -> int:
    """A third of these rounds or examples where loops are not compiled: they take much longer."""
    return count if kernels.load_ring() is not None else count // 3


def turn_off_loops(patch: pytest.MonkeyPatch) -> None:
    """No compiled loop is found from here on."""
    for load in ("load_ring", "load_root", "load_covariance"):
        patch.setattr(kernels, load, lambda: None)
