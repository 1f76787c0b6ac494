"""Proof that both servers of secret shares go on from the same messages.

The helper numbers the messages that it answers and chains their digests.  Each answer carries a
receipt: the position of its message and the digest of all up to it.  Server A compares receipts
with those that it has seen, so an older copy of the helper's disk shows with its first answer.
When the servers meet again, a greeting compares the whole: the helper reports its position, and
server A also notices if it runs on an older copy itself.

This protects against disks that are restored from a backup, not against a helper that lies.
"""

import hashlib
import struct
from dataclasses import dataclass

from vfbandits.errors import RollbackError, SharesError, WireError

DIGEST_BYTES = 32
ADVICE = (
    "Nothing more is sent in this epoch.  Stop both servers and put back the newest files of the "
    "one that is older; if they are lost, start again with a new roster and a new deal, which "
    "begins to learn from the start"
)
_GREETING = b"\xff"  # no kind of message has this number
_RECEIPT = struct.Struct(f"<Q{DIGEST_BYTES}s")
_HELLO = struct.Struct(f"<cQ16sQ{DIGEST_BYTES}s")
_STANDING = struct.Struct(f"<cQQQQ{DIGEST_BYTES}s?")


@dataclass(frozen=True, slots=True)
class Receipt:
    """How many messages the helper has answered, and the digest of all of them."""

    position: int = 0
    digest: bytes = bytes(DIGEST_BYTES)

    def then(self, request: bytes, reply: bytes) -> "Receipt":
        """The receipt of the next message.

        >>> Receipt().then(b"ask", b"answer").position
        1
        """
        return Receipt(self.position + 1, chained(self.digest, entry_of(request, reply)))

    def stamp(self, reply: bytes) -> bytes:
        """An answer as it travels, after its receipt."""
        return _RECEIPT.pack(self.position, self.digest) + reply

    @staticmethod
    def split(data: bytes) -> "tuple[Receipt, bytes]":
        """The receipt of an answer, and the answer."""
        if len(data) < _RECEIPT.size:
            raise WireError(f"wanted a receipt of {_RECEIPT.size} bytes, got {len(data)}")
        return Receipt(*_RECEIPT.unpack_from(data)), data[_RECEIPT.size :]


def entry_of(request: bytes, reply: bytes) -> bytes:
    """The digest of one message and its answer."""
    return hashlib.sha256(
        hashlib.sha256(request).digest() + hashlib.sha256(reply).digest()
    ).digest()


def chained(before: bytes, entry: bytes) -> bytes:
    """The digest of all messages up to this one."""
    return hashlib.sha256(before + entry).digest()


@dataclass(frozen=True, slots=True)
class Greeting:
    """Server A's first message after a start: its epoch, its deal, and the last receipt it has."""

    epoch: int
    deal: str
    seen: Receipt

    def to_bytes(self) -> bytes:
        """As it travels, among the messages."""
        seen = self.seen
        return _HELLO.pack(
            _GREETING, self.epoch, bytes.fromhex(self.deal), seen.position, seen.digest
        )

    @staticmethod
    def is_in(data: bytes) -> bool:
        """Whether these bytes are a greeting and not a message."""
        return data[:1] == _GREETING

    @classmethod
    def from_bytes(cls, data: bytes) -> "Greeting":
        """The greeting that was sent."""
        if len(data) != _HELLO.size:
            raise WireError(f"wanted a greeting of {_HELLO.size} bytes, got {len(data)}")
        _, epoch, deal, position, digest = _HELLO.unpack(data)
        return cls(epoch, deal.hex(), Receipt(position, digest))


@dataclass(frozen=True, slots=True)
class Standing:
    """The position of the helper, in answer to a greeting.

    Attributes
    ----------
    window, n_rows, next_slot
        The open window, its rewards so far, and the first slot that no decision has used.
    head
        The receipt of the last message.
    has_seen
        Whether the helper has the message of which server A has the last receipt.
    """

    window: int
    n_rows: int
    next_slot: int
    head: Receipt
    has_seen: bool

    def to_bytes(self) -> bytes:
        """As it travels."""
        numbers = (self.window, self.n_rows, self.next_slot)
        head = self.head
        return _STANDING.pack(_GREETING, *numbers, head.position, head.digest, self.has_seen)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Standing":
        """The answer that was sent."""
        if len(data) != _STANDING.size or data[:1] != _GREETING:
            raise WireError(f"wanted the answer to a greeting, got {len(data)} other bytes")
        _, window, n_rows, next_slot, position, digest, has_seen = _STANDING.unpack(data)
        return cls(window, n_rows, next_slot, Receipt(position, digest), has_seen)


class Seen:
    """What server A knows of the helper's chain: receipts since the last fold."""

    def __init__(self, head: Receipt) -> None:
        self.head = head
        self._digests = {head.position: head.digest}
        self._entries: dict[int, bytes] = {}

    def note(self, request: bytes, reply: bytes, receipt: Receipt) -> None:
        """Compare an answer's receipt with all that were seen; RollbackError if one must be old.

        Answers may come in another order than their messages were sent.
        """
        position, digest = receipt.position, receipt.digest
        entry = entry_of(request, reply)
        known = self._digests.setdefault(position, digest)
        self._entries[position] = entry
        if known != digest or not (self._fits(position) and self._fits(position + 1)):
            raise RollbackError(
                f"the helper has answered message {position} twice: server A has seen message "
                f"{self.head.position}, and the helper goes on from an older copy of its disk.  "
                f"{ADVICE}"
            )
        if position > self.head.position:
            self.head = receipt

    def forget_before(self, head: Receipt) -> None:
        """Keep only receipts from this one on."""
        for known in [position for position in self._digests if position < head.position]:
            del self._digests[known]
            self._entries.pop(known, None)

    def _fits(self, position: int) -> bool:
        """Whether a receipt follows from the one before, if both and its message are known."""
        before, entry = self._digests.get(position - 1), self._entries.get(position)
        if before is None or entry is None:
            return True
        return self._digests[position] == chained(before, entry)


@dataclass(frozen=True, slots=True)
class Own:
    """The position of server A.

    ``next_slot`` is the first slot that it has not reserved.  The helper may have one reward more
    while A ``is_learning``, and may have folded a window that ``is_full``.  While A hands over to
    the next epoch, the helper may be at its first window, ``moves_to``.
    """

    window: int
    n_rows: int
    next_slot: int
    is_learning: bool
    is_full: bool
    moves_to: int = -1

    @property
    def is_between(self) -> bool:
        """Whether nothing of the window was begun: only then did it hand over."""
        return not (self.n_rows or self.next_slot or self.is_learning or self.is_full)

    @property
    def latest(self) -> tuple[int, int]:
        """Window and reward that the helper can be at."""
        if self.is_full:
            return self.window + 1, 0
        return self.window, self.n_rows + self.is_learning


def check_standing(standing: Standing, *, seen: Receipt, before: Own, after: Own) -> None:
    """Refuse to go on if either server is an older copy of itself.

    ``seen`` and ``before`` are as of the greeting, ``after`` as of its answer: other messages may
    have been in flight meanwhile.
    """
    there = (standing.window, standing.n_rows)
    if standing.window == after.moves_to and standing.has_seen and after.is_between:
        return
    has_more_slots = standing.window == after.window and standing.next_slot > after.next_slot
    if there > after.latest or has_more_slots:
        raise RollbackError(
            f"the helper is at reward {standing.n_rows} and slot {standing.next_slot} of window "
            f"{standing.window}, and server A at reward {after.n_rows} and slot {after.next_slot} "
            f"of window {after.window}: server A runs on an older copy of its disk.  {ADVICE}"
        )
    if not standing.has_seen or there < (before.window, before.n_rows):
        raise RollbackError(
            f"the helper's log ends at message {standing.head.position} or has other messages, "
            f"and server A has seen message {seen.position}: the helper runs on an older copy of "
            "its disk.  "
            f"{ADVICE}"
        )


def refuse_other_deal(greeting: Greeting, *, epoch: int, deal: str) -> None:
    """Refuse a server A that has words of another deal."""
    if (greeting.epoch, greeting.deal) != (epoch, deal):
        raise SharesError(
            f"the helper has the secrets of epoch {epoch}, deal {deal[:12]}…, and server A those "
            f"of epoch {greeting.epoch}, deal {greeting.deal[:12]}…: both must open envelopes of "
            "one deal"
        )
