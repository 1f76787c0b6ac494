"""A policy that loses against the holdback is switched to the baseline, in the machine itself."""

import json

import numpy as np
import pytest
from machine_world import ARMS, SPLIT, World

import vfbandits as vfb
from vfbandits.campaign.assignment import assign, shown_probabilities
from vfbandits.campaign.events import Decided, GuardrailTripped
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings, Guardrail
from vfbandits.errors import SettingError


class Shop(World):
    """A campaign whose policy's events bring 0 and the holdback's 1."""

    def __init__(self, **changes):
        super().__init__(vfb.LinUCB(beta=0.5))
        self.configure(
            **{"holdback": 0.5, "guardrail": {"alpha": 0.05, "min_events": 20}, **changes}
        )

    def configure(self, **changes):
        self.apply(self.campaign.configure(changes, now=self.now))

    def visit(self, n_events=1, *, reward=True):
        for _ in range(n_events):
            self.do_rank(np.random.default_rng(self.n_events), 1)
            event = self.events[-1]
            if reward:
                self.reward(event, 0.0 if event.group == "policy" else 1.0)

    def reward(self, event, value):
        name = event.event_id
        self.ask(lambda past: self.campaign.reward(name, value, now=self.now, past=past), name)

    def watch(self):
        event = self.campaign.watch(now=self.now)
        self.apply(event)
        return event

    def last(self):
        return self.events[-1]


def test_a_policy_that_loses_is_switched_and_every_event_then_gets_the_baseline():
    shop = Shop()
    assert shop.watch() is None
    shop.visit(300)
    tripped = shop.watch()
    assert isinstance(tripped, GuardrailTripped)
    assert (tripped.by, tripped.at) == ("guardrail", shop.now)
    assert (tripped.mean_policy, tripped.mean_holdback) == (0.0, 1.0)
    assert tripped.low <= tripped.difference <= tripped.high < 0.0
    assert shop.watch() is None  # once
    shop.visit(20)
    decided = [event for event in shop.events[-40:] if isinstance(event, Decided)]
    assert {(event.group, event.arm, event.probability) for event in decided} == {
        ("guardrail", ARMS[1], 1.0)
    }
    assert {event.holdback for event in decided} == {0.0}


def test_re_armed_it_begins_from_nothing():
    shop = Shop()
    shop.visit(300)
    shop.watch()
    shop.apply(shop.campaign.rearm(by="ops", now=shop.now))
    assert shop.campaign.model.tripped is None
    assert shop.campaign.model.comparison.whole.n_events == (0, 0)
    assert shop.watch() is None
    shop.visit(300)
    assert shop.watch() is not None


@pytest.mark.parametrize(
    "changes",
    [
        {"holdback": 0.0},
        {"guardrail": {"enabled": False}},
        {"mode": "shadow"},
        {"reward_wait_s": None},
        {"guardrail": {"margin": 2.0}},
        {"guardrail": {"min_events": 10_000}},
    ],
)
def test_it_is_off_where_nothing_can_be_compared_or_nobody_wants_it(changes):
    shop = Shop()
    shop.visit(300)
    shop.configure(**changes)
    assert shop.watch() is None


def test_a_frozen_policy_is_watched_too_with_the_rewards_that_are_logged_and_the_defaults():
    shop = Shop(mode="frozen")
    for _ in range(300):
        shop.visit(reward=False)
        event = shop.last()
        if event.group == "holdback":
            shop.reward(event, 1.0)
            shop.reward(event, 1.0)
    assert shop.campaign.model.comparison.whole.n_events == (0, 0)  # the waits are not over
    shop.now += 100.0
    while shop.campaign.model.n_pending:
        shop.do_settle(None, 0)
    n_policy, n_holdback = shop.campaign.model.comparison.whole.n_events
    assert n_policy + n_holdback == 300
    tripped = shop.watch()
    assert (tripped.mean_policy, tripped.mean_holdback) == (0.0, 1.0)


def test_an_event_that_is_never_activated_or_gets_no_reward_is_left_out():
    shop = Shop(default_reward=None)
    shop.visit(10, reward=False)
    shop.do_hold(np.random.default_rng(1), 1)
    shop.visit(10)
    shop.now += 10_000.0
    while shop.campaign.model.n_pending:
        shop.do_settle(None, 0)
    assert sum(shop.campaign.model.comparison.whole.n_events) == 10
    assert len(shop.campaign.model.comparison) == 0


def test_without_an_end_of_the_wait_nothing_is_compared():
    shop = Shop(reward_wait_s=None)
    shop.visit(5)
    shop.do_hold(np.random.default_rng(1), 1)
    held = shop.last()
    assert len(shop.campaign.model.comparison) == 1  # its activation has an end
    shop.apply(shop.campaign.activate(held.event_id, now=shop.now).event)
    assert len(shop.campaign.model.comparison) == 0
    assert shop.campaign.model.comparison.whole.n_events == (0, 0)


def test_a_decision_says_with_which_probability_it_could_have_been_of_the_holdback():
    shop = Shop()
    shop.visit(5)
    shop.configure(mode="shadow")
    shop.visit(1)
    decided = [event for event in shop.events if isinstance(event, Decided)]
    assert [event.holdback for event in decided] == [0.5] * 5 + [0.0]


def test_the_group_says_why_the_baseline_is_shown():
    settings = CampaignSettings(vfb.LinUCB(), holdback=0.1)
    assert assign(settings, fraction=0.5, baseline=2, is_tripped=True) == ("guardrail", 2)
    shadow = settings.changed({"mode": "shadow"})
    assert assign(shadow, fraction=0.5, baseline=2, is_tripped=True) == ("shadow", 2)
    likely = np.array([0.25, 0.75])
    assert shown_probabilities(settings, likely, baseline=0, is_tripped=True) == [1.0, 0.0]


def test_a_request_that_is_ranked_changes_nothing_while_tripped():
    shop = Shop()
    shop.apply(GuardrailTripped(5, 5, 0.0, 1.0, -1.0, -1.5, -0.5, 0.5, shop.now))
    contexts = Contexts(np.full((3, 5), 0.1), SPLIT.names, split=SPLIT)
    ranking = shop.campaign.rank(Query("ann", ARMS), contexts, event_id="a", now=shop.now)
    assert ranking.answer.group == "guardrail"
    assert shop.campaign.model.n_pending == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"alpha": 0.0}, "guardrail.alpha must be above 0"),
        ({"alpha": float("nan")}, "alpha must be above 0"),
        ({"margin": -1.0}, "margin must be from 0"),
        ({"min_events": 1}, "min_events must be a whole number from 2"),
        ({"min_events": 2.5}, "min_events must be a whole number from 2"),
        ({"enabled": "no"}, "enabled must be true or false"),
        ({"alhpa": 0.1}, "settings of the guardrail are enabled, alpha"),
    ],
)
def test_settings_that_make_no_sense_are_refused_and_change_nothing(change, message):
    settings = CampaignSettings(vfb.LinUCB())
    with pytest.raises(SettingError, match=message):
        settings.changed({"guardrail": change})


def test_settings_survive_the_journal_also_those_from_before_there_was_a_guardrail():
    settings = CampaignSettings(vfb.LinUCB(), guardrail=Guardrail(alpha=0.01, min_events=7))
    assert CampaignSettings.unpack(settings.pack()) == settings
    old = {k: v for k, v in json.loads(settings.pack()).items() if k != "guardrail"}
    assert CampaignSettings.unpack(json.dumps(old).encode()).guardrail == Guardrail()
