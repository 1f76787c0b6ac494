"""The active participant: asks, gathers, and never waits longer than a deadline.

A state machine without a clock or a socket.  Every method takes what happened, with the time at
which it did, and returns what to do about it.  Rounds are in rounds.py, mask changes in change.py.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.context import Split
from vfbandits.core.mask import MaskShare
from vfbandits.core.shares.messages import Place
from vfbandits.errors import (
    HandshakeError,
    LinkError,
    MaskError,
    SecureSumError,
    SettingError,
    WireError,
)
from vfbandits.protocol.change import Change
from vfbandits.protocol.circuit import Circuit
from vfbandits.protocol.handshake import (
    MAX_ROUND_STEP,
    MAX_SLOT_STEP,
    SLOT_STEPS_PER_S,
    agree_on_version,
    envelope_for,
    refuse_unless_agreed,
)
from vfbandits.protocol.instructions import (
    ActiveInstruction,
    ChangeFailed,
    Close,
    Facts,
    LogLine,
    Send,
)
from vfbandits.protocol.messages import (
    Answer,
    Commit,
    Declined,
    Hello,
    Helped,
    Pong,
    Refused,
    ToActive,
    Welcome,
)
from vfbandits.protocol.pseudonyms import pseudonyms_for_all
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.rounds import Rounds
from vfbandits.protocol.seat import Seat
from vfbandits.protocol.version import SPOKEN, Versions


@dataclass(frozen=True, slots=True)
class Patience:
    """Timeouts and limits of the active participant; durations are in seconds.

    Attributes
    ----------
    deadline_s
        Features of a participant that takes longer count as zeros.
    ping_every_s
        Interval between pings.
    change_s
        Timeout of a mask change.
    failures_to_open
        Consecutive failures until a participant's circuit opens; an answered ping closes it.
    """

    deadline_s: float = 0.25
    ping_every_s: float = 0.5
    change_s: float = 30.0
    failures_to_open: int = 3

    def __post_init__(self) -> None:
        """Refuse values that are not positive."""
        for key in ("deadline_s", "ping_every_s", "change_s", "failures_to_open"):
            if not getattr(self, key) > 0:
                raise SettingError(f"{key} must be above 0, got {getattr(self, key)!r}")


class ActiveParticipant:
    """The role; ``share`` is the active participant's own share of the mask of ``epoch``.

    ``has_share`` names the passive participants behind whose share of this epoch something was
    learnt: such a share, once lost, cannot be replaced by another one.

    ``first_round`` follows all rounds that it knows to have asked for.  A hello of a passive
    participant may move it forward, by ``MAX_ROUND_STEP`` in total: more than an honest one needs,
    and too little to use the numbers up.  On secret shares each number was dealt: a participant may
    skip ``MAX_SLOT_STEP`` in one go, and few over time.

    ``spoken`` are the versions of the protocol that it speaks; each seat has the one of its stream.
    ``sealing_key`` is needed where the roster has users asked for by pseudonyms.
    """

    def __init__(  # noqa: PLR0913  (one argument for each thing that it owns)
        self,
        roster: Roster,
        share: MaskShare,
        *,
        epoch: int,
        patience: Patience | None = None,
        has_share: Sequence[str] = (),
        first_round: int = 1,
        spoken: Versions = SPOKEN,
        sealing_key: X25519PrivateKey | None = None,
    ) -> None:
        self.spoken = spoken
        self._sealing_key = sealing_key
        self.patience = patience or Patience()
        self.envelopes: dict[str, bytes] = {}
        self.seats: dict[str, Seat] = {}
        self.change: Change | None = None
        self._next_round = first_round
        self._moved_by: Counter[str] = Counter()
        self._slot_steps: dict[str, tuple[float, float]] = {}
        self._rounds = self._rounds_of(roster, share, epoch=epoch, in_use=has_share)

    def _rounds_of(
        self, roster: Roster, share: MaskShare, *, epoch: int, in_use: Iterable[str]
    ) -> Rounds:
        pseudonyms = pseudonyms_for_all(roster, self._sealing_key)
        return Rounds(
            roster, share, epoch=epoch, seats=self.seats, in_use=in_use, pseudonyms=pseudonyms
        )

    @property
    def roster(self) -> Roster:
        """The roster in force."""
        return self._rounds.roster

    @property
    def epoch(self) -> int:
        """The mask epoch in force."""
        return self._rounds.epoch

    @property
    def share(self) -> MaskShare:
        """The active participant's own share of the mask in force."""
        return self._rounds.share

    @property
    def split(self) -> Split:
        """The participants in force and their widths."""
        return self._rounds.split

    @property
    def has_share(self) -> frozenset[str]:
        """Participants behind whose share of this epoch something was learnt.

        Keep it over a restart.  It grows with each log line "share_in_use".  A mask change sets it
        to the participants that stay.
        """
        return frozenset(self._rounds.in_use)

    @property
    def n_open(self) -> int:
        """Rounds that are being gathered."""
        return len(self._rounds)

    @property
    def next_deadline(self) -> float | None:
        """When the first of the open rounds ends at the latest."""
        return self._rounds.next_deadline

    @property
    def next_round(self) -> int:
        """The number that the next round will have."""
        return self._next_round

    def resume_at(self, first_round: int) -> None:
        """Use no number below this one; rounds on secret shares have the numbers of slots."""
        self._next_round = max(self._next_round, first_round)

    # --- participants come and go -------------------------------------------------------------

    def join(self, sender: str, hello: Hello, now: float) -> list[ActiveInstruction]:
        """Handle the hello of the participant whose certificate names ``sender``."""
        done = self.leave(sender, now)  # a new stream takes the place of an old one
        try:
            protocol = agree_on_version(hello, sender=sender, spoken=self.spoken)
            envelope, skipped = self._admit(sender, hello, now)
        except (HandshakeError, LinkError) as error:
            code = "handshake" if isinstance(error, HandshakeError) else "busy"
            line = LogLine("handshake_refused", {"participant": sender, "reason": str(error)})
            return [*done, Send(sender, Refused(code, str(error))), Close(sender), line]
        circuit = Circuit(self.patience.failures_to_open)
        self.seats[sender] = Seat(
            sender, circuit, pinged_at=now, protocol=protocol, noise=hello.noise
        )
        facts: Facts = {"participant": sender, "epoch": self.epoch, "protocol": protocol}
        if hello.noise is not None:
            facts = {**facts, "noise": str(hello.noise)}
        line = LogLine("participant_joined", facts)
        welcome = Send(sender, Welcome(self.epoch, envelope, protocol))
        return [*done, welcome, line, *skipped, *self._rounds.ask_again(sender)]

    def _admit(
        self, sender: str, hello: Hello, now: float
    ) -> tuple[bytes, list[ActiveInstruction]]:
        refuse_unless_agreed(hello, self.roster, sender=sender, epoch=self.epoch)
        if self.change is not None and self.change.is_ready:
            # Welcomed to the epoch before, it would throw away its share of the next one.
            raise LinkError(
                f"wanted a hello after the mask change to epoch {self.change.epoch}, got one "
                "during it: dial again"
            )
        envelope = envelope_for(
            hello,
            epoch=self.epoch,
            has_share=sender in self._rounds.in_use,
            envelope=self.envelopes.get(sender),
            needs_envelope=self.roster.terms.mask == "dense",
        )
        if sender not in self.split.names:  # a helper without features answers no round
            return envelope, []
        return envelope, self._catch_up(sender, hello.next_round, now)

    def _catch_up(self, sender: str, theirs: int, now: float) -> list[ActiveInstruction]:
        """Move on to the round that ``sender`` is at, by no more than it may still skip.

        So nothing is sent twice under one number.  A participant that is still further ahead is
        refused; the others are admitted.
        """
        if self.roster.terms.shares is not None:
            return self._skip_slots(sender, theirs - self._next_round, now)
        step = min(max(0, theirs - self._next_round), MAX_ROUND_STEP - self._moved_by[sender])
        self._moved_by[sender] += step
        self._next_round += step
        if theirs > self._next_round:
            raise HandshakeError(
                f"next_round: the active participant has {self._next_round}, {sender!r} has "
                f"{theirs}: wanted at most {MAX_ROUND_STEP} more than the active participant had "
                "at its start.  If that has lost the file of its round, restore the file"
            )
        return []

    def _skip_slots(self, sender: str, count: int, now: float) -> list[ActiveInstruction]:
        """Discard slots that ``sender`` reserved before a restart, if they are not too many.

        Each was dealt.  A participant that claims more and more of them is refused until the
        decisions of the others have caught up.
        """
        if count <= 0:
            return []
        left, at = self._slot_steps.get(sender, (float(MAX_SLOT_STEP), now))
        left = min(float(MAX_SLOT_STEP), left + (now - at) * SLOT_STEPS_PER_S)
        if count > left:
            raise HandshakeError(
                f"next_round: {sender!r} has used {count} slots more than the active participant "
                f"knows of: wanted at most {int(left)} now, since each was dealt.  If the active "
                "participant has lost the file of its round, restore the file; otherwise wait"
            )
        self._slot_steps[sender] = left - count, now
        self._next_round += count
        return [LogLine("slots_skipped", {"participant": sender, "slots": count})]

    def leave(self, name: str, now: float) -> list[ActiveInstruction]:
        """The stream of a participant has ended, at the time ``now``."""
        del now
        if self.seats.pop(name, None) is None:
            return []
        left = LogLine("participant_left", {"participant": name})
        done = [left, *self._rounds.lose(name)]
        if self.change is not None and self.change.needs(name):
            done += self._give_up(self.change, f"{name!r} left")
        return done

    # --- rounds -------------------------------------------------------------------------------

    def askable(self) -> tuple[str, ...]:
        """The participants that a new round would ask."""
        return self._rounds.askable()

    def ask(  # noqa: PLR0913  (what is asked for, by name)
        self,
        users: tuple[str, ...],
        arms: tuple[tuple[str, ...], ...],
        own: PlainBlock,
        now: float,
        *,
        trial: int = 0,
        campaigns: tuple[str, ...] = (),
        place: Place | None = None,
        absent: tuple[str, ...] = (),
    ) -> tuple[int, list[ActiveInstruction]]:
        """Start a round for these users; ``own`` are the active participant's plain rows.

        ``trial``, ``campaigns``, ``place`` and ``absent`` as in ``Ask``.  On secret shares rounds
        are numbered by their slots, and a slot before ``next_round`` is refused.
        """
        number = self._next_round
        if self.roster.terms.shares is not None:
            number = self._round_of(place, trial)
        ask = self._rounds.ask_for(
            number, users, arms, trial=trial, campaigns=campaigns, place=place, absent=absent
        )
        done = self._rounds.open(ask, own, deadline=now + self.patience.deadline_s)
        self._next_round = number + 1
        return number, done

    def _round_of(self, place: Place | None, trial: int) -> int:
        """The number of the round in a slot that was not used before."""
        if place is None or trial:
            raise WireError("on secret shares a round needs a slot, and there are no trials")
        number = self.roster.share_terms.round_of(place)
        if number < self._next_round:
            raise WireError(f"slot: wanted round {self._next_round} or later, got {number}")
        return number

    def hear(self, sender: str, message: ToActive, now: float) -> list[ActiveInstruction]:
        """Handle a message of a participant that has joined."""
        seat = self.seats.get(sender)
        if seat is None:
            raise LinkError(f"wanted a hello of {sender!r} first, got {type(message).__name__}")
        if isinstance(message, Answer):
            if self.change is not None and message.round == self.change.gathering.round:
                return self._hear_part(self.change, sender, message)
            return self._rounds.hear_answer(seat, message)
        if isinstance(message, Declined):
            return self._hear_declined(seat, message, now)
        if isinstance(message, Pong):
            return seat.pong(message.number)
        rules = self.roster.terms.shares
        if isinstance(message, Helped) and rules is not None and sender == rules.helper:
            return [message]
        raise WireError(f"wanted an answer of {sender!r}, got {type(message).__name__}")

    def _hear_declined(self, seat: Seat, message: Declined, now: float) -> list[ActiveInstruction]:
        line = LogLine(
            "answer_declined",
            {
                "participant": seat.name,
                "round": message.round,
                "code": message.code,
                "reason": message.reason,
            },
        )
        change = self.change
        if change is None or message.round != change.gathering.round:
            return [line, *self._rounds.hear_declined(seat, message, now)]
        if not change.waits_for(seat.name):
            return [line]
        return [line, *self._give_up(change, f"{seat.name!r} declined: {message.reason}")]

    def tick(self, now: float) -> list[ActiveInstruction]:
        """Time has passed: end rounds at their deadlines, ping behind open circuits."""
        done = self._rounds.expire(now)
        for seat in self.seats.values():
            done += seat.ping(now, every_s=self.patience.ping_every_s)
        change = self.change
        if change is not None and not change.is_ready and now >= change.gathering.deadline:
            away = ", ".join(change.gathering.waiting_for)
            done += self._give_up(change, f"no part came in time from {away}")
        return done

    # --- another epoch ------------------------------------------------------------------------

    def begin_change(self, change: Change, now: float) -> list[ActiveInstruction]:
        """Start a change to other masks, and perhaps another roster; see change.py."""
        if self.change is not None:
            raise HandshakeError(f"a change to epoch {self.change.epoch} is under way already")
        change.refuse_unless_from(self.roster, self.share, epoch=self.epoch)
        pseudonyms_for_all(change.after, self._sealing_key)  # refused now, if it cannot be
        seats = self.seats
        away = [n for n in change.gathering.asked if n not in seats or seats[n].circuit.is_open]
        if away:
            raise HandshakeError(
                "a mask change needs every participant and helper that stays; disconnected: "
                f"{', '.join(away)}"
            )
        done: list[ActiveInstruction] = [LogLine("mask_change_started", {"epoch": change.epoch})]
        if change.is_ready:  # no passive participant stays
            done.append(change.changed())
        number = change.start(self._next_round, deadline=now + self.patience.change_s)
        self._next_round = number + 1
        self.change = change
        return [*done, *(Send(name, prepare) for name, prepare in change.prepares())]

    def _hear_part(self, change: Change, sender: str, answer: Answer) -> list[ActiveInstruction]:
        if not change.waits_for(sender):
            return [
                LogLine("mask_change_part_refused", {"participant": sender, "epoch": change.epoch})
            ]
        try:
            change.gathering.take(sender, answer)
            return [change.changed()] if change.is_ready else []
        except (WireError, MaskError, SecureSumError) as error:
            return self._give_up(change, f"with the part of {sender!r}: {error}")

    def _give_up(self, change: Change, reason: str) -> list[ActiveInstruction]:
        self.change = None
        done: list[ActiveInstruction] = [
            Send(name, change.abort()) for name in change.gathering.asked if name in self.seats
        ]
        failed = ChangeFailed(change.epoch, reason)
        return [
            *done,
            failed,
            LogLine("mask_change_failed", {"epoch": change.epoch, "reason": reason}),
        ]

    def finish_change(self) -> list[ActiveInstruction]:
        """Put the change into force after ``Changed``; no round may be open."""
        change = self.change
        if change is None or not change.is_ready or self.n_open:
            raise HandshakeError(
                "wanted a mask change that is ready and no open round, got "
                f"{'no change' if change is None else f'epoch {change.epoch}'}, {self.n_open} open"
            )
        self.change = None
        self.envelopes = dict(change.envelopes)
        stay = change.gathering.asked
        self._rounds = self._rounds_of(change.after, change.share, epoch=change.epoch, in_use=stay)
        done: list[ActiveInstruction] = [
            Send(name, Commit(change.epoch)) for name in stay if name in self.seats
        ]
        for name in [name for name in self.seats if name not in self.roster.stream_members]:
            del self.seats[name]
            gone = Refused("roster", f"{name!r} is no longer in the roster")
            done += [Send(name, gone), Close(name)]
        return [*done, LogLine("mask_change_completed", {"epoch": change.epoch})]
