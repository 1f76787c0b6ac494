"""Secure summation: the active participant learns the sum of masked blocks and not the parts.

Each passive participant adds to its message one pad for every other one; of two ends, the first
by name adds the pad and the other subtracts it, so pads cancel in the sum and only there.  With a
single passive participant there would be nothing to cancel and nothing hidden.

Three rules keep the parts hidden.  A stamp covers one message: sending another under the same pads
would show the difference.  A round that was sent is never summed again with fewer participants: the
two sums would differ by exactly the missing one's message.  And a pad is keyed by what its
participant was asked for and with whom: messages of participants that were asked for different
things add up to noise.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from vfbandits.core.arrays import MaskedBlock, Matrix
from vfbandits.core.fixed_point import FixedPoint, Ring
from vfbandits.core.pads import PURPOSE_SIZE, PairKey, Stamp, agree
from vfbandits.errors import SecureSumError

MIN_SENDERS = 2


@dataclass(frozen=True, slots=True)
class RowsOfOne:
    """The next ``n_rows`` rows of a block; ``asked`` is a digest of what they are rows of."""

    n_rows: int
    asked: bytes


@dataclass(frozen=True, slots=True, eq=False)
class BlindedBlock:
    """A masked block under pads: noise until all ``senders`` of its round are added."""

    stamp: Stamp
    sender: str
    senders: tuple[str, ...]
    values: Ring = field(repr=False)


class Blinder:
    """One passive participant's end of the pads; its keys never leave it.

    A ``private_key`` that outlives the process needs a ``session`` that no other federation has:
    with the same keys and stamps it would otherwise make the same pads.
    """

    __slots__ = ("_keys", "_last", "_private", "_session", "code", "name")

    def __init__(
        self,
        name: str,
        code: FixedPoint,
        private_key: X25519PrivateKey | None = None,
        *,
        session: str = "",
    ) -> None:
        self._session = session
        self.name = name
        self.code = code
        self._private = private_key or X25519PrivateKey.generate()
        self._keys: dict[str, PairKey] = {}
        self._last: tuple[BlindedBlock, bytes] | None = None

    def __repr__(self) -> str:
        """The name; keys and messages stay inside."""
        return f"Blinder({self.name!r})"

    @property
    def public_key(self) -> X25519PublicKey:
        """What the other participants need to agree on pads."""
        return self._private.public_key()

    def meet(self, public_keys: Mapping[str, X25519PublicKey]) -> None:
        """Agree on a key with each of the other passive participants."""
        self._keys = {
            other: agree(
                self._private, key, label="/".join((self._session, *sorted((self.name, other))))
            )
            for other, key in public_keys.items()
            if other != self.name
        }

    def blind(
        self,
        block: MaskedBlock,
        stamp: Stamp,
        senders: Iterable[str],
        *,
        asked: bytes,
        parts: Sequence[RowsOfOne] | None = None,
        withheld: Collection[int] = (),
    ) -> BlindedBlock:
        """The message for one round, whose senders were fixed before anyone sends.

        ``asked`` is a digest of what this participant was asked for, made by itself.  The very same
        block under the same stamp gives the very same bytes again; any other use of a stamp that
        is not new is refused.

        With ``parts``, which are all rows in their order, each of them has pads that are keyed by
        its own digest in the place of ``asked``.  Rows at the places ``withheld`` are under noise
        that nothing cancels, so that no sum of them can be had.
        """
        names = tuple(sorted(senders))
        self._refuse(names)
        purpose = purpose_of(asked, names)
        plain = self.code.encode(block)
        digest = hashlib.sha256(plain.tobytes() + repr(plain.shape).encode() + purpose).digest()
        if self._last is not None and stamp <= self._last[0].stamp:
            if stamp == self._last[0].stamp and digest == self._last[1]:
                return self._last[0]
            raise SecureSumError(
                f"a pad covers one message only: wanted a stamp after {self._last[0].stamp}, "
                f"got {stamp}"
            )
        total = plain.copy()
        if parts is None:
            self._add_pads(total, stamp, names, purpose)
        else:
            start = 0
            for part in parts:
                rows = total[start : start + part.n_rows]
                start += part.n_rows
                self._add_pads(rows, stamp, names, purpose_of(part.asked, names))
            if start != len(total):
                raise SecureSumError(f"parts must have all {len(total)} rows, got {start}")
        for place in withheld:
            total[place] += np.frombuffer(os.urandom(total[place].nbytes), "<u8")
        message = BlindedBlock(stamp, self.name, names, total)
        self._last = (message, digest)
        return message

    def _add_pads(self, rows: Ring, stamp: Stamp, names: tuple[str, ...], purpose: bytes) -> None:
        """Add the pads for ``purpose`` to ``rows``, in place."""
        for other in names:
            if other == self.name:
                continue
            pad = self._keys[other].pad(stamp, (rows.shape[0], rows.shape[1]), purpose=purpose)
            if self.name < other:
                rows += pad
            else:
                rows -= pad

    def _refuse(self, names: tuple[str, ...]) -> None:
        if len(set(names)) < MIN_SENDERS or self.name not in names:
            raise SecureSumError(
                f"a secure sum needs {self.name!r} and at least one more sender, got {names}: "
                "a single message would be seen as it is"
            )
        strangers = [name for name in names if name != self.name and name not in self._keys]
        if strangers:
            raise SecureSumError(f"{self.name!r} shares no key with {strangers}")


def purpose_of(asked: bytes, senders: tuple[str, ...]) -> bytes:
    """The purpose of a pad: a digest of what was asked, and of the senders in their order."""
    # Names may hold any character; Python's own literal is read in one way only.
    spelt = b"%d:%b%b" % (len(asked), asked, ascii(senders).encode())
    return hashlib.blake2b(spelt, digest_size=PURPOSE_SIZE).digest()


def add_blinded(messages: Iterable[BlindedBlock], code: FixedPoint) -> Matrix:
    """The sum of one round's masked blocks; all or nothing.

    A missing, repeated or foreign message is refused: a partial sum would be noise, and noise
    must never be learnt from.
    """
    parts = list(messages)
    if not parts:
        raise SecureSumError("a secure sum needs messages, got none")
    first = parts[0]
    for part in parts:
        same = (part.stamp, part.senders, part.values.shape)
        wanted = (first.stamp, first.senders, first.values.shape)
        if same != wanted:
            raise SecureSumError(
                f"a sum needs messages of one round, got {wanted} from {first.sender!r} "
                f"and {same} from {part.sender!r}"
            )
    came = sorted(part.sender for part in parts)
    if came != list(first.senders):
        raise SecureSumError(f"the round needs messages from {list(first.senders)}, got {came}")
    total = np.zeros_like(first.values)
    for part in parts:
        total += part.values
    return code.decode(total)
