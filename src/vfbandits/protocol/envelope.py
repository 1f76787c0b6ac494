"""A mask share, sealed to the one participant that may open it and signed by the mask generator.

The columns are sealed (``seal.py``) to the sealing key that the roster names.  They open for the
federation, roster, epoch, participant, shape and deal on their label, which is JSON, and for no
other.

A carrier of an envelope sees its label and size, and no number of the share.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from vfbandits.core.arrays import Matrix
from vfbandits.core.mask import MaskShare
from vfbandits.errors import EnvelopeError, IdentityError
from vfbandits.protocol.messages import DTYPE
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.seal import (
    SEAL_BYTES,
    SIGNATURE_BYTES,
    Signed,
    open_signed,
    seal,
    unseal,
)

TITLE = b"vfbandits mask share 1\n"
ALONE = "0" * 32
MAX_LABEL = 1024
TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Label:
    """The public label of an envelope.

    ``deal`` names one draw of Q, 16 random bytes in hex: shares of two deals do not fit
    together, though each is valid by itself.
    """

    federation: str
    roster: str
    epoch: int
    participant: str
    dim: int
    width: int
    deal: str

    def to_bytes(self) -> bytes:
        """The one spelling of this label."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()


def seal_share(
    share: MaskShare,
    *,
    roster: Roster,
    epoch: int,
    participant: str,
    recipient: X25519PublicKey,
    signing_key: Ed25519PrivateKey,
    deal: str = ALONE,
) -> bytes:
    """Seal ``share`` to ``participant``, whose key in the roster must be ``recipient``."""
    label = label_for(roster, epoch=epoch, participant=participant, deal=deal)
    if share.columns.shape != (label.dim, label.width):
        raise EnvelopeError(
            f"the share of {participant!r} must have shape {(label.dim, label.width)}, "
            f"got {share.columns.shape}"
        )
    refuse_other_key(roster, participant, recipient)
    if signing_key.public_key().public_bytes_raw().hex() != roster.generator_key:
        raise IdentityError("the signing key must be the one whose public part the roster pins")
    plain = np.asarray(share.columns, dtype=DTYPE).tobytes(order="F")
    try:
        return seal(
            plain,
            title=TITLE,
            label=label.to_bytes(),
            recipient=recipient,
            signing_key=signing_key,
        )
    except ValueError as error:
        raise IdentityError(f"the sealing key of {participant!r} cannot be used") from error


def open_share(
    data: bytes, *, roster: Roster, epoch: int, participant: str, private_key: X25519PrivateKey
) -> MaskShare:
    """The share in an envelope, if it is ``participant``'s for this roster and epoch.

    IdentityError if the pinned generator did not sign it or ``private_key`` is not the one that
    the roster names, EnvelopeError for any other fault.
    """
    wanted = label_for(roster, epoch=epoch, participant=participant)
    refuse_other_key(roster, participant, private_key.public_key())
    label, signed = _open_label(data, roster)
    _refuse_other_label(label, replace(wanted, deal=label.deal), len(signed.sealed))
    plain = unseal(signed, title=TITLE, private_key=private_key, of=participant)
    S = np.frombuffer(plain, dtype=DTYPE).reshape((label.dim, label.width), order="F")  # noqa: N806
    _refuse_unless_orthonormal(S)
    return MaskShare(np.array(S, dtype=np.float64, order="F"))


def read_label(data: bytes, *, roster: Roster) -> Label:
    """The label of an envelope that the roster's generator signed."""
    return _open_label(data, roster)[0]


def check_deal(envelopes: Mapping[str, bytes], *, roster: Roster, epoch: int) -> str:
    """Refuse envelopes that are not one whole deal of this roster and epoch; returns its name.

    Needs no private key, so the active participant checks what it is given to carry.
    """
    names = roster.split.names
    if set(envelopes) != set(names):
        raise EnvelopeError(
            f"a deal has an envelope for each of {', '.join(names)}, "
            f"got {', '.join(sorted(envelopes)) or 'none'}"
        )
    deals = set()
    for name in names:
        label, signed = _open_label(envelopes[name], roster)
        wanted = label_for(roster, epoch=epoch, participant=name, deal=label.deal)
        _refuse_other_label(label, wanted, len(signed.sealed))
        deals.add(label.deal)
    if len(deals) > 1:
        raise EnvelopeError(f"all envelopes must be of one deal, got {', '.join(sorted(deals))}")
    return deals.pop()


def most_bytes(roster: Roster) -> int:
    """The largest size of an envelope for this roster."""
    numbers = roster.split.dim * max(roster.split.widths)
    return len(TITLE) + 2 + MAX_LABEL + 8 * numbers + SEAL_BYTES + SIGNATURE_BYTES


def label_for(roster: Roster, *, epoch: int, participant: str, deal: str = ALONE) -> Label:
    """The label of a participant's share; refused where there can be no share."""
    split = roster.split
    if roster.terms.mask != "dense":
        raise EnvelopeError(
            f"shares are dealt for dense masks, this roster has {roster.terms.mask!r}"
        )
    if participant not in split.names:
        raise EnvelopeError(
            f"a share belongs to one of {', '.join(split.names)}, got {participant[:64]!r}"
        )
    if not 0 <= epoch < 1 << 63:
        raise EnvelopeError(f"an epoch is a whole number from 0, got {epoch}")
    width = dict(split.items())[participant]
    return Label(
        federation=roster.federation,
        roster=roster.digest,
        epoch=epoch,
        participant=participant,
        dim=split.dim,
        width=width,
        deal=deal,
    )


def _open_label(data: bytes, roster: Roster) -> tuple[Label, Signed]:
    """The label and what is sealed, of an envelope with the right signature."""
    fewest = len(TITLE) + 2 + SEAL_BYTES + SIGNATURE_BYTES
    if not fewest <= len(data) <= most_bytes(roster):
        raise EnvelopeError(
            f"an envelope has {fewest} to {most_bytes(roster)} bytes in this federation, got "
            f"{len(data)}"
        )
    signed = open_signed(data, title=TITLE, generator_key=roster.generator_key)
    return _parse(signed.label), signed


def _parse(spelt: bytes) -> Label:
    try:
        label = Label(**json.loads(spelt))
        right = label.to_bytes() == spelt and _is_deal(label.deal)
    except (ValueError, TypeError, RecursionError) as error:
        raise EnvelopeError(f"wanted the label of a mask share, got {spelt[:60]!r}") from error
    if not right:
        raise EnvelopeError(
            "the label of a mask share must be canonical JSON with a deal of 16 bytes in hex, got "
            f"{spelt[:60]!r}"
        )
    return label


def _is_deal(text: str) -> bool:
    raw = bytes.fromhex(text)
    return len(raw) == 16 and raw.hex() == text


def _refuse_other_label(label: Label, wanted: Label, n_sealed: int) -> None:
    for field in fields(Label):
        came, want = getattr(label, field.name), getattr(wanted, field.name)
        if type(came) is not type(want) or came != want:
            raise EnvelopeError(
                f"this envelope has another {field.name}: wanted {want!r}, got {str(came)[:128]!r}"
            )
    size = 8 * wanted.dim * wanted.width + SEAL_BYTES
    if n_sealed != size:
        raise EnvelopeError(f"wanted a share of {size} sealed bytes, got {n_sealed}")


def refuse_other_key(roster: Roster, participant: str, key: X25519PublicKey) -> None:
    """Refuse a key that is not the one that the roster names for a participant."""
    member = roster.find(participant)
    if member is None or key.public_bytes_raw().hex() != member.sealing_key:
        raise IdentityError(
            f"the sealing key of {participant!r} must be the one in the roster, got the public key "
            f"{key.public_bytes_raw().hex()}"
        )


def _refuse_unless_orthonormal(S: Matrix) -> None:  # noqa: N803
    if not np.isfinite(S).all():
        raise EnvelopeError("a share must be finite, got a NaN or an infinity")
    # Entries of orthonormal columns are at most 1; looked at first, the product cannot overflow.
    error = np.inf
    if np.abs(S).max() <= 1.0 + TOLERANCE:
        error = float(np.abs(S.T @ S - np.eye(S.shape[1])).max())
    if error > TOLERANCE:
        raise EnvelopeError(
            f"the columns of a share must be orthonormal within {TOLERANCE}, got {error:.1e}"
        )
