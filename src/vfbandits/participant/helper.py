"""The process of a helper without features: dials out, and answers as server B of secret shares."""

from collections import Counter

from vfbandits.participant.epoch_files import EpochFiles
from vfbandits.participant.link import ActiveLink
from vfbandits.participant.share_helper import HelpingServer
from vfbandits.protocol.helper import IndependentHelper
from vfbandits.protocol.instructions import LogLine, Reply
from vfbandits.protocol.messages import Help, Message
from vfbandits.settings.services import Backoff
from vfbandits.telemetry.log import Logger, log_line
from vfbandits.transport.channel import Dialer

ANSWERED, REFUSED = "answered", "refused"


class HelperService:
    """A role and server B, on a channel."""

    def __init__(
        self,
        role: IndependentHelper,
        dialer: Dialer,
        server: HelpingServer,
        *,
        epochs: EpochFiles,
        log: Logger,
        backoff: Backoff,
    ) -> None:
        self._role = role
        self._server = server
        self._epochs = epochs
        self._log = log
        self._link = ActiveLink(role, dialer, self._answer, log=log, backoff=backoff)
        self.counts: Counter[str] = Counter({ANSWERED: 0, REFUSED: 0})

    @property
    def epoch(self) -> int:
        """The mask epoch in force; 0 before the first welcome."""
        return self._role.epoch

    @property
    def window(self) -> int:
        """The number of the window of dealt words that is open."""
        return self._server.window

    @property
    def is_connected(self) -> bool:
        """Whether the active participant has welcomed it, on a link that is still open."""
        return not self._link.problem

    def problems(self) -> list[str]:
        """Why it cannot answer now; the texts name no host or file."""
        problems = [self._link.problem, self._server.problem]
        return [problem for problem in problems if problem]

    async def run(self) -> None:
        """Serve until ``stop``."""
        await self._link.run()
        await self._server.close()
        self._log.info("process_stopped", answered=self.counts[ANSWERED])

    def stop(self) -> None:
        """Finish the message that is being answered, then end."""
        self._link.stop()

    async def _answer(self, message: Message) -> list[Message]:
        replies: list[Message] = []
        for todo in self._role.hear(message):  # type: ignore[arg-type]  # it refuses others
            if isinstance(todo, Help):
                reply = await self._epochs.help(todo, log=self._log)
                self.counts[REFUSED if reply.problem else ANSWERED] += 1
                replies.append(reply)
            elif isinstance(todo, Reply):
                replies.append(todo.message)
            elif isinstance(todo, LogLine):
                log_line(self._log, todo.event, todo.facts)
            else:
                self._epochs.carry_out(todo)
        return replies
