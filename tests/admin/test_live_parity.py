"""A parity run through a stand-in for the federation: what is compared, counted and refused."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from vfbandits.admin.parity import MAX_TRIAL, Served, draw_trial, live_parity
from vfbandits.admin.session import InForce, Session
from vfbandits.admin.trial_world import TrialWorld
from vfbandits.campaign.draws import EventDraws
from vfbandits.core.bandit import Bandit
from vfbandits.core.context import Split
from vfbandits.core.policy import LinTS, LinUCB
from vfbandits.core.policy.registry import describe
from vfbandits.errors import LinkError, SettingError, WireError
from vfbandits.protocol.application import DecideReply, RewardReply, StatusReply
from vfbandits.protocol.roster import Member, Roster, SharesRules, Terms

WIDTHS = {"shop": 2, "bank": 3, "news": 1}
LAYOUTS = [Terms(), Terms(layout="outer", arm_dim=3, intercept=True), Terms(layout="disjoint")]


def roster(terms):
    members = tuple(
        Member(
            name,
            "passive" if place else "active",
            certificate=f"{place:064x}",
            width=width,
            sealing_key=f"{place + 9:064x}",
        )
        for place, (name, width) in enumerate(WIDTHS.items())
    )
    return Roster("shops", 1, terms, members)


class StandIn:
    """Takes the calls of an application, and decides on plain contexts."""

    def __init__(self, terms, policy, *, away=(), ridge=1.0, changes_at=None, cut=False):
        self.terms, self.policy, self.away, self.ridge = terms, policy, away, ridge
        self.changes_at, self.cut = changes_at, cut
        self.bandit = self.world = None
        self.requests = []

    async def status(self, _, *, timeout_s):
        del timeout_s
        return StatusReply(
            json.dumps(
                {
                    "roster": {"number": 1, "digest": "aa"},
                    "epoch": 4,
                    "model": {
                        "policy": describe(self.policy),
                        "ridge": 1.0,
                        "discount": 0.9,
                        "floor": 0.1,
                    },
                    "participants": {name: {"width": width} for name, width in WIDTHS.items()},
                }
            )
        )

    async def decide(self, request, *, timeout_s):
        del timeout_s
        if self.bandit is None:
            self._begin(request)
        place = len(self.requests)
        self.requests.append(request)
        here = [n for n in WIDTHS if n not in self.away or place % 2]
        item = next(self.items)
        self.draws.seed(request.event_id)
        decision = self.bandit.decide(
            self.world.context(item.blocks, here),
            arms=request.arms,
            arm_features=None if not request.arm_features else self.world.arm_features,
            event_id=request.event_id,
        )
        return DecideReply(
            decision.id,
            decision.arm,
            decision.index,
            1.0,
            decision.scores.tobytes()[: -8 if self.cut else None],
            b"",
            tuple(here),
            5 if place == self.changes_at else 4,
            bytes_received=80,
            seconds=0.0,
        )

    def _begin(self, request):
        split, terms = Split.of(WIDTHS), self.terms
        self.world = TrialWorld(request.trial, split, terms, n_arms=len(request.arms))
        self.items = iter(self.world.rounds(1_000))
        self.bandit = Bandit(
            self.policy,
            dim=split.dim,
            layout=terms.layout,
            arm_dim=terms.arm_dim or None,
            intercept=terms.intercept,
            ridge=self.ridge,
            discount=0.9,
            floor=0.1,
            seed=request.trial,
        )
        self.draws = EventDraws(request.trial)
        self.draws.lend_to(self.bandit)

    async def reward(self, request, *, timeout_s):
        del timeout_s
        assert request.trial == self.requests[-1].trial
        return RewardReply(self.bandit.reward(request.event_id, request.value))


def run(stand_in, **options):
    session = Session(place=None, roster=roster(stand_in.terms), client=stand_in)
    return asyncio.run(live_parity(session, **{"rounds": 30, **options}))


@pytest.mark.parametrize("terms", LAYOUTS, ids=lambda terms: terms.layout)
@pytest.mark.parametrize("policy", [LinUCB(beta=0.5), LinTS(posterior_scale=0.3)], ids=repr)
def test_a_federation_that_decides_as_it_should_is_lossless(terms, policy):
    seen = []
    report = run(StandIn(terms, policy), on_round=seen.append)
    assert (report.equal, report.total, report.first_difference) == (30, 30, None)
    assert report.lossless
    assert report.largest_score_difference == 0.0
    assert (report.incomplete, report.bytes_per_decision, report.epoch) == (0, 80.0, 4)
    assert len(report.latencies_s) == 30
    assert report.latency_ms(50) <= report.latency_ms(99)
    assert seen == list(range(30))
    assert report.n_arms == (6 if terms.layout == "per_arm" and policy != LinUCB(0.5) else 10)


def test_secret_shares_are_refused_before_the_federation_is_asked():
    terms = Terms(shares=SharesRules(helper="bank"), bound=1.0)
    stand_in = StandIn(terms, LinTS(posterior_scale=0.1))
    stand_in.status = None  # a helper without features has no width in it
    shared = replace(roster(Terms()), terms=terms, generator_key="e" * 64)
    session = Session(place=None, roster=shared, client=stand_in)
    with pytest.raises(SettingError, match=r"no parity runs .* vfb parity --protection shares"):
        asyncio.run(live_parity(session, rounds=3))


def test_zeros_stand_for_those_that_did_not_contribute_and_such_rounds_are_counted():
    report = run(StandIn(Terms(), LinUCB(), away=("bank",)))
    assert report.lossless
    assert report.incomplete == 15


def test_a_federation_with_another_model_is_found_out():
    report = run(StandIn(Terms(), LinUCB(beta=0.5), ridge=30.0), rounds=60)
    assert not report.lossless
    assert report.equal < report.total == 60
    assert report.first_difference is not None
    assert report.largest_score_difference > 1e-3


def test_users_arms_and_ids_are_those_of_the_trial():
    stand_in = StandIn(Terms(), LinUCB())
    run(stand_in, rounds=2, trial=9, n_arms=3)
    assert [request.user for request in stand_in.requests] == ["parity-0", "parity-1"]
    assert {request.arms for request in stand_in.requests} == {("arm-0", "arm-1", "arm-2")}
    assert [r.event_id for r in stand_in.requests] == ["trial-9-0", "trial-9-1"]


def test_a_trial_that_was_run_before_is_refused():
    stand_in = StandIn(Terms(), LinUCB())
    run(stand_in, rounds=2, trial=9)
    with pytest.raises(SettingError, match="was trial 9 run before"):
        run(stand_in, rounds=2, trial=9)


def test_masks_that_change_during_the_run_end_it():
    with pytest.raises(LinkError, match="from epoch 4 to 5"):
        run(StandIn(Terms(), LinUCB(), changes_at=7))


def test_a_reply_with_too_few_scores_is_refused():
    with pytest.raises(WireError, match="wanted 10 scores, got 9"):
        run(StandIn(Terms(), LinUCB(), cut=True))


@pytest.mark.parametrize("trial", [0, -1, MAX_TRIAL + 1])
def test_a_trials_number_has_32_bits_and_is_not_zero(trial):
    with pytest.raises(SettingError, match="a trial's number is from 1 to"):
        run(StandIn(Terms(), LinUCB()), trial=trial)


@pytest.mark.parametrize("options", [{"rounds": 0}, {"n_arms": 0}])
def test_counts_are_from_1(options):
    with pytest.raises(SettingError, match="must be a whole number from 1"):
        run(StandIn(Terms(), LinUCB()), **options)


def test_lints_in_parameter_space_is_refused_with_the_reason():
    with pytest.raises(SettingError, match=r"in distribution only.*Wanted at most 6 arms, got 7"):
        run(StandIn(Terms(), LinTS()), n_arms=7)
    with pytest.raises(SettingError, match="draws in parameter space; there"):
        run(StandIn(Terms(), LinTS(space="parameter")), n_arms=2)
    assert run(StandIn(Terms(), LinTS(space="arm")), n_arms=7, rounds=3).lossless
    assert run(StandIn(Terms(layout="disjoint"), LinTS()), n_arms=7, rounds=3).lossless


def test_drawn_trials_are_in_range_and_differ():
    drawn = {draw_trial() for _ in range(100)}
    assert len(drawn) > 90
    assert min(drawn) >= 1
    assert max(drawn) <= MAX_TRIAL


@pytest.mark.parametrize("key", ["model", "participants", "epoch"])
def test_a_status_that_lacks_something_is_refused(key):
    document = json.loads(
        asyncio.run(StandIn(Terms(), LinUCB()).status(None, timeout_s=1)).document
    )
    assert Served.of(document).policy == LinUCB()
    del document[key]
    with pytest.raises(
        WireError, match=r"the status must have participants and a model: wanted .* got nothing"
    ):
        Served.of(document)
    with pytest.raises(WireError, match=r"must have a roster and an epoch: wanted .* got nothing"):
        InForce.of({})


@pytest.mark.parametrize("document", ["[]", "{"])
def test_a_status_that_is_no_table_is_refused(document):
    class Odd(StandIn):
        async def status(self, *_, **__):
            return StatusReply(document)

    with pytest.raises(WireError, match="wanted a status"):
        run(Odd(Terms(), LinUCB()))


@pytest.mark.parametrize("terms", LAYOUTS, ids=lambda terms: terms.layout)
def test_a_trial_world_is_the_same_for_everybody_and_longer_runs_begin_alike(terms):
    first, second = (TrialWorld(5, Split.of(WIDTHS), terms, n_arms=4) for _ in range(2))
    short, long = list(first.rounds(3)), list(second.rounds(6))
    for one, other in zip(short, long, strict=False):
        assert one.user == other.user
        assert (one.rewards == other.rewards).all()
        for name in WIDTHS:
            assert (one.blocks[name] == other.blocks[name]).all()
    third = TrialWorld(6, Split.of(WIDTHS), terms, n_arms=4)
    assert not np.allclose(next(iter(third.rounds(1))).rewards, short[0].rewards)


def test_rewards_are_worth_learning():
    world = TrialWorld(5, Split.of(WIDTHS), Terms(), n_arms=4)
    X = np.vstack([world.context(item.blocks, WIDTHS) for item in world.rounds(200)])
    r = np.concatenate([item.rewards for item in world.rounds(200)])
    theta, *_ = np.linalg.lstsq(X, r, rcond=None)
    assert np.std(r - X @ theta) < 0.06
    assert np.std(r) > 0.2
