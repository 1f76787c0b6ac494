"""How many connections may be open: in all, and from one address.

Every connection takes a descriptor of the process, and so do the streams of passive participants,
the journal and files.  Some descriptors are kept back for those.
"""

import sys
from dataclasses import dataclass
from typing import Final

from vfbandits.errors import ConfigError
from vfbandits.settings.http import HttpSettings

MIN_RESERVED: Final = 64
MAX_RESERVED: Final = 1_024
MAX_DEFAULT: Final = 10_000
MIN_DESCRIPTORS: Final = 128


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How many connections may be open at a time."""

    total: int
    per_address: int


def connection_limits(http: HttpSettings, *, descriptors: int | None = None) -> ConnectionLimits:
    """The limits of the settings; 0 there is what fits the process's limit of descriptors.

    A quarter of the descriptors is kept back, 64 at least and 1,024 at most, and one address gets
    half of the connections.

    >>> connection_limits(HttpSettings("127.0.0.1:0"), descriptors=1_024)
    ConnectionLimits(total=768, per_address=384)
    """
    descriptors = descriptor_limit() if descriptors is None else descriptors
    if descriptors < MIN_DESCRIPTORS:
        raise ConfigError(
            f"[http]: wanted a limit of at least {MIN_DESCRIPTORS} open files (ulimit -n), "
            f"got {descriptors}"
        )
    reserved = min(max(MIN_RESERVED, descriptors // 4), MAX_RESERVED)
    total = http.max_connections or min(descriptors - reserved, MAX_DEFAULT)
    if total > descriptors - MIN_RESERVED:
        raise ConfigError(
            f"[http]: wanted max_connections of at most {descriptors - MIN_RESERVED}, since the "
            f"process may open {descriptors} files (ulimit -n) and {MIN_RESERVED} are kept back, "
            f"got {total}"
        )
    per_address = http.max_connections_per_address or max(1, total // 2)
    return ConnectionLimits(total, min(per_address, total))


def descriptor_limit() -> int:
    """How many files the process may have open (RLIMIT_NOFILE)."""
    if sys.platform == "win32":
        return MAX_DEFAULT + MAX_RESERVED
    import resource  # noqa: PLC0415  (not on every system)

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft
