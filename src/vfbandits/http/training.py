"""A trainer: it stands by until it may lead, leads until it cannot, and then stands by again."""

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec.structs import replace

from vfbandits.campaign.settings import DEFAULT
from vfbandits.errors import ConfigError, JournalError, JournalLossError
from vfbandits.http.front import SwappableApp
from vfbandits.http.serve import ServedActive, journal_key_of
from vfbandits.journal.inbox.open import open_watch
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.journal.open import open_reader
from vfbandits.journal.postgres.leader_watch import LeaderWatch
from vfbandits.serving.build import Active, build_active
from vfbandits.serving.tail import Tail
from vfbandits.serving.warm_up import warm_up_all
from vfbandits.settings.http import HttpSettings
from vfbandits.settings.services import ActiveSettings
from vfbandits.telemetry.log import Logger
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.transport.event_loop import signalled

STANDING_BY = "standing by"
LOOK_EVERY_S = 0.1
MAX_FAILURES = 30
PAUSE_S = 0.5


class Trainer:
    """One process that may lead; ``run`` it."""

    def __init__(self, settings: ActiveSettings, http: HttpSettings, log: Logger) -> None:
        self._settings = settings
        self._http = http
        self._log = log
        self._tail: Tail | None = None
        self._epoch = -1
        self._told = ""
        self._n_failures = 0

    async def run(self, on_ready: Callable[[int], None]) -> None:
        """Serve until SIGTERM or SIGINT; ``on_ready`` hears the port of the probes."""
        self._supervisor = Supervisor(self._log)
        self._supervisor.watch_loop()
        self._front = SwappableApp(self._http, reason=STANDING_BY, supervisor=self._supervisor)
        on_ready(await self._front.start())
        self._stopping = asyncio.create_task(self._supervisor.until(signalled()))
        self._watch = await self._open_watch()
        try:
            while not self._stopping.done():
                if await self._stand_by():
                    await self._lead()
            await self._stopping  # which raises if the process could not go on
        finally:
            self._stopping.cancel()
            await self._front.stop()
            await asyncio.to_thread(self._watch.close)
        self._log.info("stopped")

    async def _open_watch(self) -> LeaderWatch:
        while True:
            try:
                return await asyncio.to_thread(open_watch, self._settings.journal_target)
            except JournalError as error:
                if self._stopping.done():
                    raise
                self._tell("database_away", str(error))
                await self._pause(PAUSE_S)

    # --- standing by --------------------------------------------------------------------------

    async def _stand_by(self) -> bool:
        """Wait until nobody leads; False if we are to stop before.

        The log is followed meanwhile: so it is known in time whether we could lead.
        """
        self._log.info("standing_by")
        try:
            while not self._stopping.done():
                try:
                    is_led = await asyncio.to_thread(self._watch.is_led)
                    await self._follow()
                    self._told = ""
                except JournalError as error:
                    self._tell("database_away", str(error))
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
                return  # nobody has ever led: there is no log
            self._tail = await asyncio.to_thread(self._open_tail)
            await warm_up_all([self._tail.model.bandit], self._log)
        while await self._tail.follow():
            pass

    def _open_tail(self) -> Tail:
        key, target = journal_key_of(self._settings), self._settings.journal_target
        reader = open_reader(target, name=DEFAULT, key=key)
        try:
            return Tail(reader)
        except BaseException:
            reader.close()
            raise

    def _refuse_without_share(self) -> None:
        """What was learnt behind a share needs that very share: a new one would not fit."""
        if self._tail is None or not self._tail.model.position:
            return
        epoch, folder = self._tail.model.epoch, self._settings.place.state
        if epoch == self._epoch:
            return
        if epoch not in ShareFiles(folder / "shares").load():
            raise ConfigError(
                f"state: wanted the folder with the share of mask epoch {epoch}, which all "
                f"trainers have in common, got {folder}, which has none"
            )
        self._epoch = epoch

    # --- leading ------------------------------------------------------------------------------

    async def _lead(self) -> None:
        active = await self._take_over()
        if active is None:
            return
        served = ServedActive(self._settings, self._http, active, self._log, front=self._front)
        try:
            term = await asyncio.to_thread(self._watch.term)
            port, _ = await served.start()
        except ConfigError as error:
            # The last leader may need a moment to notice that it is one no more.
            await self._fail("cannot_listen", error)
            return
        self._n_failures = 0
        self._settings = replace(self._settings, accept_loss=None)  # a later loss is another one
        self._log.info("leading", term=term, port=port)
        reason = await self._until_over(served, term)
        self._front.wait(STANDING_BY)
        await served.stop()
        if reason:
            self._log.error("leadership_lost", reason=reason)
            await self._pause(PAUSE_S)

    async def _take_over(self) -> Active | None:
        try:
            build = partial(build_active, self._settings, self._log, self._supervisor)
            active = await asyncio.to_thread(build)
        except JournalLossError:
            raise  # only an operator can say what is to become of it
        except JournalError as error:
            # Another one was quicker, or the database went away.
            await self._fail("cannot_lead", error)
            return None
        return active

    async def _until_over(self, served: ServedActive, term: int) -> str:
        """Wait until we are to stop, or must; returns why we must."""
        while not self._stopping.done():
            await self._pause(LOOK_EVERY_S)
            reasons = served.reasons_to_give_way()
            if reasons:
                return reasons[0]
            try:
                now = await asyncio.to_thread(self._watch.term)
            except JournalError as error:
                self._tell("database_away", str(error))
                continue
            if now != term:
                return f"the log has another leader since term {now}, this was term {term}"
        return ""

    async def _fail(self, event: str, error: ConfigError | JournalError) -> None:
        self._n_failures += 1
        if self._n_failures >= MAX_FAILURES:
            raise error
        self._tell(event, str(error))
        await self._pause(PAUSE_S)

    def _tell(self, event: str, reason: str) -> None:
        """Log what keeps us from leading, once."""
        if reason != self._told:
            self._told = reason
            self._log.warning(event, reason=reason)

    async def _pause(self, seconds: float) -> None:
        await asyncio.wait({self._stopping}, timeout=seconds)
