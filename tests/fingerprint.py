"""All that an object holds, as something that can be compared."""

from collections import deque

import numpy as np


def fingerprint(thing):
    """A change anywhere in a thing of ours changes it."""
    if isinstance(thing, np.ndarray):
        return thing.shape, thing.tobytes()
    if isinstance(thing, dict):
        return tuple((fingerprint(key), fingerprint(value)) for key, value in thing.items())
    if isinstance(thing, list | tuple | deque):
        return tuple(fingerprint(part) for part in thing)
    if isinstance(thing, set | frozenset):
        return tuple(sorted(map(str, thing)))
    if not type(thing).__module__.startswith("vfbandits"):
        return thing if isinstance(thing, str | bytes | int | float | None) else id(thing)
    names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    names += vars(thing) if hasattr(thing, "__dict__") else []
    return tuple((name, fingerprint(getattr(thing, name, None))) for name in names)
