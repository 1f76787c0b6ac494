"""A member's shares of the masks, by epoch: how it obtains one, and what it keeps with it."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.core.mask import Entropy, MaskShare, sample_mask
from vfbandits.core.shares.dealer import ParticipantSecrets
from vfbandits.errors import EnvelopeError, HandshakeError, IdentityError
from vfbandits.protocol.dealt import DealOpener, PartySecrets, problem_with_parts
from vfbandits.protocol.envelope import open_share
from vfbandits.protocol.instructions import DropShares, LogLine, StoreShare
from vfbandits.protocol.messages import Abort, Declined, Prepare
from vfbandits.protocol.roster import PASSIVE, PSEUDONYMS, Member, Roster
from vfbandits.protocol.rows import is_number
from vfbandits.protocol.signed_roster import open_roster


@dataclass(frozen=True, slots=True, eq=False)
class Secrets:
    """What only this participant has.

    ``sharing`` is what the dealer gave it for secret shares, by epoch.
    """

    sealing_key: X25519PrivateKey = field(repr=False)
    entropy: Entropy = field(default=os.urandom, repr=False)
    sharing: Mapping[int, ParticipantSecrets] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class HeldShare:
    """A share of one epoch's mask, and the signed roster that goes with it.

    That of a helper without features has no columns.
    """

    share: MaskShare = field(repr=False)
    signed_roster: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Membership:
    """A participant's place in a roster that the federation's authority signed."""

    roster: Roster
    member: Member
    signed_roster: bytes = field(repr=False)

    @classmethod
    def of(
        cls,
        name: str,
        signed_roster: bytes,
        authority: EllipticCurvePublicKey,
        sealing_key: X25519PrivateKey,
        *,
        role: str = PASSIVE,
    ) -> "Membership":
        """Open the roster; IdentityError unless this member is in it, with this role and key."""
        roster = open_roster(signed_roster, authority)
        member = roster.find(name)
        if member is None or member.role != role:
            came = "no such member" if member is None else member.role
            wanted = "a passive participant" if role == PASSIVE else f"the {role}"
            raise IdentityError(f"wanted {name!r} as {wanted} of the roster, got {came}")
        own_key = sealing_key.public_key().public_bytes_raw().hex()
        # With another key than the others believe, pads would not cancel and no user be found.
        terms = roster.terms
        needs_key = terms.mask == "dense" or terms.users == PSEUDONYMS or terms.shares is not None
        if needs_key and member.sealing_key != own_key:
            raise IdentityError(
                f"the sealing key of {name!r} must be {member.sealing_key}, as in the roster, "
                f"got the public key {own_key}"
            )
        return cls(roster, member, signed_roster)

    def refuse_unless_next(self, ours: Roster) -> None:
        """Refuse a roster that is neither the one in force nor a later one."""
        roster = self.roster
        if roster.federation != ours.federation or roster.number < ours.number:
            raise IdentityError(
                f"wanted a roster of {ours.federation!r} from number {ours.number}, "
                f"got number {roster.number} of {roster.federation!r}"
            )
        if roster.number == ours.number and roster != ours:
            raise IdentityError(
                f"roster number {ours.number} must have the digest {ours.digest[:12]}…, "
                f"got {roster.digest[:12]}…"
            )
        for what, old, new in (
            ("session", ours.session, roster.session),
            ("terms", *ours.lasting_terms(roster)),
        ):
            if old != new:
                raise HandshakeError(
                    f"{what}: a live federation has {old!r} and keeps it, got {new!r}"
                )

    def next_secrets(self, message: Prepare, key: X25519PrivateKey) -> PartySecrets:
        """On secret shares: what the dealer has made for this member in the next epoch."""
        name = self.member.name
        dealt = DealOpener(self.roster, message.epoch, name, key).secrets(message.envelope)
        problem = problem_with_parts(dealt, self.roster, name)
        if problem:
            raise EnvelopeError(f"wanted {problem}")
        return dealt

    def obtain_share(self, epoch: int, envelope: bytes, secrets: Secrets) -> HeldShare:
        """A share of its own: opened and layered (dense), or drawn (blockwise)."""
        rotation = sample_mask(self.member.width, entropy=secrets.entropy)
        if self.roster.terms.mask == "blockwise":
            return HeldShare(MaskShare(rotation), self.signed_roster)
        dealt = open_share(
            envelope,
            roster=self.roster,
            epoch=epoch,
            participant=self.member.name,
            private_key=secrets.sealing_key,
        )
        return HeldShare(dealt.layered(rotation), self.signed_roster)


def refuse_unless_epoch(epoch: int) -> None:
    """Refuse a welcome with an invalid epoch."""
    if epoch < 1 or not is_number(epoch):
        raise HandshakeError(f"epoch: wanted a number from 1, got {epoch}")


class HeldEpochs:
    """What a member holds, by epoch: one is in force, and a change brings the next."""

    def __init__(self, name: str, held: Mapping[int, HeldShare]) -> None:
        self._name = name
        self._held = dict(held)
        self._next_change = 0

    def __contains__(self, epoch: int) -> bool:
        """Whether it holds a share of this epoch."""
        return epoch in self._held

    def __iter__(self) -> Iterator[int]:
        """The epochs, in order."""
        return iter(sorted(self._held))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._held)

    def __getitem__(self, epoch: int) -> HeldShare:
        """What it holds of an epoch; HandshakeError if it holds nothing."""
        if epoch not in self._held:
            raise HandshakeError(
                f"epoch: the active participant is at {epoch}, {self._name!r} has shares of "
                f"{sorted(self._held)}; if it was removed and added again, delete these first"
            )
        return self._held[epoch]

    def begin_stream(self) -> None:
        """Begin a stream: changes are numbered by rounds, and those before it do not count."""
        self._next_change = 0

    def begin_with(self, epoch: int, held: HeldShare) -> StoreShare:
        """Hold the share of the first epoch."""
        self._held[epoch] = held
        return StoreShare(epoch, held.share, held.signed_roster)

    def problem_with(self, message: Prepare, *, epoch: int, next_round: int) -> Declined | None:
        """Why a change cannot be prepared while ``epoch`` is in force."""
        number, first = message.round, max(next_round, self._next_change)
        if message.epoch <= epoch or not is_number(message.epoch):
            reason = f"epoch: wanted one after {epoch}, got {message.epoch}"
            return Declined(number, 0, "stale_epoch", reason)
        if len(self._held) > 1:
            # The share of the next epoch stays as it is once its part was sent.  Until the active
            # participant says whether that epoch is in force, it is not known from which share
            # another change would start.
            reason = (
                f"epoch: wanted the change to {max(self._held)} to end first, got a change to "
                f"{message.epoch}"
            )
            return Declined(number, 0, "stale_epoch", reason)
        if number < first or not is_number(number):
            reason = f"round: wanted one from {first}, got {number}"
            return Declined(number, 0, "stale_round", reason)
        return None

    def prepare(self, message: Prepare, held: HeldShare) -> StoreShare:
        """Hold a share of the next epoch, until it is in force or given up."""
        self._held[message.epoch] = held
        self._next_change = message.round + 1
        return StoreShare(message.epoch, held.share, held.signed_roster)

    def enter(self, epoch: int) -> list[DropShares | LogLine]:
        """An epoch is in force: the others are not needed any more."""
        self._held = {epoch: self._held[epoch]}
        return [DropShares(keep=epoch), LogLine("epoch_entered", {"epoch": epoch})]

    def abort(self, message: Abort, *, epoch: int) -> list[DropShares | LogLine]:
        """A change was given up, and ``epoch`` stays in force."""
        if message.epoch == epoch or message.epoch not in self._held:
            return []
        del self._held[message.epoch]
        return [DropShares(keep=epoch), LogLine("mask_change_aborted", {"epoch": message.epoch})]
