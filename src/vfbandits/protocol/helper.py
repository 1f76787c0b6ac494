"""The helper of secret shares that is no participant: it has no features and is never asked.

A state machine without a clock, a socket or a file.  Its stream begins as a passive participant's
does; after the welcome it hears messages for server B and pings, and refuses everything else.
"""

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.errors import HandshakeError, WireError
from vfbandits.protocol.handshake import hello_of, refuse_unspoken
from vfbandits.protocol.held_share import Membership
from vfbandits.protocol.instructions import Note, Reply
from vfbandits.protocol.messages import Hello, Help, Ping, Pong, Refused, ToPassive, Welcome
from vfbandits.protocol.roster import HELPER, Roster
from vfbandits.protocol.version import SPOKEN, Versions


class IndependentHelper:
    """The role; ``spoken`` are the versions of the protocol that it speaks."""

    def __init__(
        self,
        name: str,
        signed_roster: bytes,
        authority: EllipticCurvePublicKey,
        sealing_key: X25519PrivateKey,
        *,
        spoken: Versions = SPOKEN,
    ) -> None:
        self.name = name
        self.spoken = spoken
        self.epoch = 0
        self._place = Membership.of(name, signed_roster, authority, sealing_key, role=HELPER)

    def __repr__(self) -> str:
        """Name and epoch; keys stay inside."""
        return f"IndependentHelper({self.name!r}, epoch={self.epoch})"

    @property
    def roster(self) -> Roster:
        """The roster that it goes by."""
        return self._place.roster

    @property
    def is_welcome(self) -> bool:
        """Whether the active participant has agreed to its terms."""
        return self.epoch > 0

    def hello(self) -> Hello:
        """The first message of a stream; it has no share of a mask and answers no round."""
        self.epoch = 0
        place = self._place
        return hello_of(place.member, place.roster, epochs=(), next_round=1, versions=self.spoken)

    def hear(self, message: ToPassive) -> list[Reply | Help | Note]:
        """A message of the active participant."""
        if isinstance(message, Welcome):
            return self._hear_welcome(message)
        if isinstance(message, Refused):
            raise HandshakeError(f"the active participant refused: {message.reason}")
        if not self.is_welcome:
            raise WireError(f"wanted a welcome first, got {type(message).__name__}")
        if isinstance(message, Ping):
            return [Reply(Pong(message.number))]
        if isinstance(message, Help):
            return [message]
        raise WireError(
            f"wanted a message to a helper without features, got {type(message).__name__}"
        )

    def _hear_welcome(self, message: Welcome) -> list[Reply | Help | Note]:
        refuse_unspoken(message, name=self.name, spoken=self.spoken)
        if message.epoch < 1:
            raise HandshakeError(f"epoch: wanted a number from 1, got {message.epoch}")
        if message.envelope:
            raise HandshakeError("wanted a welcome without a share of a mask, got one with a share")
        self.epoch = message.epoch
        return [Note("epoch_entered", {"epoch": self.epoch})]
