"""The helper of secret shares that is no participant: it has no features and is never asked.

A state machine without a clock, a socket or a file.  Its stream begins as a passive participant's
does; after the welcome it receives messages for server B, pings and changes of secrets and members,
and refuses everything else.  In a mask change it takes part as a participant does: it opens what
was dealt to it, keeps the roster that comes into force, and sends a part without rows.
"""

from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.core.mask import MaskShare
from vfbandits.errors import EnvelopeError, HandshakeError, IdentityError, WireError
from vfbandits.protocol.handshake import hello_of, refuse_unspoken
from vfbandits.protocol.held_share import HeldEpochs, HeldShare, Membership, refuse_unless_epoch
from vfbandits.protocol.instructions import HelperInstruction, Reply, StoreSecrets
from vfbandits.protocol.messages import (
    Abort,
    Answer,
    Commit,
    Declined,
    Hello,
    Help,
    Ping,
    Pong,
    Prepare,
    Refused,
    ToPassive,
    Welcome,
    change_keys,
    digest_of,
)
from vfbandits.protocol.roster import HELPER, Roster
from vfbandits.protocol.version import SPOKEN, Versions

NOT_PREPARED = (EnvelopeError, HandshakeError, IdentityError)


class IndependentHelper:
    """The role; ``held`` are the rosters that it has from before, by epoch.

    ``spoken`` are the versions of the protocol that it speaks.
    """

    def __init__(
        self,
        name: str,
        signed_roster: bytes,
        authority: EllipticCurvePublicKey,
        sealing_key: X25519PrivateKey,
        *,
        held: Mapping[int, HeldShare] | None = None,
        spoken: Versions = SPOKEN,
    ) -> None:
        self.name = name
        self.spoken = spoken
        self.epoch = 0
        self._authority = authority
        self._key = sealing_key
        self._held = HeldEpochs(name, held or {})
        self._place = self._membership(signed_roster)

    def __repr__(self) -> str:
        """Name and epoch; keys stay inside."""
        return f"IndependentHelper({self.name!r}, epoch={self.epoch})"

    def _membership(self, signed_roster: bytes) -> Membership:
        return Membership.of(self.name, signed_roster, self._authority, self._key, role=HELPER)

    @property
    def roster(self) -> Roster:
        """The roster in use."""
        return self._place.roster

    @property
    def is_welcome(self) -> bool:
        """Whether the active participant has agreed to its terms."""
        return self.epoch > 0

    def hello(self) -> Hello:
        """The first message of a stream; it has no share of a mask and answers no round."""
        self.epoch = 0
        self._held.begin_stream()
        place, epochs = self._place, tuple(self._held)
        return hello_of(
            place.member, place.roster, epochs=epochs, next_round=1, versions=self.spoken
        )

    def hear(self, message: ToPassive) -> list[HelperInstruction]:
        """Handle a message of the active participant."""
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
        if isinstance(message, Prepare):
            return self._hear_prepare(message)
        if isinstance(message, Commit):
            return self._enter(message.epoch)
        if isinstance(message, Abort):
            return [*self._held.abort(message, epoch=self.epoch)]
        raise WireError(
            f"wanted a message to a helper without features, got {type(message).__name__}"
        )

    def _hear_welcome(self, message: Welcome) -> list[HelperInstruction]:
        refuse_unspoken(message, name=self.name, spoken=self.spoken)
        if message.envelope:
            raise HandshakeError("wanted a welcome without a share of a mask, got one with a share")
        if self._held:
            return self._enter(message.epoch)
        refuse_unless_epoch(message.epoch)
        stored = self._held.begin_with(message.epoch, _without_columns(self._place))
        return [stored, *self._enter(message.epoch)]

    def _enter(self, epoch: int) -> list[HelperInstruction]:
        """Secrets and members of ``epoch`` hold from now on."""
        held = self._held[epoch]
        if epoch == self.epoch:
            return []
        if held.signed_roster != self._place.signed_roster:
            self._place = self._membership(held.signed_roster)
        self.epoch = epoch
        return [*self._held.enter(epoch)]

    def _hear_prepare(self, message: Prepare) -> list[HelperInstruction]:
        declined = self._held.problem_with(message, epoch=self.epoch, next_round=1)
        if declined is not None:
            return [Reply(declined)]
        try:
            place = self._membership(message.roster) if message.roster else self._place
            place.refuse_unless_next(self.roster)
            place.next_secrets(message, self._key)
        except NOT_PREPARED as error:
            return [Reply(Declined(message.round, 0, "bad_request", str(error)))]
        digest = digest_of(change_keys(message.epoch, message.senders))
        return [
            StoreSecrets(message.epoch, message.envelope),
            self._held.prepare(message, _without_columns(place)),
            Reply(_empty_part(message, digest)),
        ]


def _empty_part(message: Prepare, digest: bytes) -> Answer:
    """The part of a mask change without rows."""
    return Answer(
        round=message.round,
        attempt=0,
        epoch=message.epoch,
        digest=digest,
        n_rows=0,
        n_columns=0,
        values=b"",
    )


def _without_columns(place: Membership) -> HeldShare:
    """What it holds of an epoch: the roster, beside a share of no features."""
    return HeldShare(MaskShare(np.zeros((0, 0))), place.signed_roster)
