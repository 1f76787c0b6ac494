"""On secret shares a slot is answered once; after that only the very same bytes, or none.

Two messages under the words of one slot would show their difference.  So would an answer in a slot
whose masks were opened because its sender was named absent there.  The round of an ask is the
number of its slot, so that the outbox, which refuses a round that was used, refuses the slot.
"""

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.pads import Stamp
from vfbandits.core.ring import Words
from vfbandits.core.shares.messages import Absent
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.protocol.instructions import Fetch, Keep, PassiveInstruction, Reply, Resend
from vfbandits.protocol.messages import Answer, Ask, Declined
from vfbandits.protocol.rows import digest_for, slot_digest


class Slots:
    """The slots of one participant, and which of them it has used.

    ``next_round`` is the first round under whose number it has certainly sent nothing yet.
    """

    def __init__(self, name: str, sharing: SharingParticipant, *, next_round: int) -> None:
        self._name = name
        self._sharing = sharing
        self._terms: ShareTerms = sharing.terms
        self.next_round = next_round
        self._absent_at = 0  # the last round in which it was named absent

    def problem_with(self, ask: Ask) -> str:
        """Why no slot could be answered by this ask; empty if one could."""
        if ask.place is None or ask.place.epoch != ask.epoch or ask.trial or ask.senders:
            return (
                "on secret shares an ask names a slot of its epoch, and is for no trial and no "
                "secure sum"
            )
        if len(ask.users) != 1:
            return f"on secret shares an ask is about one user, got {len(ask.users)}"
        if ask.place.slot >= self._terms.decisions or ask.round != self._terms.round_of(ask.place):
            return f"the round of this slot is {self._terms.round_of(ask.place)}, got {ask.round}"
        if ask.n_rows > self._terms.input_rows:
            return f"an ask has at most max_arms={self._terms.input_rows} arms, got {ask.n_rows}"
        return ""

    def first_or_again(self, ask: Ask) -> Fetch | Resend | Keep:
        """The response to an ask: look up rows, resend the earlier bytes, or decline."""
        stamp, asked = Stamp(ask.epoch, ask.round, ask.attempt), slot_digest(ask)
        if ask.round < self.next_round:
            return Resend(stamp, ask, asked)
        if self._name not in ask.absent:
            return Fetch(ask)
        reason = f"{self._name!r} is absent from this slot"
        self.next_round = ask.round + 1
        self._absent_at = ask.round
        return Keep(stamp, (), Declined(ask.round, ask.attempt, "absent", reason), asked)

    def problem_with_opening(self, data: bytes) -> str:
        """Why a participant that helps does not answer this message as server B; or empty.

        It opens masks of its own rows only in a slot in which it was named absent, and will
        therefore never answer: whatever server A says of the others, it cannot read these rows.
        """
        if not Absent.is_in(data):
            return ""
        message = Absent.from_bytes(data)
        is_absent = message.absent.tolist()
        if len(is_absent) != len(self._terms.widths):
            return ""  # which server B refuses
        if not is_absent[self._sharing.number]:
            return ""
        if self._terms.round_of(message.place) == self._absent_at:
            return ""
        return (
            f"{self._name!r} was not named absent in slot {message.place.slot}: its masks stay "
            "closed"
        )

    def answer(self, ask: Ask, block: PlainBlock, *, missing: int) -> list[PassiveInstruction]:
        """The block under masks of both servers; the slot is used up from now on."""
        if ask.place is None or ask.round < self.next_round:
            return [self.first_or_again(ask)]
        contexts = self._sharing.share(ask.place, block).contexts
        self.next_round = ask.round + 1
        n_rows, n_columns = contexts.shape[1], 2 * contexts.shape[2]
        answer = Answer(
            round=ask.round,
            attempt=ask.attempt,
            epoch=ask.epoch,
            digest=digest_for(ask),
            n_rows=n_rows,
            n_columns=n_columns,
            values=to_rows(contexts),
            missing=missing,
        )
        stamp = Stamp(ask.epoch, ask.round, ask.attempt)
        return [Keep(stamp, (), answer, slot_digest(ask)), Reply(answer)]


def to_rows(words: Words) -> bytes:
    """Words (2, n_rows, width) as they travel: 16 bytes each, rows after rows.

    >>> words = np.arange(4, dtype=np.uint64).reshape(2, 1, 2)
    >>> bool((from_rows(to_rows(words), n_rows=1) == words).all())
    True
    """
    return np.ascontiguousarray(np.moveaxis(words, 0, -1)).astype("<u8", copy=False).tobytes()


def from_rows(values: bytes | memoryview, *, n_rows: int) -> Words:
    """The words that were sent as ``to_rows`` has them."""
    flat = np.frombuffer(values, dtype="<u8").reshape(n_rows, -1, 2)
    return np.ascontiguousarray(np.moveaxis(flat, -1, 0))
