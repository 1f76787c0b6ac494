"""What a passive participant answers behind its share of one epoch's mask."""

from collections.abc import Sequence

import numpy as np

from vfbandits.core.arrays import MaskedBlock, PlainBlock
from vfbandits.core.mask import MaskShare
from vfbandits.core.pads import Stamp
from vfbandits.core.remask import remask_part
from vfbandits.core.secure_sum import RowsOfOne
from vfbandits.errors import ArmError, MaskError, SecureSumError, SharesError, WireError
from vfbandits.protocol.held_share import Membership
from vfbandits.protocol.instructions import Fetch, Keep, LogLine, PassiveInstruction, Reply
from vfbandits.protocol.messages import (
    Answer,
    Ask,
    Declined,
    Prepare,
    change_keys,
    digest_of,
)
from vfbandits.protocol.once import OnceOnly
from vfbandits.protocol.roster import PSEUDONYMS, Roster
from vfbandits.protocol.rows import (
    CHANGE,
    ask_digest,
    digest_for,
    problem_with_rows,
    refuse_not_finite,
    refuse_out_of_bounds,
    rows_digest,
    user_parts,
)
from vfbandits.protocol.slots import Slots
from vfbandits.protocol.trial import TrialMask, trial_block


class Answers:
    """The answers of the participant at ``place``.

    ``once`` are its pads, if sums are secure; ``slots`` its words, if contexts are secret-shared.
    """

    def __init__(
        self,
        place: Membership,
        share: MaskShare,
        *,
        epoch: int,
        once: OnceOnly | None,
        slots: Slots | None = None,
    ) -> None:
        self.epoch = epoch
        self._place = place
        self._share = share
        self._once = once
        self._slots = slots
        self._columns = place.roster.rows_width[place.member.name]
        self._trial_mask = TrialMask(place.member.name, place.roster)
        self._layout = place.roster.terms.layout
        self._bound = place.roster.terms.bound
        self._by_pseudonyms = place.roster.terms.users == PSEUDONYMS
        self._to_fetch: Ask | None = None

    def hear(self, ask: Ask) -> PassiveInstruction:
        """The response to an ask: look up its rows, resend the earlier bytes, or decline."""
        problem = self._problem_with(ask)
        if problem is not None:
            return Reply(problem)
        if self._slots is not None:
            return self._slots.first_or_again(ask)
        todo = Fetch(ask) if self._once is None else self._once.first_or_again(ask)
        self._to_fetch = ask if isinstance(todo, Fetch) else None
        return todo

    def answer(
        self,
        ask: Ask,
        block: PlainBlock,
        *,
        absent: Sequence[int] = (),
        users: Sequence[str] | None = None,
    ) -> list[PassiveInstruction]:
        """Mask the rows that were looked up, and send them.

        Rows at the places ``absent`` are zeros: it has no features of these users, or does not
        answer about them.  ``users`` are the ids of the users that the ask names by pseudonyms.
        """
        if self._slots is not None:
            return self._answer_in_slot(self._slots, ask, block, missing=len(absent))
        if ask is not self._to_fetch:
            # Meanwhile the same ask may have come again, or a later one been answered.
            todo = self.hear(ask)
            if not isinstance(todo, Fetch):
                return [todo]
        self._to_fetch = None
        stamp = Stamp(ask.epoch, ask.round, ask.attempt)
        try:
            rows = self._masked(ask, block)
            parts = None
            withheld: tuple[int, ...] = ()
            if self._once is not None and not ask.trial:
                parts = user_parts(ask, self._ids(ask, users))
                withheld = tuple(absent)
            return self._send(
                rows,
                stamp,
                ask.senders,
                epoch=ask.epoch,
                digest=digest_for(ask),
                asked=b"" if self._once is None else rows_digest(ask),
                missing=len(absent),
                parts=parts,
                withheld=withheld,
            )
        except (MaskError, WireError, SecureSumError) as error:
            return [Reply(Declined(ask.round, ask.attempt, "features", str(error)))]

    def _answer_in_slot(
        self, slots: Slots, ask: Ask, block: PlainBlock, *, missing: int
    ) -> list[PassiveInstruction]:
        try:
            if len(block) != ask.n_rows:
                raise WireError(f"rows: wanted {ask.n_rows}, got {len(block)}")
            return slots.answer(ask, block, missing=missing)
        except (ArmError, SharesError, WireError) as error:
            # Only the owner of a row may know that it is a long one.
            reason = "the rows cannot be shared under the terms"
            refused = LogLine("rows_refused", {"round": ask.round, "reason": str(error)})
            return [refused, Reply(Declined(ask.round, ask.attempt, "features", reason))]

    def part(
        self, message: Prepare, new: MaskShare, *, roster: str, deal: str
    ) -> list[PassiveInstruction]:
        """Its part of a mask change; raises MaskError or SecureSumError.

        ``roster`` is the digest of the roster that comes into force, and ``deal`` names the deal of
        the new share.
        """
        # Pads go by the round's number, by the epoch in force, and by what comes into force.
        return self._send(
            remask_part(self._share, new),
            Stamp(self.epoch, message.round),
            message.senders,
            epoch=message.epoch,
            digest=digest_of(change_keys(message.epoch, message.senders)),
            asked=ask_digest(CHANGE, (), (), details=(message.epoch, roster, deal)),
        )

    def problem_with_senders(self, senders: tuple[str, ...], *, after: Roster | None = None) -> str:
        """Why no message may go out with these senders; as ``OnceOnly.problem_with``."""
        if self._once is not None:
            return self._once.problem_with(senders, after=after)
        return "senders are named for secure sums only" if senders else ""

    def trial_rows(self, ask: Ask) -> PlainBlock:
        """The public test rows that an ask of a trial wants."""
        member = self._place.member
        return trial_block(ask.trial, member.name, ask.keys(), width=member.width)

    def _problem_with(self, ask: Ask) -> Declined | None:
        if ask.epoch != self.epoch:
            name = self._place.member.name
            reason = f"epoch: the ask has {ask.epoch}, {name!r} is at {self.epoch}"
            return Declined(ask.round, ask.attempt, "stale_epoch", reason)
        problem = problem_with_rows(ask, layout=self._layout, n_columns=self._columns)
        if not problem and self._slots is not None:
            problem = self._slots.problem_with(ask)
        elif not problem and ask.place is not None:
            problem = "slots are for protection 'shares'"
        problem = problem or self.problem_with_senders(ask.senders)
        return Declined(ask.round, ask.attempt, "bad_request", problem) if problem else None

    def _masked(self, ask: Ask, block: PlainBlock) -> MaskedBlock:
        if len(block) != ask.n_rows:
            raise WireError(f"rows: wanted {ask.n_rows}, got {len(block)}")
        share = self._share
        if ask.trial:
            # Everybody knows this mask: real features must not go through it.
            if not np.array_equal(block, self.trial_rows(ask)):
                raise WireError(
                    f"wanted the public rows of trial {ask.trial}, got rows that differ from them"
                )
            share = self._trial_mask.share(ask.trial)
        refuse_not_finite(block)
        rows = share.mask(block)
        refuse_out_of_bounds(rows, self._bound)
        return rows

    def _ids(self, ask: Ask, users: Sequence[str] | None) -> Sequence[str]:
        """The ids of the users of an ask; pads that go by pseudonyms would never cancel."""
        if not self._by_pseudonyms:
            return ask.users
        if users is None or len(users) != len(ask.users):
            came = "none" if users is None else str(len(users))
            raise WireError(f"users: wanted the ids of {len(ask.users)} pseudonyms, got {came}")
        return users

    def _send(  # noqa: PLR0913  (one argument for each field of the answer)
        self,
        rows: MaskedBlock,
        stamp: Stamp,
        senders: tuple[str, ...],
        *,
        epoch: int,
        digest: bytes,
        asked: bytes,
        missing: int = 0,
        parts: Sequence[RowsOfOne] | None = None,
        withheld: tuple[int, ...] = (),
    ) -> list[PassiveInstruction]:
        """Send masked rows: as they are, or under pads and after they are in the outbox."""
        values = rows.data
        if self._once is not None:
            blinded = self._once.cover(
                rows, stamp, senders, asked=asked, parts=parts, withheld=withheld
            )
            values = blinded.values.data
        answer = Answer(
            round=stamp.round,
            attempt=stamp.attempt,
            epoch=epoch,
            digest=digest,
            n_rows=rows.shape[0],
            n_columns=rows.shape[1],
            values=memoryview(values).cast("B"),
            missing=missing,
            withheld=withheld,
        )
        if self._once is None:
            return [Reply(answer)]
        return [Keep(stamp, tuple(sorted(senders)), answer, asked), Reply(answer)]
