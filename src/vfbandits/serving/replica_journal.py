"""A replica's view of the journal: it writes to the inbox, and reads inbox and journal as one."""

import asyncio
from collections.abc import Sequence
from itertools import chain, islice

from vfbandits.campaign.events import Activated, Decided, Event, Reported
from vfbandits.campaign.history import History
from vfbandits.journal.base import JournalReader
from vfbandits.journal.inbox.base import Arrival, Inbox
from vfbandits.serving.concurrency import Batcher


class ReplicaJournal:
    """An inbox and the journal that it feeds; ``close`` closes both."""

    def __init__(self, inbox: Inbox, reader: JournalReader) -> None:
        self._inbox = inbox
        self._reader = reader
        self._n_put = 0
        self._putting: Batcher[tuple[Arrival, ...], list[Arrival]] = Batcher.in_thread(
            self._put, size_of=len
        )
        self._finding: Batcher[tuple[str, ...], list[list[Event]]] = Batcher.in_thread(
            self._find, size_of=len
        )

    @property
    def commits(self) -> tuple[int, int]:
        """Commits since it was opened, and the number of records in them."""
        return self._putting.n_calls, self._n_put

    async def put(self, event: Arrival) -> Arrival:
        """Make a record durable; returns the record under its key, which may be an earlier one."""
        (stored,) = await self.put_many([event])
        return stored

    async def put_many(self, events: Sequence[Arrival]) -> list[Arrival]:
        """Make records durable in one commit; returns for each the record under its key."""
        return await self._putting.submit(tuple(events))

    async def history(self, event_id: str) -> History | None:
        """An event by its records in journal and inbox; None if neither has one."""
        return History.of((await self.find_many([event_id]))[event_id])

    async def find_many(self, ids: Sequence[str]) -> dict[str, list[Event]]:
        """All records of several events, in journal and inbox; every id is in the answer."""
        return dict(zip(ids, await self._finding.submit(tuple(ids)), strict=True))

    async def close(self) -> None:
        """Finish open calls, then close inbox and journal."""
        await self._putting.close()
        await self._finding.close()
        await asyncio.to_thread(self._inbox.close)
        await asyncio.to_thread(self._reader.close)

    def _put(self, questions: Sequence[tuple[Arrival, ...]]) -> list[list[Arrival]]:
        """Put the records of all callers in one commit; each caller gets the results of its own."""
        stored = iter(self._inbox.put([*chain.from_iterable(questions)]))
        answers = [[*islice(stored, len(events))] for events in questions]
        self._n_put += sum(map(len, questions))
        return answers

    def _find(self, questions: Sequence[tuple[str, ...]]) -> list[list[list[Event]]]:
        ids = [*dict.fromkeys(chain.from_iterable(questions))]
        # The inbox first: a record that is taken out of it meanwhile is in the journal by then.
        waiting = self._inbox.find_many(ids)
        logged = self._reader.find_many(ids)
        found = {name: _merged([event for _, event in logged[name]], waiting[name]) for name in ids}
        return [[found[name] for name in names] for names in questions]


def _merged(logged: Sequence[Event], waiting: Sequence[Arrival]) -> list[Event]:
    """All records of one event, each once."""
    merged = list(logged)
    is_known = any(isinstance(event, Decided) for event in logged)
    is_active = any(isinstance(event, Activated) for event in logged)
    rewards = {event.reward_id for event in logged if hasattr(event, "reward_id")}
    for event in waiting:
        if isinstance(event, Decided):
            if not is_known:
                merged.append(event)
        elif isinstance(event, Activated):
            if not is_active:
                merged.append(event)
        elif isinstance(event, Reported) and event.reward_id not in rewards:
            merged.append(event)
    return merged
