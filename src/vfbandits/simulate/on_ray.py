"""The same tasks on a Ray cluster, at any address (extra ``ray``).

The function, with whatever data it carries, goes into the cluster's object store once; tasks are
small.  A task whose worker or node dies is run again elsewhere, which changes nothing: it is a pure
function.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from vfbandits.errors import SettingError
from vfbandits.simulate.engine import OnStep, Result, Task, in_one_thread

RETRIES = 10
CONNECT_TIMEOUT_S = 5.0


class RemoteCall(Protocol):
    """A remote function; the types of Ray lose those of the function."""

    def remote(self, *arguments: object) -> object:
        """Start a call somewhere; gives a reference to its result."""
        ...


class RayEngine:
    """Tasks on the cluster at ``address``; None starts a temporary one on this machine."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address

    def run(
        self,
        function: Callable[[Task], Result],
        tasks: Sequence[Task],
        *,
        on_step: OnStep | None = None,
    ) -> Iterator[tuple[int, Result]]:
        """Results as tasks finish; rounds within tasks are not counted over a network."""
        del on_step
        if self.address is not None:
            _refuse_unless_somebody_listens(self.address)
        try:
            import ray  # noqa: PLC0415  (an extra, and slow to import)
        except ImportError as error:
            raise SettingError(
                "the engine 'ray' needs the extra: pip install 'vfbandits[ray]'"
            ) from error
        ray.init(address=self.address, log_to_driver=False, logging_level="error")
        try:
            # A number of retries counts deaths of workers and nodes, not errors of the task.
            remote: RemoteCall = ray.remote(max_retries=RETRIES)(in_one_thread)
            stored = ray.put(function)
            pending = {remote.remote(stored, task): place for place, task in enumerate(tasks)}
            while pending:
                done, _ = ray.wait(list(pending), num_returns=1)
                for reference in done:
                    yield pending.pop(reference), ray.get(reference)
        finally:
            ray.shutdown()


def _refuse_unless_somebody_listens(address: str) -> None:
    """Ray itself would try for minutes, and then end the process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not colon or not port.isdigit():
        raise SettingError(f"a Ray address must be 'auto' or host:port, got {address!r}")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise SettingError(f"no Ray cluster answers at {address!r}: {error}") from error
