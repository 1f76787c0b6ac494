"""Events looked up by their ids, many at a time: those asked for meanwhile go into one query."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from vfbandits.core.decision import DecisionId
from vfbandits.store.events import Event
from vfbandits.store.journal import Journal


class GroupLookup:
    """Finds events in a journal, from one event loop."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._wanted: dict[DecisionId, list[asyncio.Future[list[tuple[int, Event]]]]] = {}
        self._task: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lookup")

    async def find(self, decision_id: DecisionId) -> list[tuple[int, Event]]:
        """All durable events of this id, with their positions."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[list[tuple[int, Event]]] = loop.create_future()
        self._wanted.setdefault(decision_id, []).append(waiter)
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._look_up_all())
        return await waiter

    async def close(self) -> None:
        """Wait for what is under way and stop the thread."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        await asyncio.to_thread(self._thread.shutdown)

    async def _look_up_all(self) -> None:
        loop = asyncio.get_running_loop()
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            try:
                found = await loop.run_in_executor(
                    self._thread, self._journal.find_many, tuple(wanted)
                )
            except Exception as error:  # noqa: BLE001  (whoever waits is told, whatever it was)
                for waiter in _still_waiting(wanted):
                    waiter.set_exception(error)
                continue
            for decision_id, waiters in wanted.items():
                for waiter in waiters:
                    if not waiter.done():
                        waiter.set_result(found.get(decision_id, []))


def _still_waiting(
    wanted: dict[DecisionId, list[asyncio.Future[list[tuple[int, Event]]]]],
) -> list[asyncio.Future[list[tuple[int, Event]]]]:
    return [waiter for waiters in wanted.values() for waiter in waiters if not waiter.done()]
