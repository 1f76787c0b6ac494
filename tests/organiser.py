"""Whoever sets a federation up: keys for everybody, rosters, and a mask generator."""

import hashlib

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.core.mask import MaskShare, sample_mask
from vfbandits.protocol.envelope import open_share
from vfbandits.protocol.mask_generator import MaskGenerator
from vfbandits.protocol.roster import Member, Roster, Terms

SESSION = "5e" * 16


class Organiser:
    """Signs with ``ca``; has everybody's ``sealing`` keys, as only a test may."""

    def __init__(self, *, mask, aggregation, layout, bound, users="clear"):
        self.ca = ec.generate_private_key(ec.SECP256R1())
        self.signing = Ed25519PrivateKey.generate()
        self.sealing = {}
        arm_dim = 2 if layout == "outer" else 0
        self.terms = Terms(mask, aggregation, layout, arm_dim=arm_dim, bound=bound, users=users)

    def make_roster(self, widths, *, number):
        for name in widths:
            self.sealing.setdefault(name, X25519PrivateKey.generate())
        members = tuple(
            Member(
                name,
                "passive" if place else "active",
                hashlib.sha256(name.encode()).hexdigest(),
                width,
                self.sealing[name].public_key().public_bytes_raw().hex(),
            )
            for place, (name, width) in enumerate(widths.items())
        )
        key = self.signing.public_key().public_bytes_raw().hex()
        return Roster("acme", number, self.terms, members, key, SESSION)

    def deal(self, roster, epoch):
        """The active participant's share of a new mask, and everybody's envelope."""
        own = roster.active
        rotation = sample_mask(own.width)
        if self.terms.mask == "blockwise":
            return MaskShare(rotation), {}
        envelopes = MaskGenerator(self.signing).deal(roster, epoch)
        dealt = open_share(
            envelopes[own.name],
            roster=roster,
            epoch=epoch,
            participant=own.name,
            private_key=self.sealing[own.name],
        )
        return dealt.layered(rotation), envelopes
