"""Every message between participants, and who may see what is in it.

A passive participant dials the active one and keeps a stream open.  ``ToActive`` travels up it,
``ToPassive`` down.  No message has a field for a plain feature, a mask or a private key: values
are masked (protection "mask"), masked and under pads ("sum"), or under masks of both servers
("shares").

Values travel as raw little-endian float64 (or uint64 under pads), rows after rows.  On secret
shares they are words of 16 bytes, each of which counts as two columns.

Every decision needs an ask and its answers, so these two are named tuples: immutable like the
others, and faster to make.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import NamedTuple, TypeAlias

from vfbandits.core.noise import VectorNoise
from vfbandits.core.shares.messages import Place
from vfbandits.protocol.roster import CLEAR
from vfbandits.protocol.version import SPOKEN

DTYPE = "<f8"
MAX_ROWS = 1 << 20
MAX_BYTES = 64 << 20
DIGEST_SIZE = 16

Key: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hello:
    """A passive participant's first message: the terms it knows.  Seen by the active one.

    It speaks the versions of the protocol from ``lowest_protocol`` to ``highest_protocol``.
    ``epochs`` are the mask epochs it has a share of; ``next_round`` is the first round number
    under which it has certainly sent nothing yet.  ``noise`` is what it says that it adds to each
    vector, if anything: nobody can check it.
    """

    lowest_protocol: int
    highest_protocol: int
    federation: str
    roster: str
    name: str
    width: int
    dim: int
    layout: str
    mask: str
    aggregation: str
    scaling: str
    dtype: str
    epochs: tuple[int, ...]
    next_round: int
    noise: VectorNoise | None = None
    users: str = CLEAR
    protection: str = "mask"


@dataclass(frozen=True, slots=True)
class Welcome:
    """The active participant's answer to a hello it agrees with.

    ``envelope`` is the sealed share of ``epoch`` where the newcomer has none and a generator dealt
    one; the active participant carries it and cannot open it.  ``protocol`` is the version that
    this stream speaks from now on: the highest that both ends speak.
    """

    epoch: int
    envelope: bytes = field(default=b"", repr=False)
    protocol: int = SPOKEN.highest


@dataclass(frozen=True, slots=True)
class Refused:
    """The last message before the active participant closes a stream: why."""

    code: str
    reason: str


class Ask(NamedTuple):
    """Send your masked rows for these users, in this order.

    ``users`` are pseudonyms (pseudonyms.py) or ids, as the roster says, and ids in a trial.
    ``arms`` has one tuple per user in layout "per_arm" and is empty in the others.  ``senders`` is
    empty unless sums are secure: then it names all that are asked, fixed before anyone sends.
    ``trial`` is not zero in a parity run on public test data: see trial.py.  ``campaigns`` say what
    the rows are for: one name for all users, or one for each; nothing in a trial.  ``place`` is
    the slot whose words cover the answer on secret shares, None elsewhere.  Those that ``absent``
    names must not answer in that slot, ever: their masks of it are opened.
    """

    round: int
    attempt: int
    epoch: int
    users: tuple[str, ...]
    arms: tuple[tuple[str, ...], ...] = ()
    senders: tuple[str, ...] = ()
    trial: int = 0
    campaigns: tuple[str, ...] = ()
    place: Place | None = None
    absent: tuple[str, ...] = ()

    def keys(self) -> list[Key]:
        """The key of each row, in order.

        >>> Ask(1, 0, 1, users=("ann", "bob"), arms=(("tea",), ("tea", "mate"))).keys()
        [('ann', 'tea'), ('bob', 'tea'), ('bob', 'mate')]
        """
        if not self.arms:
            return [(user,) for user in self.users]
        pairs = map(zip, map(repeat, self.users), self.arms)
        return list(chain.from_iterable(pairs))

    @property
    def campaign_of_each(self) -> tuple[str, ...]:
        """The campaign of each user; an empty text where none is named.

        >>> Ask(1, 0, 1, users=("ann", "bob"), campaigns=("spring",)).campaign_of_each
        ('spring', 'spring')
        """
        n_users = len(self.users)
        if len(self.campaigns) == n_users:
            return self.campaigns
        return (self.campaigns or ("",)) * n_users

    @property
    def n_rows(self) -> int:
        """Rows that the answer must have."""
        return sum(map(len, self.arms)) if self.arms else len(self.users)

    @property
    def rows_per_user(self) -> tuple[int, ...]:
        """How many of them each user has, in order."""
        return tuple(map(len, self.arms)) if self.arms else (1,) * len(self.users)


class Answer(NamedTuple):
    """Masked rows for one ask.  Seen by the active participant.

    ``digest`` is of the row keys that were masked, the trial and the senders; ``missing`` counts
    the keys that the sender has no features of, whose rows are zeros.  For a secure sum these rows
    are noise instead, and ``withheld`` has their places: no sum of them can be had.
    """

    round: int
    attempt: int
    epoch: int
    digest: bytes
    n_rows: int
    n_columns: int
    values: bytes | memoryview
    missing: int = 0
    withheld: tuple[int, ...] = ()

    def __repr__(self) -> str:
        """Numbers and sizes; the values stay inside."""
        return (
            f"Answer(round={self.round}, attempt={self.attempt}, epoch={self.epoch}, "
            f"rows={self.n_rows}, columns={self.n_columns}, missing={self.missing})"
        )


@dataclass(frozen=True, slots=True)
class Declined:
    """The sender cannot or will not answer this attempt; ``code`` as in ``DECLINES``."""

    round: int
    attempt: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there?  Sent to a participant that is not asked."""

    number: int


@dataclass(frozen=True, slots=True)
class Pong:
    """Yes."""

    number: int


@dataclass(frozen=True, slots=True)
class Help:
    """A message of server A for the helper, on secret shares; the helper sees masked words."""

    number: int
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Helped:
    """The helper's answer to the message of this number; ``problem`` says why there is none."""

    number: int
    data: bytes = field(default=b"", repr=False)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready for another mask epoch, and send your part of the change.

    ``roster`` is a signed roster that will hold from then on, or empty if nothing changes there;
    ``envelope`` the sealed new share, or empty if each draws its own.  The part is sent as an
    ``Answer`` to ``round``, whose keys are ``change_keys``.
    """

    epoch: int
    round: int
    senders: tuple[str, ...] = ()
    roster: bytes = field(default=b"", repr=False)
    envelope: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Commit:
    """From now on masks of ``epoch`` hold; older shares may be thrown away."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Abort:
    """Masks of ``epoch`` will not come into force."""

    epoch: int


ToActive: TypeAlias = Hello | Answer | Declined | Pong | Helped
ToPassive: TypeAlias = Welcome | Refused | Ask | Ping | Help | Prepare | Commit | Abort
Message: TypeAlias = ToActive | ToPassive

DECLINES = (
    "stale_epoch",
    "stale_round",
    "bad_request",
    "features",
    "limits",
    "lost_bytes",
    "pads",
    "busy",
    "absent",
)


def digest_of(keys: Iterable[Key]) -> bytes:
    """A digest of row keys in their order; each text is preceded by its length.

    >>> digest_of([("a", "bc")]) == digest_of([("ab", "c")])
    False
    """
    state = hashlib.blake2b(digest_size=DIGEST_SIZE)
    for key in keys:
        for text in key:
            raw = text.encode()
            state.update(b"%d:" % len(raw))
            state.update(raw)
        state.update(b";")
    return state.digest()


def change_keys(epoch: int, senders: Sequence[str]) -> list[Key]:
    """The row keys of a part of a mask change."""
    return [("change of masks", str(epoch), *senders)]
