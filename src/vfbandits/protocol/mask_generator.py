"""The mask generator: draws Q, seals a share of it to each participant, and forgets it.

It is not on the serving path.  It needs the roster and its signing key, and nobody's features.  It
must not talk to the active participant: together they could undo Q, though not the private layer
R_j that each participant puts under its share when it opens it.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from vfbandits.core.mask import Entropy, MaskShare, sample_mask, split_columns
from vfbandits.errors import IdentityError, MaskError
from vfbandits.protocol.envelope import label_for, seal_share
from vfbandits.protocol.roster import Roster


def _unheard(_: int) -> None:
    """Report no progress."""


@dataclass(frozen=True, slots=True, eq=False)
class MaskGenerator:
    """Deals dense masks under its signature; rosters pin the public part of its key."""

    signing_key: Ed25519PrivateKey = field(repr=False)

    @property
    def public_key(self) -> str:
        """What a roster has as ``generator_key``: Ed25519, hex."""
        return self.signing_key.public_key().public_bytes_raw().hex()

    def deal(
        self,
        roster: Roster,
        epoch: int,
        entropy: Entropy = os.urandom,
        *,
        on_step: Callable[[int], None] = _unheard,
    ) -> dict[str, bytes]:
        """A sealed share of a fresh Q for every participant, the active one too.

        ``on_step`` gets 1 when Q is drawn and one more for each share sealed.  ``entropy`` gives
        Q and the name of the deal; the seals take theirs from the operating system.

        Q and the plain shares are overwritten before this returns.  That is no promise of erasure:
        Python, BLAS and the operating system may have copied them to other places in memory.  Run
        the generator as a process that ends when the envelopes are written.
        """
        keys = _sealing_keys(roster)
        self._refuse(roster, epoch)
        deal = entropy(16).hex()
        shares = _draw(roster, entropy)
        on_step(1)
        sealed: dict[str, bytes] = {}
        for name in list(shares):
            share = shares.pop(name)
            sealed[name] = seal_share(
                share,
                roster=roster,
                epoch=epoch,
                participant=name,
                recipient=keys[name],
                signing_key=self.signing_key,
                deal=deal,
            )
            share.columns.fill(0.0)
            on_step(1 + len(sealed))
        return sealed

    def _refuse(self, roster: Roster, epoch: int) -> None:
        """Before the expensive part, refuse a deal that nobody could use, or too many could."""
        if roster.terms.mask != "dense":
            raise MaskError(
                f"a generator deals dense masks; this roster has {roster.terms.mask!r} ones, which "
                "participants draw themselves"
            )
        if roster.generator_key != self.public_key:
            raise IdentityError(
                f"the roster names the generator {roster.generator_key}, this is {self.public_key}"
            )
        label_for(roster, epoch=epoch, participant=roster.active.name)


def _draw(roster: Roster, entropy: Entropy) -> dict[str, MaskShare]:
    split = roster.split
    Q = sample_mask(split.dim, entropy=entropy)  # noqa: N806
    shares = split_columns(Q, split.widths)
    Q.fill(0.0)
    return dict(zip(split.names, shares, strict=True))


def _sealing_keys(roster: Roster) -> dict[str, X25519PublicKey]:
    return {
        member.name: X25519PublicKey.from_public_bytes(bytes.fromhex(member.sealing_key))
        for member in roster
        if member.width
    }
