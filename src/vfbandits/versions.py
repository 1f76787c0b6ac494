"""How a document of an older version is read: by small steps, each to the next version.

Only the newest version of a format is written.  For every older version that was released, a step
(an *upcaster*) turns what was read into what the next version would have had.
"""

from collections.abc import Callable, Container, Mapping
from typing import TypeVar

from vfbandits.errors import VFBanditsError

T = TypeVar("T")


def upcast(
    value: T,
    version: int,
    *,
    newest: int,
    upcasters: Mapping[int, Callable[[T], T]],
    what: str,
    error: type[VFBanditsError],
) -> T:
    """``value``, which was read in ``version``, as the newest version has it.

    >>> steps = {1: lambda text: text + "!"}
    >>> upcast("tea", 1, newest=2, upcasters=steps, what="a note", error=VFBanditsError)
    'tea!'
    >>> upcast("tea", 3, newest=2, upcasters=steps, what="a note", error=VFBanditsError)
    Traceback (most recent call last):
    vfbandits.errors.VFBanditsError: a note must have a version from 1 to 2, got 3: it was written by a newer vfbandits, upgrade this one
    """  # noqa: E501  (an error is one line)
    refuse_unknown_version(version, newest=newest, upcasters=upcasters, what=what, error=error)
    for number in range(version, newest):
        value = upcasters[number](value)
    return value


def refuse_unknown_version(
    version: int,
    *,
    newest: int,
    upcasters: Container[int],
    what: str,
    error: type[VFBanditsError],
) -> None:
    """Raise for a version that cannot be read; the message names those that can."""
    if version == newest or (version < newest and version in upcasters):
        return
    oldest = newest
    while oldest - 1 in upcasters:
        oldest -= 1
    known = f"version {newest}" if oldest == newest else f"a version from {oldest} to {newest}"
    newer = ": it was written by a newer vfbandits, upgrade this one"
    raise error(f"{what} must have {known}, got {version}{newer if version > newest else ''}")
