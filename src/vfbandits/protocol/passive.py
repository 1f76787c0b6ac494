"""The passive participant: masks its rows when asked, and only then.

A state machine without a clock, a socket or a file.  Asks are answered one after the other, in
the order in which they came: under pads a later message is never sent before an earlier one.
Answers are in answers.py; this file decides behind which share.
"""

from collections.abc import Mapping, Sequence

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.noise import VectorNoise
from vfbandits.core.shares.dealer import ParticipantSecrets
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.errors import (
    ConfigError,
    EnvelopeError,
    HandshakeError,
    IdentityError,
    MaskError,
    SecureSumError,
    WireError,
)
from vfbandits.protocol.answers import Answers
from vfbandits.protocol.envelope import read_label
from vfbandits.protocol.handshake import hello_of, refuse_unspoken
from vfbandits.protocol.held_share import (
    HeldEpochs,
    HeldShare,
    Membership,
    Secrets,
    refuse_unless_epoch,
)
from vfbandits.protocol.instructions import (
    PassiveInstruction,
    Reply,
    StoreSecrets,
)
from vfbandits.protocol.messages import (
    Abort,
    Ask,
    Commit,
    Declined,
    Hello,
    Help,
    Helped,
    Ping,
    Pong,
    Prepare,
    Refused,
    ToPassive,
    Welcome,
)
from vfbandits.protocol.once import OnceOnly
from vfbandits.protocol.pseudonyms import Pseudonyms, pseudonyms_between
from vfbandits.protocol.roster import PSEUDONYMS, Roster
from vfbandits.protocol.slots import Slots
from vfbandits.protocol.trial import trial_block
from vfbandits.protocol.version import SPOKEN, Versions

__all__ = ["HeldShare", "PassiveParticipant", "Secrets"]

NOT_PREPARED = (
    ConfigError,
    EnvelopeError,
    HandshakeError,
    IdentityError,
    MaskError,
    SecureSumError,
)


class PassiveParticipant:
    """The role.

    ``held`` are the shares it has from before, by epoch; ``next_round`` is the first round under
    whose number it has certainly sent nothing yet.  ``spoken`` are the versions of the protocol
    that it speaks; ``noise`` is what is added to its rows before they come here, if anything.
    """

    def __init__(  # noqa: PLR0913  (what it knows from the start, by name)
        self,
        name: str,
        signed_roster: bytes,
        authority: EllipticCurvePublicKey,
        secrets: Secrets,
        *,
        held: Mapping[int, HeldShare] | None = None,
        next_round: int = 1,
        spoken: Versions = SPOKEN,
        noise: VectorNoise | None = None,
    ) -> None:
        self.name = name
        self.spoken = spoken
        self._noise = noise
        self._protocol = 0
        self._authority = authority
        self._secrets = secrets
        self._held = HeldEpochs(name, held or {})
        self._sharing: dict[int, ParticipantSecrets | None] = {**secrets.sharing}
        self._answers: Answers | None = None
        self._adopt(self._membership(signed_roster), next_round)

    def __repr__(self) -> str:
        """Name and epoch; keys and shares stay inside."""
        return f"PassiveParticipant({self.name!r}, epoch={self.epoch})"

    def _membership(self, signed_roster: bytes) -> Membership:
        return Membership.of(self.name, signed_roster, self._authority, self._secrets.sealing_key)

    def _adopt(self, place: Membership, next_round: int) -> None:
        self._place = place
        self._next_round = next_round
        self._once: OnceOnly | None = None
        self._slots: Slots | None = None
        self._pseudonyms: Pseudonyms | None = None
        roster, key = place.roster, self._secrets.sealing_key
        if roster.terms.aggregation == "secure":
            self._once = OnceOnly(self.name, roster, key, next_round=next_round)
        if roster.terms.users == PSEUDONYMS:
            self._pseudonyms = pseudonyms_between(roster, self.name, roster.active.name, key)

    @property
    def roster(self) -> Roster:
        """The roster in use."""
        return self._place.roster

    @property
    def pseudonyms(self) -> Pseudonyms | None:
        """The names by which it is asked for users; None if that is by their ids."""
        return self._pseudonyms

    @property
    def epoch(self) -> int:
        """The mask epoch in force, or 0 before it is welcomed."""
        return 0 if self._answers is None else self._answers.epoch

    @property
    def protocol(self) -> int:
        """The version of the protocol that the stream speaks, or 0 before it is welcomed."""
        return self._protocol

    @property
    def is_welcome(self) -> bool:
        """Whether the active participant has agreed to its terms."""
        return self._answers is not None

    @property
    def next_round(self) -> int:
        """The first round under whose number it has certainly sent nothing yet."""
        used = self._once or self._slots
        return self._next_round if used is None else used.next_round

    def hello(self) -> Hello:
        """The first message of a stream."""
        self._answers = None
        self._protocol = 0
        self._held.begin_stream()
        place, epochs = self._place, tuple(self._held)
        return hello_of(
            place.member,
            place.roster,
            epochs=epochs,
            next_round=self.next_round,
            versions=self.spoken,
            noise=self._noise,
        )

    def hear(self, message: ToPassive) -> list[PassiveInstruction]:  # noqa: PLR0911  (each kind)
        """Handle a message of the active participant."""
        answers = self._answers
        if isinstance(message, Ask) and answers is not None:
            return self._hear_ask(answers, message)
        if isinstance(message, Welcome):
            return self._hear_welcome(message)
        if isinstance(message, Refused):
            raise HandshakeError(f"the active participant refused: {message.reason}")
        if answers is None:
            raise WireError(f"wanted a welcome first, got {type(message).__name__}")
        if isinstance(message, Ping):
            return [Reply(Pong(message.number))]
        if isinstance(message, Prepare):
            return self._hear_prepare(answers, message)
        if isinstance(message, Commit):
            return self._enter(message.epoch)
        if isinstance(message, Abort):
            aborted = self._held.abort(message, epoch=self.epoch)
            self._drop_secrets()
            return [*aborted]
        rules = self.roster.terms.shares
        if isinstance(message, Help) and rules is not None and rules.helper == self.name:
            return [self._hear_help(message)]
        raise WireError(f"wanted a message to a passive participant, got {type(message).__name__}")

    def _hear_help(self, message: Help) -> Help | Reply:
        problem = "" if self._slots is None else self._slots.problem_with_opening(message.data)
        return Reply(Helped(message.number, problem=problem)) if problem else message

    # --- rows ---------------------------------------------------------------------------------

    def _hear_ask(self, answers: Answers, ask: Ask) -> list[PassiveInstruction]:
        if ask.epoch <= answers.epoch or ask.epoch not in self._held:
            return [answers.hear(ask)]
        # The commit was lost on the way.
        return [*self._enter(ask.epoch), *self.hear(ask)]

    def answer(
        self,
        ask: Ask,
        block: PlainBlock,
        *,
        absent: Sequence[int] = (),
        users: Sequence[str] | None = None,
    ) -> list[PassiveInstruction]:
        """Mask the rows that ``Fetch`` asked for and send them.

        Rows at the places ``absent`` are zeros: it does not know these users, or does not answer
        about them.  Where users are asked for by pseudonyms, ``users`` are their ids.
        """
        if self._answers is None:
            reason = f"the stream on which {self.name!r} was asked has ended"
            return [Reply(Declined(ask.round, ask.attempt, "stale_epoch", reason))]
        return self._answers.answer(ask, block, absent=absent, users=users)

    def trial_rows(self, ask: Ask) -> PlainBlock:
        """The public test rows that an ask of a trial wants."""
        return trial_block(ask.trial, self.name, ask.keys(), width=self._place.member.width)

    def no_features(self, ask: Ask, reason: str) -> list[PassiveInstruction]:
        """Decline an ask: the features cannot be read now."""
        return [Reply(Declined(ask.round, ask.attempt, "features", reason))]

    def over_limits(self, ask: Ask, reason: str) -> list[PassiveInstruction]:
        """Decline an ask: its owner's limits allow no answer."""
        return [Reply(Declined(ask.round, ask.attempt, "limits", reason))]

    # --- epochs -------------------------------------------------------------------------------

    def _hear_welcome(self, message: Welcome) -> list[PassiveInstruction]:
        refuse_unspoken(message, name=self.name, spoken=self.spoken)
        done = self._enter(message.epoch) if self._held else self._enter_first(message)
        self._protocol = message.protocol
        return done

    def _enter_first(self, message: Welcome) -> list[PassiveInstruction]:
        """Obtain the share of the first epoch, and go on with it."""
        refuse_unless_epoch(message.epoch)
        held = self._place.obtain_share(message.epoch, message.envelope, self._secrets)
        stored = self._held.begin_with(message.epoch, held)
        return [stored, *self._enter(message.epoch)]

    def _enter(self, epoch: int) -> list[PassiveInstruction]:
        """Masks of ``epoch`` hold from now on."""
        if epoch == self.epoch:
            return []
        held = self._held[epoch]
        if held.signed_roster != self._place.signed_roster:
            self._adopt(self._membership(held.signed_roster), self.next_round)
        self._slots = self._slots_of(held, epoch)
        self._answers = Answers(
            self._place, held.share, epoch=epoch, once=self._once, slots=self._slots
        )
        entered = self._held.enter(epoch)
        self._drop_secrets()
        return [*entered]

    def _drop_secrets(self) -> None:
        """Keep the secrets of those epochs only whose shares are kept."""
        self._sharing = {at: held for at, held in self._sharing.items() if at in self._held}

    def _slots_of(self, held: HeldShare, epoch: int) -> Slots | None:
        """Words of both servers that cover its rows, above its own rotation."""
        roster = self.roster
        if roster.terms.shares is None:
            return None
        secrets = self._sharing.get(epoch)
        if secrets is None:
            raise HandshakeError(
                f"protection 'shares' needs the secrets that the dealer made for {self.name!r} in "
                f"epoch {epoch}, got none"
            )
        sharing = SharingParticipant(
            roster.split.names.index(self.name),
            terms=roster.share_terms,
            secrets=secrets,
            rotation=held.share,
        )
        return Slots(self.name, sharing, next_round=self.next_round)

    def _hear_prepare(self, answers: Answers, message: Prepare) -> list[PassiveInstruction]:
        declined = self._held.problem_with(message, epoch=self.epoch, next_round=self.next_round)
        if declined is not None:
            return [Reply(declined)]
        try:
            place = self._membership(message.roster) if message.roster else self._place
            place.refuse_unless_next(self.roster)
            problem = answers.problem_with_senders(message.senders, after=place.roster)
            if problem:
                raise SecureSumError(problem)
            if place.roster.terms.shares is not None:
                return self._prepare_secrets(answers, message, place)
            held = place.obtain_share(message.epoch, message.envelope, self._secrets)
            deal = (
                read_label(message.envelope, roster=place.roster).deal if message.envelope else ""
            )
            sent = answers.part(message, held.share, roster=place.roster.digest, deal=deal)
        except NOT_PREPARED as error:
            return [Reply(Declined(message.round, 0, "bad_request", str(error)))]
        return [self._held.prepare(message, held), *sent]

    def _prepare_secrets(
        self, answers: Answers, message: Prepare, place: Membership
    ) -> list[PassiveInstruction]:
        """On secret shares its rotation stays, and the dealer has made new secrets."""
        dealt = place.next_secrets(message, self._secrets.sealing_key)
        held = HeldShare(self._held[self.epoch].share, place.signed_roster)
        sent = answers.part(message, held.share, roster=place.roster.digest, deal=dealt.deal)
        self._sharing[message.epoch] = dealt.participant
        stored = StoreSecrets(message.epoch, message.envelope)
        return [stored, self._held.prepare(message, held), *sent]
