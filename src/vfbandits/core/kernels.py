"""Whether compiled loops are there, and for which sizes they are the faster way.

The environment variable ``VFBANDITS_COMPILED=0`` turns them off; without numba they are off.
"""

import os
from importlib.util import find_spec
from types import ModuleType

SMALL_UPDATE = 256
SMALL_PRODUCT = 4_096


def _load() -> ModuleType | None:
    if os.environ.get("VFBANDITS_COMPILED", "1") == "0" or find_spec("numba") is None:
        return None
    from vfbandits.core import compiled  # noqa: PLC0415  (numba takes long to import)

    return compiled


compiled = _load()
