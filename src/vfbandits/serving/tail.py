"""A model that follows the journal of another process.

Snapshot and records are read as a restart would read them, so at the same position the model here
equals the writer's, bit for bit.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import islice

from vfbandits.campaign.events import Event
from vfbandits.campaign.machine import Campaign
from vfbandits.campaign.model import Model
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import JournalError, RecordError
from vfbandits.journal.base import JournalReader
from vfbandits.journal.repair import readable_end
from vfbandits.telemetry.supervised import Supervised, Supervisor

EVENTS_PER_BATCH = 1_000
LOOK_EVERY_S = 0.05
RETRY_S = 0.5


class Tail:
    """Follows one journal; opening it reads all records so far.

    Attributes
    ----------
    campaign
        The campaign as of the records read so far; another object after a new start.
    failing
        Why the journal cannot be read now; None while it can.
    on_events
        Called with each batch of records that is applied while the tail follows.
    """

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self.failing: str | None = None
        self.on_events: Callable[[Sequence[tuple[int, Event]]], None] = _nobody
        self._caught_up = time.monotonic()
        self._waiters: list[asyncio.Event] = []
        self._task: Supervised | None = None
        self._settings: CampaignSettings | None = None
        self._begin()
        while self._apply(self._read()):
            pass

    @property
    def model(self) -> Model:
        """The model as of the records read so far."""
        return self.campaign.model

    def begin_with(self, settings: CampaignSettings) -> None:
        """Use these settings unless the journal has changed them."""
        self._settings = settings
        self.campaign.begin_with(settings)

    def start(self, supervisor: Supervisor | None = None, *, name: str = "tail") -> None:
        """Start to follow, in a background task of this name."""
        watching = Supervisor() if supervisor is None else supervisor
        self._task = watching.start(name, self._follow_for_ever)

    async def stop(self) -> None:
        """Stop following, and close the journal."""
        if self._task is not None:
            await self._task.stop()
        await asyncio.to_thread(self._reader.close)

    async def follow(self) -> int:
        """Apply the next records; returns how many there were, 0 at the end."""
        began = time.monotonic()
        read = await asyncio.to_thread(self._read)
        count = self._apply(read)
        if count < EVENTS_PER_BATCH:
            self._caught_up = began
        if count:
            self._wake()
            self.on_events(read)
        return count

    @property
    def lag_s(self) -> float:
        """Seconds since the model was at the end of the journal."""
        return time.monotonic() - self._caught_up

    async def read_end(self, n_events: int) -> list[tuple[int, Event]]:
        """The last records that were applied, as far as they are kept.

        Damaged records are left out: a snapshot may cover them.
        """
        position = self.model.position

        def read() -> list[tuple[int, Event]]:
            events = readable_end(self._reader, after=max(0, position - n_events))
            return [one for one in events if one[0] <= position]

        return await asyncio.to_thread(read)

    async def until(self, is_so: Callable[[Model], bool], *, timeout_s: float) -> bool:
        """Wait until the model satisfies ``is_so``; False if it did not in time."""
        changed = asyncio.Event()
        self._waiters.append(changed)
        try:
            async with asyncio.timeout(timeout_s):
                while not is_so(self.model):
                    changed.clear()
                    await changed.wait()
        except TimeoutError:
            return is_so(self.model)
        finally:
            self._waiters.remove(changed)
        return True

    async def _follow_for_ever(self) -> None:
        if not self._fits:  # the task died in the middle of a record
            await self._begin_again()
        while True:
            try:
                if not await self.follow():
                    await asyncio.sleep(LOOK_EVERY_S)
                self.failing = None
            except JournalError as error:
                self.failing = str(error)
                await asyncio.sleep(RETRY_S)
                await self._begin_again()

    def _begin(self) -> None:
        latest = self._reader.latest_snapshot()
        if latest is None:
            raise JournalError("wanted a snapshot to begin with, got a journal that has none yet")
        model = Model.restore(*latest)
        bandit = model.bandit
        first = self._settings or CampaignSettings(bandit.policy, bandit.floor)
        self.campaign, self._fits = Campaign(model, first), True

    async def _begin_again(self) -> None:
        """Begin from a snapshot if the journal no longer has the next record."""
        position = self.model.position
        try:
            compacted_to, last = await asyncio.to_thread(
                lambda: (self._reader.compacted_to, self._reader.last_position)
            )
            if not compacted_to <= position <= last or not self._fits:
                await asyncio.to_thread(self._begin)
                self._wake()
        except JournalError as error:
            self.failing = str(error)

    def _wake(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    def _read(self) -> list[tuple[int, Event]]:
        return list(islice(self._reader.read(after=self.model.position), EVENTS_PER_BATCH))

    def _apply(self, events: list[tuple[int, Event]]) -> int:
        self._fits = False  # until all of them are applied
        for position, event in events:
            wanted = self.model.position + 1
            if position != wanted:
                raise RecordError(f"wanted record {wanted} of the journal, got {position}", wanted)
            self.campaign.replay(position, event)
        self._fits = True
        return len(events)


def _nobody(events: Sequence[tuple[int, Event]]) -> None:
    """Do nothing: there is no observer."""
