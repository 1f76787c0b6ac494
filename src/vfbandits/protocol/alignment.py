"""Messages by which two participants find their common users, before the federation serves.

An element is a user as a point of an elliptic curve, under the key of one participant or of both.
Without both keys nobody can tell whose element it is, or try users.
"""

from dataclasses import dataclass, field

MAX_USERS = 20_000_000  # of one participant
MAX_ELEMENTS = 10_000  # in one message
ELEMENT_SIZE = 33
DIGEST_SIZE = 32


@dataclass(frozen=True, slots=True)
class AlignBegin:
    """A passive participant begins: the digest of its roster, and how many users it has."""

    roster: str
    n_users: int


@dataclass(frozen=True, slots=True)
class AlignBegun:
    """The active participant agrees: how many users it has."""

    n_users: int


@dataclass(frozen=True, slots=True)
class AlignElements:
    """The next users of the passive participant, under its key; ``start`` counts those before."""

    start: int
    elements: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class AlignReply:
    """The received elements under both keys, in order, and the next ``own`` users under one."""

    elements: tuple[bytes, ...] = field(repr=False)
    own: tuple[bytes, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class AlignCommon:
    """Pseudonyms of common users; with the last of them the digest of all, else none."""

    pseudonyms: tuple[bytes, ...] = field(repr=False)
    digest: bytes = b""


@dataclass(frozen=True, slots=True)
class AlignTold:
    """How many common users were received so far; with the last of them the digest of all."""

    n_common: int
    digest: bytes = b""
