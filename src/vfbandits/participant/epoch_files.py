"""The files that a participant or a helper keeps for each epoch, and their removal."""

from pathlib import Path

from vfbandits.errors import ConfigError
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.journal.shares.secrets import write_secrets
from vfbandits.participant.share_helper import HelpingServer, helped
from vfbandits.protocol.held_share import HeldShare
from vfbandits.protocol.instructions import DropShares, StoreSecrets, StoreShare
from vfbandits.protocol.messages import Help, Helped
from vfbandits.telemetry.log import Logger


class EpochFiles:
    """Shares with their rosters and, on secret shares, what was dealt to ``name``.

    ``server`` is server B, if this is the helper.  It may still be in the epoch before the one in
    force: the share and the roster of that epoch are kept until it has handed over.
    """

    def __init__(
        self,
        name: str,
        shares: ShareFiles,
        *,
        dealt: Path | None = None,
        server: HelpingServer | None = None,
    ) -> None:
        self._name = name
        self._shares = shares
        self._dealt = dealt
        self._server = server
        self._in_force = 0

    def carry_out(self, todo: StoreShare | StoreSecrets | DropShares) -> None:
        """Carry out an instruction of the role; it is on the disk when this returns."""
        if isinstance(todo, StoreShare):
            self._shares.store(todo.epoch, HeldShare(todo.share, todo.roster))
        elif isinstance(todo, DropShares):
            self._in_force = todo.keep
            self._drop()
        elif self._dealt is None:
            raise ConfigError("wanted a folder for what is dealt, got none")
        else:
            write_secrets(self._dealt, self._name, todo.envelope, epoch=todo.epoch)

    async def help(self, message: Help, *, log: Logger) -> Helped:
        """The answer of server B, if this is the helper."""
        server = self._server
        if server is None:
            return Helped(message.number, problem="this participant is not the helper")
        epoch = server.epoch
        reply = await helped(server, message, log=log)
        if server.epoch != epoch:
            self._drop()
        return reply

    def _drop(self) -> None:
        behind = () if self._server is None else (self._server.epoch,)
        self._shares.keep_only(self._in_force, *behind)
