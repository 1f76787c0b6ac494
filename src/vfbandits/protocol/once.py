"""Under pads, a round is sent once; after that only the very same bytes, or none.

Two messages under one stamp would show their difference.  So would two sums of one round, the
second with fewer participants or for other rows.
"""

from collections.abc import Collection, Sequence

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from vfbandits.core.arrays import MaskedBlock
from vfbandits.core.fixed_point import FixedPoint
from vfbandits.core.pads import Stamp
from vfbandits.core.secure_sum import MIN_SENDERS, BlindedBlock, Blinder, RowsOfOne
from vfbandits.protocol.instructions import Fetch, Reply, Resend
from vfbandits.protocol.messages import Ask, Declined
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.rows import rows_digest


class OnceOnly:
    """The pads of one passive participant under one roster, and what it has sent before.

    ``next_round`` is the first round under whose number it has certainly sent nothing yet.
    """

    def __init__(
        self,
        name: str,
        roster: Roster,
        sealing_key: X25519PrivateKey,
        *,
        next_round: int,
    ) -> None:
        self._name = name
        self._known = {member.name for member in roster.passive}
        self._first_round = next_round
        self._last: tuple[Stamp, tuple[str, ...], bytes] | None = None
        code = FixedPoint(n_terms=len(roster.passive), bound=roster.terms.bound)
        # Under different rosters two ends may mean different participants and numbers.
        session = f"{roster.session}/{roster.digest}"
        self._blinder = Blinder(name, code, sealing_key, session=session)
        self._blinder.meet(
            {
                other.name: X25519PublicKey.from_public_bytes(bytes.fromhex(other.sealing_key))
                for other in roster.passive
            }
        )

    @property
    def next_round(self) -> int:
        """The first round under whose number nothing was sent."""
        return self._first_round if self._last is None else self._last[0].round + 1

    def problem_with(self, senders: tuple[str, ...], *, after: Roster | None = None) -> str:
        """Why no message may go out with these senders; empty if one may.

        They are all passive participants, or in a mask change all that stay in the roster
        ``after`` it.  Sums of two sets of senders would differ by the message of one of them.
        """
        wanted = self._known
        if after is not None:
            wanted = wanted & {member.name for member in after.passive}
        if len(wanted) < MIN_SENDERS or self._name not in wanted:
            return f"a secure sum needs {self._name!r} and at least one more sender"
        if len(senders) == len(wanted) and wanted == {*senders}:
            return ""
        return f"the senders of a secure sum are {', '.join(sorted(wanted))}, each named once"

    def first_or_again(self, ask: Ask) -> Fetch | Resend | Reply:
        """The response to an ask: look up rows, resend the earlier bytes, or decline."""
        stamp = Stamp(ask.epoch, ask.round, ask.attempt)
        if self._last is None:
            if ask.round >= self._first_round:
                return Fetch(ask)
            return Resend(stamp, ask, rows_digest(ask))
        last, senders, asked = self._last
        if ask.round == last.round:
            problem = _problem_with_attempt(ask, senders, asked)
            if problem:
                return Reply(Declined(ask.round, ask.attempt, "pads", problem))
        if (ask.round, ask.attempt) <= (last.round, last.attempt):
            return Resend(stamp, ask, rows_digest(ask))
        return Fetch(ask)

    def cover(
        self,
        rows: MaskedBlock,
        stamp: Stamp,
        senders: tuple[str, ...],
        *,
        asked: bytes,
        parts: Sequence[RowsOfOne] | None = None,
        withheld: Collection[int] = (),
    ) -> BlindedBlock:
        """The rows under pads; from now on the stamp is used up.

        ``asked`` is the digest of what was asked for, as ``ask_digest`` makes it; with ``parts``
        pads are keyed by theirs.  Rows at the places ``withheld`` are noise.
        """
        blinded = self._blinder.blind(
            rows, stamp, senders, asked=asked, parts=parts, withheld=withheld
        )
        self._last = (stamp, blinded.senders, asked)
        return blinded


def _problem_with_attempt(ask: Ask, senders: tuple[str, ...], asked: bytes) -> str:
    """Why this ask is no attempt of the round that asked for ``asked``; nothing if it is one."""
    if tuple(sorted(ask.senders)) != senders:
        return (
            "a round is never sent again with other participants: the sums would differ by the "
            "masked rows of those that are missing"
        )
    if rows_digest(ask) != asked:
        return (
            f"every attempt of a round asks for the same rows, of digest {asked.hex()[:12]}…, "
            f"got {rows_digest(ask).hex()[:12]}…"
        )
    return ""
