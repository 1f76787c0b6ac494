"""A trainer: it stands by until it may lead, leads until it cannot, and then stands by again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vfbandits.campaign.settings import DEFAULT
from vfbandits.errors import ConfigError, JournalError, JournalLossError
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.serving.journals import CampaignJournals
from vfbandits.serving.tail import Tail
from vfbandits.serving.warm_up import warm_up_all
from vfbandits.telemetry.log import Logger

if TYPE_CHECKING:
    from vfbandits.journal.postgres.leader_watch import LeaderWatch

STANDING_BY = "standing by"
LOOK_EVERY_S = 0.1
MAX_FAILURES = 30
PAUSE_S = 0.5


class Leadership(Protocol):
    """What a process runs while it leads (``build.Leading``)."""

    async def start(self) -> tuple[int, int | None]:
        """Begin to serve; returns the ports of gRPC and HTTP.  ConfigError if one is taken."""
        ...

    def reasons_to_give_way(self) -> list[str]:
        """Why this process should stop leading."""
        ...

    async def stop(self) -> None:
        """Finish open requests, then close everything."""
        ...


class Standby:
    """One process that may lead; ``run`` it until ``stopping`` is done.

    ``take_over`` opens the journals for writing; ``stand_by`` is called when leadership ends.
    """

    def __init__(
        self,
        state: Path,
        journals: CampaignJournals,
        *,
        take_over: Callable[[], Awaitable[Leadership]],
        stand_by: Callable[[], None],
        stopping: "asyncio.Task[None]",
        log: Logger,
    ) -> None:
        self._state = state
        self._journals = journals
        self._take_over = take_over
        self._on_standby = stand_by
        self._stopping = stopping
        self._log = log
        self._tail: Tail | None = None
        self._epoch = -1
        self._told = ""
        self._n_failures = 0

    async def run(self) -> None:
        """Stand by and lead in turn."""
        self._watch = await self._open_watch()
        try:
            while not self._stopping.done():
                if await self._stand_by():
                    await self._lead()
        finally:
            await asyncio.to_thread(self._watch.close)

    async def _open_watch(self) -> "LeaderWatch":
        while True:
            try:
                return await asyncio.to_thread(self._journals.open_watch)
            except JournalError as error:
                if self._stopping.done():
                    raise
                self._tell("database_unreachable", str(error))
                await self._pause(PAUSE_S)

    # --- standing by --------------------------------------------------------------------------

    async def _stand_by(self) -> bool:
        """Wait until no process leads; False if this one is to stop first.

        It follows the journal meanwhile, so that an obstacle to leading shows early.
        """
        self._log.info("standby_started")
        try:
            while not self._stopping.done():
                try:
                    is_led = await asyncio.to_thread(self._watch.is_led)
                    await self._follow()
                    self._told = ""
                except JournalError as error:
                    self._tell("database_unreachable", str(error))
                    await self._pause(PAUSE_S)
                    continue
                self._refuse_without_share()
                if not is_led:
                    return True
                await self._pause(LOOK_EVERY_S)
            return False
        finally:
            tail, self._tail = self._tail, None
            if tail is not None:
                await tail.stop()

    async def _follow(self) -> None:
        if self._tail is None:
            if not await asyncio.to_thread(self._watch.term):
                return  # no process has ever led: there is no journal
            self._tail = await asyncio.to_thread(self._open_tail)
            await warm_up_all([self._tail.model.bandit], self._log)
        while await self._tail.follow():
            pass

    def _open_tail(self) -> Tail:
        reader = self._journals.open_reader(DEFAULT)
        try:
            return Tail(reader)
        except BaseException:
            reader.close()
            raise

    def _refuse_without_share(self) -> None:
        """Refuse to lead without the mask share behind which the model has learnt."""
        if self._tail is None or not self._tail.model.position:
            return
        epoch, folder = self._tail.model.epoch, self._state
        if epoch == self._epoch:
            return
        if epoch not in ShareFiles(folder / "shares").load():
            raise ConfigError(
                f"state: wanted the folder with the share of mask epoch {epoch}, which all "
                f"trainers share, got {folder}, which has none"
            )
        self._epoch = epoch

    # --- leading ------------------------------------------------------------------------------

    async def _lead(self) -> None:
        try:
            leadership = await self._take_over()
        except JournalLossError:
            raise  # an operator must decide whether to accept it
        except JournalError as error:
            # Another process was faster, or the database is unreachable.
            await self._fail("leadership_refused", error)
            return
        try:
            term = await asyncio.to_thread(self._watch.term)
            port, _ = await leadership.start()
        except (ConfigError, JournalError) as error:
            await leadership.stop()
            # The last leader may not have noticed yet that it leads no longer.
            cannot = "listen_failed" if isinstance(error, ConfigError) else "leadership_refused"
            await self._fail(cannot, error)
            return
        self._n_failures = 0
        self._journals.accept_loss = None  # it covers one loss only
        self._log.info("leadership_taken", term=term, port=port)
        reason = await self._until_over(leadership, term)
        self._on_standby()
        await leadership.stop()
        if reason:
            self._log.error("leadership_lost", reason=reason)
            await self._pause(PAUSE_S)

    async def _until_over(self, leadership: Leadership, term: int) -> str:
        """Wait until this process is to stop leading; returns the reason if it must."""
        while not self._stopping.done():
            await self._pause(LOOK_EVERY_S)
            reasons = leadership.reasons_to_give_way()
            if reasons:
                return reasons[0]
            try:
                now = await asyncio.to_thread(self._watch.term)
            except JournalError as error:
                self._tell("database_unreachable", str(error))
                continue
            if now != term:
                return f"another process leads since term {now}, this one led term {term}"
        return ""

    async def _fail(self, event: str, error: ConfigError | JournalError) -> None:
        self._n_failures += 1
        if self._n_failures >= MAX_FAILURES:
            raise error
        self._tell(event, str(error))
        await self._pause(PAUSE_S)

    def _tell(self, event: str, reason: str) -> None:
        """Log an obstacle to leading, once."""
        if reason != self._told:
            self._told = reason
            self._log.warning(event, reason=reason)

    async def _pause(self, seconds: float) -> None:
        await asyncio.wait({self._stopping}, timeout=seconds)
