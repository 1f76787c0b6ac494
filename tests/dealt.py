"""A roster with dense masks whose private keys the tests hold."""

from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.protocol.mask_generator import MaskGenerator
from vfbandits.protocol.roster import Member, Roster, Terms

WIDTHS = {"shop": 2, "bank": 3, "news": 1}


@dataclass(frozen=True)
class Dealt:
    roster: Roster
    keys: dict[str, X25519PrivateKey]
    generator: MaskGenerator


def public_hex(key):
    return key.public_key().public_bytes_raw().hex()


def dense_federation(widths=None, **changes):
    """The roster of ``widths``, the first one active; ``changes`` go into it."""
    widths = widths or WIDTHS
    keys = {name: X25519PrivateKey.generate() for name in widths}
    generator = MaskGenerator(Ed25519PrivateKey.generate())
    members = tuple(
        Member(
            name,
            "passive" if place else "active",
            certificate=f"{place:064x}",
            width=width,
            sealing_key=public_hex(keys[name]),
        )
        for place, (name, width) in enumerate(widths.items())
    )
    values = {
        "federation": "shops",
        "number": 1,
        "terms": Terms(mask="dense"),
        "members": members,
        "generator_key": generator.public_key,
        **changes,
    }
    return Dealt(Roster(**values), keys, generator)
