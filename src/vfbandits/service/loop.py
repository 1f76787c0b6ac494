"""The event loop of the services: uvloop where it is installed, for it spends less per message."""

import asyncio
from collections.abc import Callable, Coroutine
from importlib.util import find_spec


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    """What makes the loop of a service."""
    if find_spec("uvloop") is None:
        return asyncio.new_event_loop
    import uvloop  # noqa: PLC0415  (not on every platform)

    return uvloop.new_event_loop


def run_service(service: Coroutine[object, object, None]) -> None:
    """Run a service to its end."""
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(service)
