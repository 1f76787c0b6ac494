"""A federation of roles without clocks, sockets or files: messages are handed over by hand."""

import hashlib
import os
from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np
from numpy.testing import assert_allclose
from organiser import Organiser
from scipy.linalg import block_diag

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import VFBanditsError
from vfbandits.protocol.active import ActiveParticipant, Patience
from vfbandits.protocol.change import plan_change
from vfbandits.protocol.instructions import (
    Changed,
    ChangeFailed,
    Close,
    DropShares,
    Fetch,
    Gathered,
    Keep,
    LogLine,
    Reply,
    Resend,
    Send,
    StoreShare,
)
from vfbandits.protocol.messages import Answer, Ask, Declined, Hello
from vfbandits.protocol.passive import HeldShare, PassiveParticipant, Secrets
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.protocol.trial import trial_block, trial_shares
from vfbandits.protocol.version import SPOKEN

WIDTHS = {"shop": 3, "bank": 2, "news": 4}
MODES = (("blockwise", "plain"), ("dense", "plain"), ("dense", "secure"))
LAYOUTS = ("per_arm", "outer", "disjoint")


@dataclass
class Disk:
    """What a passive participant has written down."""

    held: dict = field(default_factory=dict)
    outbox: dict = field(default_factory=dict)
    next_round: int = 1


class KilledError(Exception):
    """A passive participant was killed; what it wrote before is on its disk."""


class PureFederation(Organiser):
    """Participants "shop" (active), "bank", "news", …; features come from ``features``.

    With ``runs_by_itself`` every message is delivered at once; without, ``run`` delivers them, and
    a test may look into ``up`` and ``down``, lists of (participant, stream, message), before.
    """

    def __init__(  # noqa: PLR0913  (each differs in some test)
        self,
        widths=WIDTHS,
        *,
        mask="blockwise",
        aggregation="plain",
        layout="per_arm",
        bound=64.0,
        users="clear",
        patience=None,
        start=True,
        spoken=None,
    ):
        super().__init__(
            mask=mask, aggregation=aggregation, layout=layout, bound=bound, users=users
        )
        self.patience = patience or Patience()
        self.spoken = spoken or {}  # versions of the protocol, by participant
        self.roster = self.make_roster(widths, number=1)
        self.signed = sign_roster(self.roster, self.ca)
        self.now = 0.0
        self.runs_by_itself = True
        self.disks = {member.name: Disk() for member in self.roster.passive}
        self.passive = {}
        self.streams, self.n_streams = {}, 0  # as passive participants know them
        self.links = {}  # the same, as the active one knows them: from the hello on
        self.slow = set()  # participants that hear nothing for now
        self.everyone = set()  # all users that were asked for
        self.unknown_at = defaultdict(set)  # users, or keys, that a participant has no row of
        self.crash_in = {}  # instructions that a participant carries out before it is killed
        self.up, self.down = deque(), deque()
        self.rounds = {}  # keys, trial and epoch of each round
        self.gathered, self.notes, self.changes, self.failures = {}, [], [], []
        self.under_pads = defaultdict(set)  # all bytes sent by a participant under one stamp
        share, envelopes = self.deal(self.roster, 1)
        self.active = ActiveParticipant(
            self.roster,
            share,
            epoch=1,
            patience=self.patience,
            spoken=self.spoken.get(self.roster.active.name, SPOKEN),
            sealing_key=self.sealing[self.roster.active.name],
        )
        self.active.envelopes = envelopes
        for name in self.disks if start else ():
            self.start(name)

    # --- masks

    def shares(self):
        """The shares of the epoch in force, of those that have one."""
        epoch = self.active.epoch
        held = {
            member.name: self.disks[member.name].held[epoch].share
            for member in self.active.roster.passive
            if member.name in self.disks and epoch in self.disks[member.name].held
        }
        return {self.active.roster.active.name: self.active.share, **held}

    def mask(self):
        """The whole mask of the epoch in force."""
        columns = [share.columns for share in self.shares().values()]
        return np.hstack(columns) if self.terms.mask == "dense" else block_diag(*columns)

    # --- participants come and go

    def start(self, name):
        """(Re)start a passive participant from what it has on disk, and dial."""
        disk = self.disks.setdefault(name, Disk())
        signed = disk.held[min(disk.held)].signed_roster if disk.held else self.signed
        self.passive[name] = PassiveParticipant(
            name,
            signed,
            self.ca.public_key(),
            Secrets(self.sealing[name], os.urandom),
            held=disk.held,
            next_round=disk.next_round,
            spoken=self.spoken.get(name, SPOKEN),
        )
        self.dial(name)

    def restart_active(self, *, first_round=1):
        """Kill the active participant, and start it from what it must have written down."""
        old = self.active
        self.streams.clear()
        self.links.clear()
        self.active = ActiveParticipant(
            old.roster,
            old.share,
            epoch=old.epoch,
            patience=old.patience,
            has_share=sorted(old.has_share),
            first_round=first_round,
            spoken=old.spoken,
            sealing_key=self.sealing[old.roster.active.name],
        )
        self.active.envelopes = old.envelopes
        self.gathered = {}

    def dial(self, name):
        self.n_streams += 1
        self.streams[name] = self.n_streams
        self.up.append((name, self.n_streams, self.passive[name].hello()))
        self.maybe_run()

    def hang_up(self, name):
        """The stream breaks: what is under way on it is lost."""
        self.streams.pop(name, None)
        if self.links.pop(name, None) is not None:
            self.carry_out(self.active.leave(name, self.now))
        self.maybe_run()

    # --- rounds and changes

    def keys(self, users, arms):
        return Ask(0, 0, 0, users, arms if self.terms.layout == "per_arm" else ()).keys()

    def ask(self, users=("ann", "bob"), arms=(("a", "b"), ("b", "c", "d")), *, trial=0, own=None):
        """Start a round, by default with the active participant's right rows."""
        keys, name = self.keys(users, arms), self.active.split.active
        if own is None:
            width = self.active.split.widths[0]
            own = trial_block(trial, name, keys, width=width) if trial else features(
                name, keys, width
            )  # fmt: skip
        self.rounds[self.active.next_round] = (keys, trial)
        self.everyone.update(users)
        number, todo = self.active.ask(users, arms, PlainBlock(own), self.now, trial=trial)
        self.carry_out(todo)
        self.maybe_run()
        return number

    def expected(self, number, contributors):
        """What the contexts of a round must be: zeros for those that did not contribute."""
        keys, trial = self.rounds[number]
        split = self.active.split
        shares = trial_shares(trial, self.active.roster) if trial else self.shares()
        total = np.zeros((len(keys), split.dim))
        for name, width in split.items():
            if name not in contributors:
                continue
            block = trial_block(trial, name, keys, width=width) if trial else features(
                name, keys, width
            )  # fmt: skip
            rows = shares[name].mask(block)
            if self.terms.mask == "dense":
                total += rows
            else:
                total[:, split.columns(name)] = rows
        return total

    def check(self, number, contributors):
        """The contexts of a round are those of its contributors, and zeros for the others."""
        gathered = self.gathered[number]
        assert gathered.contributors == tuple(contributors)
        assert_allclose(gathered.contexts, self.expected(number, contributors), atol=1e-11)
        return gathered

    def check_all(self):
        """A new round has everybody's features."""
        number = self.ask()
        self.wait(self.patience.deadline_s)
        return self.check(number, self.active.split.names)

    def wait(self, seconds):
        self.now += seconds
        self.carry_out(self.active.tick(self.now))
        self.maybe_run()

    def plan(self, widths=None, **other):
        roster = self.active.roster
        after = roster if widths is None else self.make_roster(widths, number=roster.number + 1)
        epoch = self.active.epoch + 1
        share, envelopes = self.deal(after, epoch)
        settings = {
            "epoch": epoch,
            "round_number": self.active.next_round,
            "before": roster,
            "after": after,
            "old_share": self.active.share,
            "share": share,
            "signed_roster": sign_roster(after, self.ca) if widths is not None else b"",
            "envelopes": envelopes,
        }
        return plan_change(**{**settings, **other})

    def begin_change(self, widths=None, **other):
        change = self.plan(widths, **other)
        self.carry_out(self.active.begin_change(change, self.now))
        self.maybe_run()
        return change

    def finish_change(self):
        change = self.active.change
        todo = self.active.finish_change()
        if change.signed_roster:
            self.roster, self.signed = change.after, change.signed_roster
        self.carry_out(todo)
        self.maybe_run()

    def change(self, widths=None):
        """A whole change; newcomers start afterwards.  Returns what it did to the model."""
        self.begin_change(widths)
        remask = self.changes[-1].remask
        self.finish_change()
        for name in self.active.split.passive:
            if name not in self.passive:
                self.start(name)
        return remask

    # --- messages

    def maybe_run(self):
        if self.runs_by_itself:
            self.run()

    def run(self):
        """Deliver until nothing moves; slow participants hear nothing."""
        waiting = []
        while self.up or self.down:
            if self.down:
                entry = self.down.popleft()
                if entry[0] in self.slow:
                    waiting.append(entry)
                else:
                    self.deliver_down(*entry)
            if self.up:
                self.deliver_up(*self.up.popleft())
        self.down.extend(waiting)

    def run_down(self):
        """Deliver to passive participants only: what they say to it stays in ``up``."""
        waiting = [entry for entry in self.down if entry[0] in self.slow]
        self.down = deque(entry for entry in self.down if entry[0] not in self.slow)
        while self.down:
            self.deliver_down(*self.down.popleft())
        self.down.extend(waiting)

    def sent_by(self, name, kind):
        """The one message of a kind that a participant has under way."""
        (message,) = [m for n, _, m in self.up if n == name and isinstance(m, kind)]
        return message

    def hear(self, name, message):
        """The active participant hears this of a participant, whoever made it."""
        self.carry_out(self.active.hear(name, message, self.now))

    def happens(self, role, method, *what):
        """Something happens to a role; returns what it does about it."""
        del role
        return method(*what)

    def deliver_down(self, name, stream, message):
        if self.streams.get(name) != stream:
            return
        if message is None:
            self.hang_up(name)
            return
        try:
            role = self.passive[name]
            self.obey(name, self.happens(role, role.hear, message))
        except KilledError:
            del self.passive[name]
            self.hang_up(name)
        except VFBanditsError as error:
            self.notes.append(("hung_up", {"at": name, "reason": str(error)}))
            self.hang_up(name)

    def deliver_up(self, name, stream, message):
        if self.streams.get(name) != stream:
            return
        try:
            if isinstance(message, Hello) and self.links.get(name) != stream:
                self.links[name] = stream
                self.carry_out(self.active.join(name, message, self.now))
            else:
                happened = (self.active, self.active.hear, name, message, self.now)
                self.carry_out(self.happens(*happened))
        except VFBanditsError as error:
            self.notes.append(("message_refused", {"participant": name, "reason": str(error)}))
            self.hang_up(name)

    def carry_out(self, instructions):
        for todo in instructions:
            match todo:
                case Send(to, message):
                    if to in self.links:
                        self.down.append((to, self.links[to], message))
                case Close(to):
                    if to in self.links:
                        self.down.append((to, self.links[to], None))
                case Gathered(number):
                    assert number not in self.gathered
                    self.gathered[number] = todo
                case Changed():
                    self.changes.append(todo)
                case ChangeFailed():
                    self.failures.append(todo)
                case LogLine(event, facts):
                    self.notes.append((event, facts))

    def obey(self, name, instructions):
        for todo in instructions:
            if name in self.crash_in:
                self.crash_in[name] -= 1
                if self.crash_in[name] < 0:
                    del self.crash_in[name]
                    raise KilledError
            self.obey_one(name, self.disks[name], todo)

    def obey_one(self, name, disk, todo):
        match todo:
            case Reply(message):
                self.reply(name, message)
            case Fetch(ask):
                self.obey(name, self.fetched(name, ask))
            case Keep(stamp, senders, answer, asked):
                assert stamp not in disk.outbox
                disk.outbox[stamp] = (senders, asked, answer)
                disk.next_round = max(disk.next_round, stamp.round + 1)
            case Resend(stamp, ask, asked):
                kept = disk.outbox.get(stamp)
                code = "lost_bytes" if kept is None else "pads"
                lost = Declined(ask.round, ask.attempt, code, "not in the outbox")
                same = kept is not None and kept[:2] == (tuple(sorted(ask.senders)), asked)
                self.reply(name, kept[2] if same else lost)
            case StoreShare(epoch, share, roster):
                disk.held[epoch] = HeldShare(share, roster)
            case DropShares(keep):
                disk.held = {keep: disk.held[keep]}
            case LogLine(event, facts):
                self.notes.append((event, {"at": name, **facts}))

    def fetched(self, name, ask):
        """What a passive participant does with an ask for rows."""
        role = self.passive[name]
        width = role.roster.find(name).width
        if ask.trial:
            return role.answer(ask, role.trial_rows(ask))
        gone, users = self.unknown_at[name], ask.users
        if role.pseudonyms is not None:
            known = {role.pseudonyms.of(user): user for user in self.everyone - gone}
            users = tuple(known.get(pseudonym, "a stranger") for pseudonym in users)
            gone = {*gone, "a stranger"}
        keys = ask._replace(users=users).keys()
        absent = [place for place, key in enumerate(keys) if key[0] in gone or key in gone]
        block = features(name, keys, width)
        block[absent] = 0.0
        return role.answer(ask, block, absent=absent, users=users)

    def reply(self, name, message):
        if isinstance(message, Answer) and self.terms.aggregation == "secure":
            self.under_pads[name, message.round, message.attempt].add(bytes(message.values))
        if name in self.streams:
            self.up.append((name, self.streams[name], message))

    # --- looking back

    def noted(self, event):
        """The facts of all notes of an event."""
        return [facts for name, facts in self.notes if name == event]


def features(name, keys, width):
    """Features that anybody can make again: by participant and key."""
    rows = [_draws(name, *key).standard_normal(width) for key in keys]
    return PlainBlock(np.array(rows).reshape(-1, width))


def _draws(*words):
    digest = hashlib.sha256("/".join(words).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype="<u4"))
