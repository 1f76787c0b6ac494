"""A passive participant's share of a mask: how it comes by one, and what it keeps with it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.core.mask import Entropy, MaskShare, sample_mask
from vfbandits.core.shares.dealer import ParticipantSecrets
from vfbandits.errors import HandshakeError, IdentityError
from vfbandits.protocol.envelope import open_share
from vfbandits.protocol.roster import PASSIVE, PSEUDONYMS, Member, Roster
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
    """A share of one epoch's mask, and the signed roster that goes with it."""

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
        """Refuse a roster that does not follow on, or from, the one in force."""
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
