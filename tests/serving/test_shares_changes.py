"""Live services on secret shares go over to new secrets and other members, and lose nothing."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from live_world import LiveWorld
from scipy.linalg import block_diag
from served_federation import ServedFederation

from vfbandits import LinGreedy, LinUCB
from vfbandits.admin.federation_files import ROSTER, with_member, without_member
from vfbandits.core.move import Narrowing, Widening
from vfbandits.core.ring import add, decode
from vfbandits.errors import (
    ConfigError,
    EnvelopeError,
    HandshakeError,
    LinkError,
)
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.protocol.application import ChangeRequest, RewardRequest
from vfbandits.protocol.dealt import secrets_name
from vfbandits.protocol.roster import SharesRules, Terms
from vfbandits.transport.channel import Peer
from vfbandits.transport.rpc.status import status_of

WIDTHS = {"shop": 2, "bank": 3, "news": 2, "post": 1}
FIRST = {"shop": 2, "bank": 3, "news": 2}
LINTS = SharesRules(helper="bank", max_arms=4, window=4, decisions=6, posterior_scale=0.3)
LINUCB = replace(LINTS, posterior_scale=0.0, reads="widths", beta=0.5)
GREEDY = replace(LINTS, posterior_scale=0.0, reads="means")
MODELS = {
    LINTS: 'policy = "lints"\nposterior_scale = 0.3\nseed = 7\n',
    LINUCB: 'policy = "linucb"\nbeta = 0.5\nseed = 7\n',
    GREEDY: 'policy = "lingreedy"\nepsilon = 0.0\nseed = 7\n',
}


class ChangingFederation(ServedFederation):
    """Services on secret shares, and a plain bandit that is taught what they are taught."""

    def __init__(self, tmp_path, rules, *, kind="memory", **terms):
        terms = Terms(bound=4.0, shares=rules, **terms)
        world = LiveWorld(tmp_path, widths=WIDTHS, terms=terms, n_users=6)
        plan = world.federation
        options = {
            "widths": FIRST,
            "model": MODELS.get(replace(rules, helper="bank"), MODELS[LINUCB]),
            "patience": "deadline_s = 5.0\n",
        }
        world.federation = lambda: plan(**options)
        super().__init__(world, kind)
        self.twin = world.central(LinGreedy(), dim=sum(FIRST.values()))
        self.epoch = 1
        self.waiting = []
        self.total = 0

    async def decide(self):
        """One decision, whose reward waits."""
        user = self.world.users[self.total % 6]
        self.total += 1
        reply = await self.active.choose(self.world.request(user))
        names = self.files.roster.split.names
        assert set(reply.contributors) == set(names), self.active.shared.away
        row = self.world.context(user, names, names)[reply.index]
        self.waiting.append((reply.event_id, row, names, self.world.reward(user, reply.index)))

    async def reward(self, place=0):
        """The reward of a decision that waits; who came since counts as zeros, who left not."""
        event_id, row, names, value = self.waiting.pop(place)
        await self.active.learn(RewardRequest(event_id, value))
        parts = dict(
            zip(names, np.split(row, np.cumsum([WIDTHS[n] for n in names])[:-1]), strict=True)
        )
        now = self.files.roster.split.names
        x = np.hstack([parts.get(name, np.zeros(WIDTHS[name])) for name in now])
        self.twin.fit(x[None], [value])

    async def play(self, n):
        """Decisions, of which three always wait for their reward."""
        for _ in range(n):
            await self.decide()
            if len(self.waiting) > 3:
                await self.reward()

    async def change(self, envelopes, *, roster=None):
        signed = b"" if roster is None else self.files.sign(roster)
        return await self.active.change(OPERATOR, ChangeRequest(signed, envelopes))

    def deal(self, *, before=None):
        """The secrets of the next epoch; those that run have them from nowhere else."""
        self.epoch += 1
        envelopes = self.files.deal_shares(6, epoch=self.epoch, before=before)
        for name in self.passive:
            secrets = self.files.folder / name / "dealt" / secrets_name(name, self.epoch)
            secrets.unlink(missing_ok=True)
        return envelopes

    async def learnt(self):
        async with asyncio.timeout(30):
            shared = self.active.shared
            while shared.learning.slots.queue or shared._server.is_moving:  # noqa: ASYNC110, SLF001
                await asyncio.sleep(0.01)

    def theta(self):
        """What both servers have learnt, in front of the rotations."""
        helper, _ = self.passive[self.files.roster.terms.shares.helper]
        server = helper._server if hasattr(helper, "_server") else helper._helper  # noqa: SLF001
        sides = [s.held() for s in (self.active.shared._server, server)]  # noqa: SLF001
        parts = [decode(add(*pair)) / 2.0 for pair in zip(*sides, strict=True)]
        if len(parts) == 5:
            _, theta, _, g, h = parts
        else:
            _, theta, g, h = parts
        names = self.files.roster.split.names
        shares = [
            ShareFiles(self.state(name) / "shares").load()[self.epoch].share.columns
            for name in names
        ]
        n = sum(WIDTHS[name] for name in names)
        return (theta + h @ g)[:n] @ block_diag(*shares)

    def error(self):
        return float(np.abs(self.theta() - self.twin.states[None].theta).max())


class LayoutFederation(ChangingFederation):
    """In layouts with one row of a user for all arms; a plain bandit decides the same."""

    def __init__(self, tmp_path, layout, policy, rules, *, kind="memory"):
        terms = {
            "layout": layout,
            "arm_dim": 2 if layout == "outer" else 0,
            "intercept": layout != "per_arm",
        }
        super().__init__(tmp_path, rules, kind=kind, **terms)
        if self.world.arm_features is not None:
            self.world.arm_features /= 4.0
        intercept = terms["intercept"]
        self.twin = self.world.central(policy, dim=sum(FIRST.values()), intercept=intercept)

    async def decide(self):
        user = self.world.users[self.total % 6]
        self.total += 1
        request, features = self.world.request(user), self.world.arm_features
        reply = await self.active.choose(request)
        names = self.files.roster.split.names
        assert set(reply.contributors) == set(names), self.active.shared.away
        known = {} if features is None else {"arm_features": features}
        context = self.world.context(user, names, names)
        plain = self.twin.decide(context, arms=request.arms, **known)
        assert (reply.arm, self.total) == (plain.arm, self.total)
        self.waiting.append((reply.event_id, plain, self.world.reward(user, reply.index)))

    async def reward(self, place=0):
        event_id, plain, value = self.waiting.pop(place)
        await self.active.learn(RewardRequest(event_id, value))
        self.twin.reward(plain, value)


OPERATOR = Peer("operator", "operator", "")


def run(federation, scenario):
    async def played():
        try:
            return await scenario()
        finally:
            await federation.close()

    return asyncio.run(played())


async def connected(federation, *names):
    async with asyncio.timeout(30):
        while not set(names) <= set(federation.active.role.seats):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def started(federation, *names):
    await federation.start_active()
    federation.active._allow = lambda *_: None  # noqa: SLF001  (who may is tested elsewhere)
    await federation.start(*names)
    await connected(federation, *names)


@pytest.mark.parametrize(
    ("rules", "helper", "kind"),
    [(LINTS, "bank", "memory"), (LINUCB, "bank", "memory"), (LINUCB, "judge", "rpc")],
    ids=["LinTS", "LinUCB", "no participant"],
)
def test_new_secrets_a_newcomer_and_a_leaver_change_nothing_else_that_was_learnt(
    tmp_path, rules, helper, kind
):
    federation = ChangingFederation(tmp_path, replace(rules, helper=helper), kind=kind)
    files = federation.files
    servers = {"bank", helper}

    async def scenario():
        await started(federation, *servers, "news")
        await federation.play(10)

        reply = await federation.change(federation.deal())
        assert reply.epoch == 2
        assert federation.active.shared._server.epoch == 2  # noqa: SLF001
        news, _ = federation.passive["news"]
        assert [*news._role._sharing] == [2]  # noqa: SLF001  (earlier secrets are dropped)
        await federation.play(10)
        await federation.learnt()
        assert federation.error() < 1e-9

        before = files.roster
        approved = files.admit_passive("post", 1, federation.world.features("post"))
        files.roster = with_member(before, approved.member)
        (files.folder / "post" / ROSTER).write_bytes(files.sign(files.roster))
        await federation.change(federation.deal(before=before), roster=files.roster)
        federation.twin.move(Widening(1))
        await federation.start("post")
        await connected(federation, "bank", "news", "post")
        await federation.play(10)
        await federation.learnt()
        assert federation.error() < 1e-9

        before = files.roster
        files.roster = without_member(before, "news")
        await federation.change(federation.deal(before=before), roster=files.roster)
        federation.twin.move(Narrowing(5, 7))
        await federation.play(10)
        await federation.learnt()
        assert federation.error() < 1e-8
        await federation.stop("news")

        # All are started again, and go on where they were.
        await federation.stop(*servers, "post")
        await federation.stop_active()
        await started(federation, *servers, "post")
        await federation.play(6)
        while federation.waiting:
            await federation.reward()
        await federation.learnt()
        assert federation.error() < 1e-8
        return federation.active.shared

    shared = run(federation, scenario)
    assert shared.n_alone == 0


RELEASED = replace(GREEDY, release="statistics", reads="covariance", accept_leak=("bank", "news"))


@pytest.mark.parametrize(("helper", "kind"), [("bank", "memory"), ("judge", "rpc")])
@pytest.mark.parametrize(
    ("layout", "policy", "rules"),
    [
        ("per_arm", LinGreedy(0.0), GREEDY),
        ("disjoint", LinGreedy(0.0), GREEDY),
        ("outer", LinUCB(0.5), RELEASED),
    ],
    ids=["per_arm", "disjoint", "outer"],
)
def test_in_each_layout_decisions_go_on_over_each_change(
    tmp_path, layout, policy, rules, helper, kind
):
    federation = LayoutFederation(
        tmp_path, layout, policy, replace(rules, helper=helper), kind=kind
    )
    files, accepts = federation.files, bool(rules.accept_leak)
    servers = {"bank", helper}

    async def scenario():
        await started(federation, *servers, "news")
        await federation.play(10)
        assert (await federation.change(federation.deal())).epoch == 2
        await federation.play(8)

        before = files.roster
        approved = files.admit_passive("post", 1, federation.world.features("post"))
        files.roster = with_member(before, approved.member, accept_leak=accepts)
        (files.folder / "post" / ROSTER).write_bytes(files.sign(files.roster))
        await federation.change(federation.deal(before=before), roster=files.roster)
        federation.twin.move(Widening(1))
        await federation.start("post")
        await connected(federation, "bank", "news", "post")
        await federation.play(8)

        before = files.roster
        files.roster = without_member(before, "news")
        assert "news" not in files.roster.terms.shares.accept_leak
        await federation.change(federation.deal(before=before), roster=files.roster)
        federation.twin.move(Narrowing(5, 7))
        await federation.play(8)
        await federation.stop(*servers, "news", "post")
        await federation.stop_active()
        await started(federation, *servers, "post")
        await federation.play(6)
        await federation.learnt()
        return federation.active.shared

    assert run(federation, scenario).n_alone == 0


@pytest.mark.parametrize("helper", ["bank", "judge"])
def test_the_helper_away_the_servers_hand_over_when_it_is_back(tmp_path, helper):
    federation = ChangingFederation(tmp_path, replace(LINTS, helper=helper))

    async def scenario():
        await started(federation, *{"bank", "news", helper})
        await federation.play(10)
        federation.active.shared._server._ask = lost  # noqa: SLF001
        reply = await federation.change(federation.deal())
        assert reply.epoch == 2
        assert federation.active.shared._server.is_moving  # noqa: SLF001
        with pytest.raises(
            HandshakeError, match="wanted the servers in epoch 2, got an unfinished hand-over"
        ):
            await federation.change({})
        # A is killed here: its journal is in epoch 2, and its state in epoch 1.
        await federation.stop_active()
        await federation.stop(helper)
        await started(federation, helper)
        await connected(federation, "bank", "news", helper)
        await federation.learnt()
        await federation.play(10)
        await federation.learnt()
        assert federation.error() < 1e-9
        assert [*ShareFiles(federation.state(helper) / "shares").load()] == [2]
        assert [*ShareFiles(federation.state("shop") / "shares").load()] == [2]

    run(federation, scenario)


async def lost(data):
    raise LinkError("the helper has left")


def test_a_change_without_its_words_is_refused_and_nothing_changes(tmp_path):
    federation = ChangingFederation(tmp_path, LINTS)
    files = federation.files

    async def scenario():
        await started(federation, "bank", "news")
        await federation.play(5)
        with pytest.raises(HandshakeError, match="that stays, missing: shop, bank, news"):
            await federation.change({})
        envelopes = federation.deal()
        with pytest.raises(EnvelopeError, match="another to: wanted 'bank', got 'news'"):
            await federation.change({**envelopes, "bank": envelopes["news"]})
        with pytest.raises(ConfigError, match="one of news, got 'bank'"):
            without_member(files.roster, "bank")
        windows = sorted((files.folder / "shop" / "dealt").glob("shop.epoch-2.window-*"))
        kept = windows[0].read_bytes()
        windows[0].unlink()
        with pytest.raises(HandshakeError, match="no dealt words are left") as refused:
            await federation.change(envelopes)
        assert status_of(refused.value).sentence == str(refused.value)  # the operator reads it
        assert federation.active.role.epoch == 1
        await federation.play(3)
        windows[0].write_bytes(kept)
        assert (await federation.change(envelopes)).epoch == 2
        assert (files.folder / "news" / "dealt" / secrets_name("news", 2)).is_file()
        await federation.play(5)
        await federation.learnt()
        assert federation.error() < 1e-9

    run(federation, scenario)


def test_all_participants_may_leave_a_helper_without_features_and_others_come(tmp_path):
    federation = ChangingFederation(tmp_path, replace(LINUCB, helper="judge"))
    files = federation.files

    async def leave(name, start, stop):
        before = files.roster
        files.roster = without_member(before, name)
        await federation.change(federation.deal(before=before), roster=files.roster)
        federation.twin.move(Narrowing(start, stop))
        await federation.stop(name)
        await federation.play(6)

    async def scenario():
        await started(federation, "bank", "news", "judge")
        await federation.play(6)
        await leave("news", 5, 7)
        await leave("bank", 2, 5)
        assert federation.files.roster.split.names == ("shop",)
        before = files.roster
        approved = files.admit_passive("post", 1, federation.world.features("post"))
        files.roster = with_member(before, approved.member)
        (files.folder / "post" / ROSTER).write_bytes(files.sign(files.roster))
        await federation.change(federation.deal(before=before), roster=files.roster)
        federation.twin.move(Widening(1))
        await federation.start("post")
        await connected(federation, "post", "judge")
        await federation.play(6)
        await federation.learnt()
        assert federation.error() < 1e-8
        return federation.active.shared

    assert run(federation, scenario).n_alone == 0


def test_a_helper_without_features_must_have_its_secrets_before_anything_changes(tmp_path):
    federation = ChangingFederation(tmp_path, replace(LINUCB, helper="judge"))
    files = federation.files

    async def scenario():
        await started(federation, "bank", "news", "judge")
        await federation.play(4)
        envelopes = federation.deal()
        with pytest.raises(HandshakeError, match="that stays, missing: judge"):
            await federation.change({n: e for n, e in envelopes.items() if n != "judge"})
        with pytest.raises(EnvelopeError, match="another to: wanted 'judge', got 'news'"):
            await federation.change({**envelopes, "judge": envelopes["news"]})
        with pytest.raises(ConfigError, match="one of the passive participants bank, news, got"):
            without_member(files.roster, "judge")
        await federation.stop("judge")
        async with asyncio.timeout(30):
            while "judge" in federation.active.role.seats:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(HandshakeError, match="disconnected: judge"):
            await federation.change(envelopes)
        assert federation.active.role.epoch == 1
        await federation.start("judge")
        await connected(federation, "judge")
        assert (await federation.change(envelopes)).epoch == 2
        await federation.play(4)
        await federation.learnt()
        assert federation.error() < 1e-9

    run(federation, scenario)


@pytest.mark.parametrize("helper", ["bank", "judge"])
def test_a_helper_that_cannot_go_over_yet_is_not_called_away_after_the_hand_over(tmp_path, helper):
    federation = ChangingFederation(tmp_path, replace(LINUCB, helper=helper))
    secrets = federation.files.folder / helper / "dealt" / secrets_name(helper, 2)

    async def scenario():
        await started(federation, *{"bank", "news", helper})
        await federation.play(3)
        await federation.learnt()
        envelopes = federation.deal()
        shared = federation.active.shared
        ask, shared._server._ask = shared._server._ask, lost  # noqa: SLF001  (the network)
        assert (await federation.change(envelopes)).epoch == 2
        kept = secrets.read_bytes()  # it has agreed, and loses them before the hand-over
        secrets.unlink()
        shared._server._ask = ask  # noqa: SLF001  (the network)
        async with asyncio.timeout(30):
            while "server B cannot hand over to epoch 2" not in shared.away:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert str(tmp_path) not in shared.away  # where its files are is the helper's business
        secrets.write_bytes(kept)
        async with asyncio.timeout(30):
            while shared.away:  # noqa: ASYNC110  (no decision or reward comes meanwhile)
                await asyncio.sleep(0.01)
        await federation.play(3)

    run(federation, scenario)


def test_words_for_another_hand_over_are_refused_before_anything_changes(tmp_path):
    federation = ChangingFederation(tmp_path, LINTS)
    files = federation.files

    async def scenario():
        await started(federation, "bank", "news")
        await federation.play(4)
        files.roster = without_member(files.roster, "news")
        envelopes = federation.deal()  # without the roster before
        with pytest.raises(HandshakeError, match="words for another hand-over"):
            await federation.change(envelopes, roster=files.roster)
        assert federation.active.role.epoch == 1
        assert not federation.active.shared._server.is_moving  # noqa: SLF001

    run(federation, scenario)
