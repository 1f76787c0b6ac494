"""A campaign as a machine, with a journal in a list and a clock to turn."""

import contextlib

import numpy as np

import vfbandits as vfb
from vfbandits.campaign.events import GuardrailTripped, MasksChanged, Retracted
from vfbandits.campaign.exported import ExportedModel, put_back, reward_of
from vfbandits.campaign.history import History
from vfbandits.campaign.machine import Campaign
from vfbandits.campaign.model import Model
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings, Guardrail
from vfbandits.core.context import Split
from vfbandits.errors import VFBanditsError
from vfbandits.journal.record import decode, encode
from vfbandits.journal.snapshot import open_sealed, seal_snapshot
from vfbandits.journal.verify import difference

ARMS = ("tea", "coffee", "milk")
SPLIT = Split.of({"shop": 2, "bank": 3})


def first_settings(policy):
    guardrail = Guardrail(alpha=0.5, min_events=2)
    return CampaignSettings(policy, reward_wait_s=60.0, holdback=0.2, guardrail=guardrail)


def build(policy):
    bandit = vfb.Bandit(policy, dim=5, seed=7, max_open=4, max_settled=3)
    return Campaign(Model(bandit, epoch=1), first_settings(policy))


class World:
    """A journal in a list, and a clock; every event passes through its bytes."""

    def __init__(self, policy):
        self.campaign = build(policy)
        self.events = []
        self.now = 1_000.0
        self.n_events = 0
        self.exported = []

    def apply(self, event):
        if event is not None:
            written = decode(encode(event), len(self.events) + 1)
            self.events.append(written)
            self.campaign.apply(len(self.events), written)

    def found(self, event_id):
        return [
            (place, event)
            for place, event in enumerate(self.events, start=1)
            if getattr(event, "event_id", None) == event_id
        ]

    def past(self, event_id):
        past = History.found(self.found(event_id))
        if past is not None:
            moves = [
                (place, event)
                for place, event in enumerate(self.events, start=1)
                if isinstance(event, MasksChanged)
            ]
            past.mask_changes, past.mask_changes_to = moves, len(self.events)
        return past

    def ask(self, propose, event_id):
        """As a leader does: without the journal first."""
        verdict = propose(None)
        if verdict is None:
            verdict = propose(self.past(event_id))
        assert verdict is not None
        self.apply(verdict.event)

    def step(self, kind, number):
        self.now += number % 7
        with contextlib.suppress(VFBanditsError):  # refused: the caller is told, nothing changes
            getattr(self, f"do_{kind}")(np.random.default_rng(number), number)

    def do_rank(self, rng, number, *, activate=True):
        self.n_events += 1
        rows = rng.standard_normal((3, 5)) / 3.0
        contexts = Contexts(rows, SPLIT.names, split=SPLIT)
        query = Query("ann", ARMS, baseline=number % 3, activate=activate)
        name = f"event {self.n_events}"
        before = seal_snapshot(self.campaign.model.snapshot())
        ranking = self.campaign.rank(query, contexts, event_id=name, now=self.now)
        again = self.campaign.rank(query, contexts, event_id=name, now=self.now)
        # Not byte by byte: a sealed snapshot has the time of day in it.
        assert difference(self.campaign.model.snapshot(), open_sealed(before)) is None
        assert again.event.answer == ranking.event.answer
        self.apply(ranking.event)

    def do_hold(self, rng, number):
        self.do_rank(rng, number, activate=False)

    def any_event(self, rng):
        return f"event {rng.integers(1, self.n_events + 1)}" if self.n_events else "nobody"

    def do_activate(self, rng, number):
        event_id, now = self.any_event(rng), self.now
        if self.past(event_id) is not None:
            self.ask(lambda past: self.campaign.activate(event_id, now=now, past=past), event_id)

    def do_reward(self, rng, number):
        event_id, value = self.any_event(rng), float(number % 3)
        if self.past(event_id) is None:
            return
        reward_id = "ab"[number % 2]

        def propose(past):
            return self.campaign.reward(
                event_id, value, reward_id=reward_id, now=self.now, past=past
            )

        self.ask(propose, event_id)

    def do_settle(self, rng, number):
        self.now += 61.0 * (number % 2)
        names = [one.event_id for one in self.campaign.due(self.now, most=100)]
        cold = self.campaign.model.cold.over(self.now, most=100)
        names += [self.events[position - 1].event_id for position in cold]
        for name in names:
            self.ask(lambda past, n=name: self.campaign.end(n, now=self.now, past=past), name)

    def do_configure(self, rng, number):
        changes = ({"mode": "frozen"}, {"mode": "learn"}, {"aggregation": "sum"}, {"holdback": 0.0})
        self.apply(self.campaign.configure(changes[number % 4], now=self.now))

    def do_masks(self, rng, number):
        turn = np.linalg.qr(rng.standard_normal((5, 5)))[0]
        epoch = self.campaign.model.epoch + 1
        self.apply(self.campaign.change_masks(turn, epoch=epoch, signed_roster=b"roster"))

    def do_retract(self, rng, number):
        event_id = self.any_event(rng)
        past = self.past(event_id)
        self.apply(self.campaign.retract(event_id, by="ops", now=self.now, past=past).event)

    def do_watch(self, rng, number):
        self.apply(self.campaign.watch(now=self.now))
        if number % 5 == 0:  # as if it had lost
            self.apply(GuardrailTripped(5, 5, 0.0, 1.0, -1.0, -1.5, -0.5, 0.5, self.now))

    def do_rearm(self, rng, number):
        self.apply(self.campaign.rearm(by="ops", now=self.now))

    def do_export(self, rng, number):
        self.exported.append(ExportedModel.of(self.campaign.model, check=""))

    def do_restore(self, rng, number):
        if self.exported:
            model = self.campaign.model
            chosen = self.exported[number % len(self.exported)]
            chosen = ExportedModel.unpack(open_sealed(seal_snapshot(chosen.pack())))
            later = [*enumerate(self.events, start=1)][chosen.position :]
            rewards = {
                at: reward_of(at, self.found(one.event_id))
                for at, one in later
                if isinstance(one, Retracted)
            }
            self.apply(put_back(chosen, model, later, rewards=rewards, at=self.now))
