"""A federation of roles that is watched: what must hold at every step is checked at every step."""

from collections import defaultdict

import numpy as np
from fingerprint import fingerprint
from numpy.testing import assert_allclose
from pure_federation import PureFederation

from vfbandits.core.remask import remask_part
from vfbandits.errors import VFBanditsError
from vfbandits.protocol.instructions import (
    Changed,
    ChangeFailed,
    Fetch,
    Gathered,
    LogLine,
    Reply,
    Send,
)
from vfbandits.protocol.messages import Ask, Declined

IGNORED = ("answer_discarded", "mask_change_part_refused")
REFUSALS = ("bad_request", "stale_epoch", "stale_round", "pads")


class WatchedFederation(PureFederation):
    """Remembers who masked what with which share, and all that was ever delivered."""

    def __init__(self, widths, **settings):
        self.masked_with = {}  # (participant, round) -> share
        self.learnt_behind = {}  # (participant, epoch) -> share
        self.senders_of = defaultdict(set)  # round -> all sets of senders it was asked with
        self.history = {"up": [], "down": []}
        self.next_round = 0
        self.is_ready = False
        self.n_steps = 0
        super().__init__(widths, **settings)
        self.runs_by_itself = False

    def happens(self, role, method, *what):
        """Whatever is refused changes nothing, and only our own errors come out."""
        self.n_steps += 1
        before = fingerprint(role)
        try:
            done = method(*what)
        except VFBanditsError:
            assert fingerprint(role) == before
            raise
        if is_refusal(done):
            assert fingerprint(role) == before
        return done

    def deliver_down(self, name, stream, message):
        if self.streams.get(name) == stream and message is not None:
            self.history["down"].append((name, message))
        super().deliver_down(name, stream, message)

    def deliver_up(self, name, stream, message):
        if self.streams.get(name) == stream:
            self.history["up"].append((name, message))
        super().deliver_up(name, stream, message)

    def obey_one(self, name, disk, todo):
        if isinstance(todo, Fetch) and not todo.ask.trial:
            self.masked_with[name, todo.ask.round] = disk.held[todo.ask.epoch].share
        super().obey_one(name, disk, todo)

    def carry_out(self, instructions):
        for todo in instructions:
            if isinstance(todo, Send) and isinstance(todo.message, Ask):
                self.senders_of[todo.message.round].add(todo.message.senders)
            if isinstance(todo, Changed):
                self.check_parts(todo)
                self.is_ready = True
            if isinstance(todo, ChangeFailed):
                assert not self.is_ready  # then nothing stops it any more
        super().carry_out(instructions)
        for todo in instructions:
            if isinstance(todo, Gathered):
                self.round_in_check = todo.round
                self.check(todo.round, todo.contributors)
                self.check_contributors(todo.round, todo.contributors)

    def finish_change(self):
        super().finish_change()
        self.is_ready = False

    def check_parts(self, changed):
        """The change is that of the shares that are on everybody's disks."""
        change = self.active.change
        if change is None:  # nobody stays: it is there as soon as it begins
            return
        held = {name: self.disks[name].held for name in change.gathering.asked}
        if not all({self.active.epoch, change.epoch} <= set(shares) for shares in held.values()):
            return  # somebody was told another thing by a message that we made up
        pairs = {change.before.active.name: (change.old_share, change.share)}
        for name, shares in held.items():
            pairs[name] = (shares[self.active.epoch].share, shares[change.epoch].share)
        before, after = change.before.split, change.after.split
        R = np.zeros((after.dim, before.dim))
        for name, pair in pairs.items():
            if self.terms.mask == "dense":
                R += remask_part(*pair)
            else:
                R[after.columns(name), before.columns(name)] = remask_part(*pair)
        assert_allclose(changed.remask.R, R, atol=1e-11)

    def shares(self):
        """As they were used in the round that is being checked."""
        number = self.round_in_check
        own = {self.active.split.active: self.active.share}
        used = {name: share for (name, n), share in self.masked_with.items() if n == number}
        return {**own, **used}

    def check_everything(self):
        assert all(len(sent) == 1 for sent in self.under_pads.values())
        assert all(len(senders) == 1 for senders in self.senders_of.values())
        assert self.active.next_round >= self.next_round
        self.next_round = self.active.next_round
        assert set(self.active.seats) <= set(self.active.split.passive)

    def check_contributors(self, number, contributors):
        """One share for each participant and epoch; in secret, all that were asked or none."""
        passive = contributors[1:]
        if self.terms.aggregation == "secure" and passive:
            assert {passive} == self.senders_of[number]
        if self.rounds[number][1]:
            return  # a trial: behind public masks
        for name in passive:
            share = self.masked_with[name, number]
            first = self.learnt_behind.setdefault((name, self.active.epoch), share)
            assert first is share
            assert name in self.active.has_share

    def restart_active(self, *, first_round=1):
        super().restart_active(first_round=first_round)
        self.masked_with.clear()
        self.next_round = 0
        self.is_ready = False
        self.senders_of.clear()


def is_refusal(done):
    """Whether a role says, in these instructions, that it will not do what it was told."""
    if len(done) == 1 and isinstance(done[0], Reply):
        message = done[0].message
        return isinstance(message, Declined) and message.code in REFUSALS
    return bool(done) and all(isinstance(do, LogLine) and do.event in IGNORED for do in done)
