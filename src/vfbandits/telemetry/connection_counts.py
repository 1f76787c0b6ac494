"""Counts of connections, for metrics: open now, refused, or closed by the server."""

from dataclasses import dataclass, field
from typing import Final

# Before a connection was served.
REFUSED: Final = ("address", "total", "descriptors")
# After that.
CLOSED: Final = ("idle", "unfinished", "head_too_large", "malformed", "tls")


@dataclass(slots=True)
class ConnectionCounts:
    """Counts of one HTTP server; the event loop's thread writes them.

    Attributes
    ----------
    open
        Connections that are open now, those in a TLS handshake included.
    limit
        How many may be open at a time; 0 before the server listens.
    refused
        By reason: the limit of the "address" or the "total" was reached, or the process had no more
        "descriptors".
    closed
        By reason: "idle" without a valid key while others needed the place, "unfinished" (the
        request did not end, or its answer was not read, in time), "head_too_large" (431),
        "malformed" (400), or "tls" (the handshake failed).
    """

    open: int = 0
    limit: int = 0
    refused: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REFUSED, 0))
    closed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CLOSED, 0))
