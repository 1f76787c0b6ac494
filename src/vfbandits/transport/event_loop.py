"""The event loop that services run on."""

import asyncio
import signal
import sys
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")
# How long the loop keeps the interpreter from a thread that waits for it, as at a commit.
TURN_S = 0.0005


def run(main: Coroutine[object, object, T]) -> T:
    """Run a service to its end: on uvloop, or on asyncio's own loop where that is not installed.

    A decision passes through the loop a dozen times at each participant, and uvloop makes a pass
    cheaper.  It does not exist for Windows.

    >>> async def answer():
    ...     return 42
    >>> run(answer())
    42
    """
    sys.setswitchinterval(TURN_S)
    try:
        import uvloop  # noqa: PLC0415  (an extra, and not for every system)
    except ModuleNotFoundError:
        return asyncio.run(main)
    return uvloop.run(main)


async def signalled() -> None:
    """Return when the process is asked to end."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    await asked.wait()
