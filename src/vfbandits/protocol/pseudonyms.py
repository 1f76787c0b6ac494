"""Names of users between two participants: one secret for each pair, and no id on the wire.

The active participant and a passive one derive a key from their sealing keys, and name a user by
its HMAC under this key.  The passive participant knows whose pseudonym it is if it has this user.
Two passive participants are asked for one user by different pseudonyms.

Not hidden from the passive participant: whether it was asked for a user whose id it can guess.  It
has the key, and can try ids.
"""

import hmac
from collections.abc import Iterable
from functools import lru_cache

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vfbandits.errors import IdentityError
from vfbandits.protocol.roster import PSEUDONYMS, Member, Roster

SIZE = 16  # bytes of a pseudonym
CACHED = 1 << 14  # users whose pseudonyms are remembered
_TITLE = "vfbandits pseudonyms 1"


class Pseudonyms:
    """The pseudonyms of one pair of participants.

    >>> names = Pseudonyms(bytes(32))
    >>> names.of("ann") == names.digest("ann").hex() != names.of("bob")
    True
    >>> names == Pseudonyms(bytes(32)), names
    (True, Pseudonyms())
    """

    __slots__ = ("_key", "of")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self.of = lru_cache(maxsize=CACHED)(self._of)

    def __repr__(self) -> str:
        """Nothing: the key stays inside."""
        return "Pseudonyms()"

    def __eq__(self, other: object) -> bool:
        """Whether both give every user the same name."""
        if not isinstance(other, Pseudonyms):
            return NotImplemented
        return hmac.compare_digest(self._key, other._key)

    __hash__ = None  # type: ignore[assignment]  # a key is no key of a dictionary

    def digest(self, user: str) -> bytes:
        """The pseudonym of a user, as bytes."""
        # A text that is no valid Unicode names no user, and must not be an error either.
        raw = user.encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, raw, "sha256")[:SIZE]

    def _of(self, user: str) -> str:
        """The pseudonym of a user, as it travels: ``digest`` in hex."""
        return self.digest(user).hex()

    def of_all(self, users: Iterable[str]) -> tuple[str, ...]:
        """The pseudonyms of these, in their order."""
        return tuple(map(self.of, users))


def pseudonyms_between(
    roster: Roster, own: str, other: str, sealing_key: X25519PrivateKey
) -> Pseudonyms:
    """The pseudonyms between two participants of a roster; both ends get the same.

    They are bound to the federation, to the session that all its rosters share, and to the names
    and keys of the two: a later roster with the same pair keeps them.  IdentityError unless
    ``sealing_key`` is the one that the roster names for ``own``.
    """
    mine, theirs = _participant(roster, own), _participant(roster, other)
    came = sealing_key.public_key().public_bytes_raw().hex()
    if came != mine.sealing_key:
        raise IdentityError(
            f"the sealing key of {own!r} must be {mine.sealing_key}, as in the roster, "
            f"got the public key {came}"
        )
    try:
        key = X25519PublicKey.from_public_bytes(bytes.fromhex(theirs.sealing_key))
        shared = sealing_key.exchange(key)
    except ValueError as error:
        raise IdentityError(f"the sealing key of {other!r} cannot be used") from error
    pair = sorted((mine, theirs), key=lambda member: member.name)
    ends = [part for member in pair for part in (member.name, member.sealing_key)]
    # Names hold no slash.
    info = "/".join((_TITLE, roster.federation, roster.session, *ends)).encode()
    return Pseudonyms(HKDF(algorithm=SHA256(), length=32, salt=None, info=info).derive(shared))


def pseudonyms_for_all(
    roster: Roster, sealing_key: X25519PrivateKey | None
) -> dict[str, Pseudonyms]:
    """For each passive participant the pseudonyms by which the active one asks it for users.

    Empty if users are asked for in the clear.
    """
    if roster.terms.users != PSEUDONYMS:
        return {}
    if sealing_key is None:
        raise IdentityError(
            f"pseudonyms of users need the sealing key of {roster.active.name!r}, got none"
        )
    return {
        member.name: pseudonyms_between(roster, roster.active.name, member.name, sealing_key)
        for member in roster.passive
    }


def _participant(roster: Roster, name: str) -> Member:
    member = roster.find(name)
    if member is None or not member.sealing_key:
        raise IdentityError(f"wanted a participant of the roster, got {name!r}")
    return member
