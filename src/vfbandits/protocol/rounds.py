"""The rounds that the active participant has open, all behind masks of one epoch.

A participant that does not answer in time counts as zeros in that round.  With secure sums
all passive participants are asked, and if one message is missing the round falls back to the
active participant's own block.  It is never run again with fewer participants: the two sums
would differ by exactly the missing one's masked rows.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vfbandits.core.arrays import MaskedBlock, Matrix, PlainBlock
from vfbandits.core.mask import MaskShare
from vfbandits.core.shares.messages import Place
from vfbandits.errors import SecureSumError, WireError
from vfbandits.protocol.gathering import Gathering, Wanted
from vfbandits.protocol.instructions import ActiveInstruction, Facts, Gathered, LogLine, Send
from vfbandits.protocol.messages import Answer, Ask, Declined
from vfbandits.protocol.pseudonyms import Pseudonyms
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.rows import digest_for, problem_with_rows, refuse_not_finite
from vfbandits.protocol.seat import Seat
from vfbandits.protocol.trial import TrialMask

MAX_ATTEMPTS = 3


@dataclass(slots=True, eq=False)
class OpenRound:
    """A round that is being gathered; ``asks`` has the ask as each participant received it.

    ``plain`` are the active participant's rows, and ``own`` the same behind its share: None until
    the first answer comes.
    """

    gathering: Gathering
    ask: Ask
    asks: Mapping[str, Ask]
    plain: PlainBlock = field(repr=False)
    own: MaskedBlock | None = field(default=None, repr=False)


class Rounds:
    """The open rounds behind all shares of one epoch; the role keeps ``seats``.

    ``in_use`` names the passive participants behind whose share something was learnt;
    ``pseudonyms`` has the names by which each is asked for users, and is empty if that is by ids.
    """

    def __init__(
        self,
        roster: Roster,
        share: MaskShare,
        *,
        epoch: int,
        seats: Mapping[str, Seat],
        in_use: Iterable[str],
        pseudonyms: Mapping[str, Pseudonyms],
    ) -> None:
        self.roster = roster
        self.share = share
        self.epoch = epoch
        self.split = roster.split
        self.in_use = set(in_use)
        self._seats = seats
        self._pseudonyms = pseudonyms
        self._open: dict[int, OpenRound] = {}
        self._trial_mask = TrialMask(self.split.active, roster)
        self._dense = roster.terms.mask == "dense"
        self._secure = roster.terms.aggregation == "secure"
        self._shared = roster.terms.shares is not None
        self._adds = self._dense and not self._secure and not self._shared
        columns = roster.rows_width
        self._most_columns = max(columns.values())
        self._passive = self.split.passive
        self._own_width = self.split.widths[0]
        n_terms = len(self._passive)
        bound = roster.terms.bound
        self._wanted = Wanted(
            epoch=epoch,
            n_columns=columns,
            bound=bound,
            secure=self._secure,
            n_terms=n_terms,
            shared=self._shared,
        )

    def __len__(self) -> int:
        """How many are open."""
        return len(self._open)

    @property
    def next_deadline(self) -> float | None:
        """The earliest deadline of an open round."""
        # All rounds have the same timeout, so the oldest ends first.
        return next((opened.gathering.deadline for opened in self._open.values()), None)

    def present(self) -> tuple[str, ...]:
        """Participants that are connected, with a closed circuit."""
        seats = self._seats
        return tuple([n for n in self._passive if n in seats and not seats[n].circuit.is_open])

    def askable(self) -> tuple[str, ...]:
        """Participants that a new round would ask: with secure sums all, or none."""
        names = self.present()
        return names if not self._secure or len(names) == len(self._passive) else ()

    def ask_for(
        self,
        number: int,
        users: tuple[str, ...],
        arms: tuple[tuple[str, ...], ...],
        *,
        trial: int,
        campaigns: tuple[str, ...],
        place: Place | None = None,
        absent: tuple[str, ...] = (),
    ) -> Ask:
        """The ask of a round of this number; WireError if nobody could answer it."""
        layout = self.roster.terms.layout
        ask = Ask(
            round=number,
            attempt=0,
            epoch=self.epoch,
            users=users,
            arms=arms if layout == "per_arm" else (),
            senders=self.askable() if self._secure else (),
            trial=trial,
            campaigns=campaigns,
            place=place,
            absent=absent,
        )
        problem = problem_with_rows(ask, layout=layout, n_columns=self._most_columns)
        if problem:
            raise WireError(problem)
        return ask

    def open(self, ask: Ask, own: PlainBlock, *, deadline: float) -> list[ActiveInstruction]:
        """Start a round; ``own`` are the active participant's plain rows."""
        n_rows = ask.n_rows
        if own.shape != (n_rows, self._own_width):
            wanted = (n_rows, self._own_width)
            raise WireError(f"own block: wanted shape {wanted}, got {own.shape}")
        refuse_not_finite(own)
        asked = ask.senders if self._secure else self.askable()
        if self._goes_by_pseudonyms(ask):
            named = {name: self._named(name, ask) for name in asked}
        else:
            named = dict.fromkeys(asked, ask)
        if ask.absent:  # they receive the ask, and are not waited for
            asked = tuple(name for name in asked if name not in ask.absent)
            others = [name for name in ask.absent if name in self._seats and name not in named]
            named |= {name: self._named(name, ask) for name in others}
        rows_of = dict.fromkeys(asked, n_rows)
        user_rows = ask.rows_per_user if self._secure and not ask.trial else ()
        gathering = Gathering(
            round=ask.round,
            wanted=self._wanted,
            asked=asked,
            n_rows=rows_of,
            digests={},
            deadline=deadline,
            user_rows=user_rows,
        )
        opened = OpenRound(gathering, ask, named, own)
        self._open[ask.round] = opened
        sent: list[ActiveInstruction] = [Send(name, one) for name, one in named.items()]
        return sent if asked else [*sent, *self._settle(opened)]

    def _mask_own(self, opened: OpenRound) -> MaskedBlock:
        """Mask the own rows, and compute the digests that answers must have.

        It does not delay the asks: it is done when the first answer comes, while others are waited
        for.
        """
        ask, asks = opened.ask, opened.asks
        if self._goes_by_pseudonyms(ask):
            opened.gathering.digests = {name: digest_for(one) for name, one in asks.items()}
        elif asks:
            opened.gathering.digests = dict.fromkeys(asks, digest_for(ask))
        share = self._trial_mask.share(ask.trial) if ask.trial else self.share
        opened.own = share.mask(opened.plain)
        return opened.own

    def _goes_by_pseudonyms(self, ask: Ask) -> bool:
        """Whether users are named by pseudonyms; the invented ones of a trial are not."""
        return bool(self._pseudonyms) and not ask.trial

    def _named(self, name: str, ask: Ask) -> Ask:
        """The ask as one participant receives it."""
        if not self._goes_by_pseudonyms(ask):
            return ask
        return ask._replace(users=self._pseudonyms[name].of_all(ask.users))

    def ask_again(self, name: str) -> list[ActiveInstruction]:
        """Ask a participant that is back for its missing answers: it resends the same bytes."""
        return [
            Send(name, self._named(name, opened.ask))
            for opened in self._open.values()
            if name in opened.gathering.waiting_for
        ]

    def hear_answer(self, seat: Seat, answer: Answer) -> list[ActiveInstruction]:
        """Handle an answer, to an open round or not."""
        opened = self._open.get(answer.round)
        if opened is None:
            return [LogLine("answer_discarded", _facts(seat, answer))]
        gathering = opened.gathering
        own = opened.own
        if own is None and seat.name in gathering.asked:
            own = self._mask_own(opened)
        try:
            gathering.take(seat.name, answer)
        except WireError as error:
            refused = LogLine("answer_refused", {**_facts(seat, answer), "reason": str(error)})
            return [refused, *self._fail(opened, seat, answer.attempt)]
        if own is not None and self._adds:
            gathering.add_up(own)
        seat.circuit.succeed()
        done: list[ActiveInstruction] = []
        if seat.name not in self.in_use and not opened.ask.trial:
            self.in_use.add(seat.name)
            done.append(LogLine("share_in_use", {"participant": seat.name, "epoch": self.epoch}))
        if answer.missing:
            facts = {**_facts(seat, answer), "rows": answer.missing}
            done.append(LogLine("features_missing", facts))
        return done + self._settle(opened)

    def hear_declined(self, seat: Seat, message: Declined, now: float) -> list[ActiveInstruction]:
        """Handle a decline: a participant that was asked will not answer, or cannot."""
        opened = self._open.get(message.round)
        if opened is None:
            return []
        gathering = opened.gathering
        # Lost bytes can be made again under new pads, if all participants make theirs.
        if (
            message.code == "lost_bytes"
            and self._secure
            and self._waits(opened, seat.name, message.attempt)
            and gathering.attempt + 1 < MAX_ATTEMPTS
            and now < gathering.deadline
        ):
            return self._next_attempt(opened)
        # A decline for the owner's limits is no failure: other asks may be answered.
        return self._fail(opened, seat, message.attempt, is_fault=message.code != "limits")

    def lose(self, name: str) -> list[ActiveInstruction]:
        """The stream of a participant has ended.

        Plain rounds do without it.  Secure ones wait until their deadline: it may come back with
        the bytes that the sum needs.
        """
        done: list[ActiveInstruction] = []
        for opened in list(self._open.values()) if not self._secure else ():
            if name in opened.gathering.waiting_for:
                opened.gathering.failed.add(name)
                done += self._settle(opened)
        return done

    def expire(self, now: float) -> list[ActiveInstruction]:
        """End the rounds whose deadline has come."""
        done: list[ActiveInstruction] = []
        for opened in list(self._open.values()):
            gathering = opened.gathering
            if now < gathering.deadline:
                continue
            for name in gathering.waiting_for:
                facts: Facts = {"participant": name, "round": gathering.round}
                done.append(LogLine("answer_missing", facts))
                gathering.failed.add(name)
                if name in self._seats:
                    done += self._seats[name].strike()
            done += self._settle(opened)
        return done

    def _waits(self, opened: OpenRound, name: str, attempt: int) -> bool:
        gathering = opened.gathering
        return attempt == gathering.attempt and name in gathering.waiting_for

    def _fail(
        self, opened: OpenRound, seat: Seat, attempt: int, *, is_fault: bool = True
    ) -> list[ActiveInstruction]:
        """Count a participant that was waited for as failed in this round."""
        if not self._waits(opened, seat.name, attempt):
            return []
        opened.gathering.failed.add(seat.name)
        struck = seat.strike() if is_fault else []
        return [*struck, *self._settle(opened)]

    def _next_attempt(self, opened: OpenRound) -> list[ActiveInstruction]:
        """Ask everybody again under new pads: the same participants, or nobody."""
        gathering = opened.gathering
        gathering.next_attempt()
        opened.ask = opened.ask._replace(attempt=gathering.attempt)
        line = LogLine("round_retried", {"round": gathering.round, "attempt": gathering.attempt})
        asked = [name for name in gathering.asked if name in self._seats]
        return [line, *(Send(name, self._named(name, opened.ask)) for name in asked)]

    def _settle(self, opened: OpenRound) -> list[ActiveInstruction]:
        """Finish the round if nobody is left to wait for."""
        gathering = opened.gathering
        if not gathering.is_settled:
            return []
        del self._open[gathering.round]
        notes: list[ActiveInstruction] = []
        came = gathering.asked
        own = self._mask_own(opened) if opened.own is None else opened.own
        contexts: Matrix = own
        total: Matrix | None = None
        if not self._secure:
            if gathering.failed:
                came = tuple(name for name in came if name in gathering.came)
            if not self._shared:
                contexts = gathering.contexts(self.split, own, dense=self._dense)
        elif came:
            total, notes = _sum(gathering)
            if total is None:
                came = ()
            else:
                contexts = own + total
        gathered = Gathered(
            round=gathering.round,
            contexts=contexts,
            contributors=(self.split.active, *came),
            bytes_received=gathering.bytes_received,
            alone=gathering.alone,
            blocks={} if self._secure else gathering.came,
            total=total,
            unknown=gathering.unknown,
            is_trial=opened.ask.trial > 0,
        )
        return [*notes, gathered]


def _facts(seat: Seat, answer: Answer) -> Facts:
    return {"participant": seat.name, "round": answer.round}


def _sum(gathering: Gathering) -> tuple[Matrix | None, list[ActiveInstruction]]:
    """All or nothing: a partial sum of blinded blocks is noise."""
    facts: Facts = {"round": gathering.round}
    if not gathering.is_complete:
        missing = ", ".join(sorted(gathering.failed))
        return None, [LogLine("secure_sum_incomplete", {**facts, "missing": missing})]
    try:
        return gathering.total(), []
    except (SecureSumError, WireError) as error:
        return None, [LogLine("secure_sum_refused", {**facts, "reason": str(error)})]
