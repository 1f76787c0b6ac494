"""Services on secret shares in layouts "disjoint" and "outer"."""

import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from shared_federation import PASSIVE, RULES, WIDTHS, SharedFederation, connected, run, until

from vfbandits import LinGreedy, LinUCB
from vfbandits.core.shares.slots import ALONE, event_of
from vfbandits.errors import ArmError, ConfigError
from vfbandits.protocol.application import DecideRequest, RewardRequest
from vfbandits.protocol.roster import Terms

GREEDY = 'policy = "lingreedy"\nepsilon = 0.0\n'
UCB = 'policy = "linucb"\nbeta = 0.5\n'
FORMS = {
    "disjoint, greedy, arm": ("disjoint", {"reads": "means"}, GREEDY, LinGreedy(0.0)),
    "disjoint, linucb, statistics": (
        "disjoint",
        {"release": "statistics", "reads": "widths"},
        UCB,
        LinUCB(0.5),
    ),
    "outer, greedy, arm": ("outer", {"reads": "means"}, GREEDY, LinGreedy(0.0)),
    "outer, linucb, arm": ("outer", {"reads": "widths", "beta": 0.5}, UCB, LinUCB(0.5)),
    "outer, linucb, statistics": (
        "outer",
        {"release": "statistics", "reads": "covariance"},
        UCB,
        LinUCB(0.5),
    ),
}


def federation_of(tmp_path, form, *, kind="memory", **changes):
    layout, rules, model, policy = FORMS[form]
    rules = {"posterior_scale": 0.0, "arm_bound": 4.0, "accept_leak": PASSIVE, **rules, **changes}
    terms = Terms(
        bound=2.0,
        layout=layout,
        arm_dim=2 if layout == "outer" else 0,
        intercept=True,
        shares=replace(RULES, **rules),
    )
    federation = SharedFederation(tmp_path, terms=terms, kind=kind, model=model)
    if federation.world.arm_features is not None:
        longest = np.linalg.norm(federation.world.arm_features, axis=1, keepdims=True)
        federation.world.arm_features /= np.maximum(longest / 3.9, 1.0)
    return federation, federation.world.central(policy, intercept=True)


async def play(federation, twin, n, *, start=0, contributors=tuple(WIDTHS)):
    """Rounds with some of the arms, each decided as the twin decides."""
    world = federation.world
    rng = np.random.default_rng(start)
    for place in range(start, start + n):
        user = world.users[place % len(world.users)]
        shown = rng.permutation(len(world.arms))[: int(rng.integers(1, 5))]
        arms, known = tuple(world.arms[i] for i in shown), {}
        if world.arm_features is not None:
            known = {"arm_features": np.ascontiguousarray(world.arm_features[shown])}
        raw = {name: rows.tobytes() for name, rows in known.items()}
        reply = await federation.active.choose(DecideRequest(user, arms, **raw))
        assert reply.contributors == contributors
        plain = twin.decide(world.context(user, contributors), arms=arms, **known)
        assert (reply.arm, place) == (plain.arm, place)
        value = world.reward(user, shown[reply.index])
        await federation.active.learn(RewardRequest(reply.event_id, value))
        twin.reward(plain, value)


@pytest.mark.parametrize("form", FORMS)
def test_decisions_and_rewards_equal_those_of_a_plain_bandit_across_a_restart(form, tmp_path):
    kind = "grpc" if form in ("disjoint, greedy, arm", "outer, linucb, arm") else "memory"
    federation, twin = federation_of(tmp_path, form, kind=kind)

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        for start in (0, 8):
            await connected(federation, *PASSIVE)
            await play(federation, twin, 8, start=start)
            await federation.stop_active()
            await federation.start_active()
        await until(lambda: not federation.active.shared.learning.slots.queue)

    run(federation, scenario)


def test_blocks_of_arms_are_on_the_disk_before_a_message_and_stay_across_restarts(tmp_path):
    federation, _ = federation_of(tmp_path, "disjoint, greedy, arm", max_arms=3)
    path = federation.state("shop") / "shares.db"

    def numbered():
        with sqlite3.connect(path) as db:
            return [block for (block,) in db.execute("SELECT block FROM arm ORDER BY block")]

    async def ask(*arms):
        user = federation.world.users[0]
        return await federation.active.choose(DecideRequest(user, arms))

    async def scenario():
        await federation.start_active()
        await federation.start(*PASSIVE)
        await connected(federation, *PASSIVE)
        server = federation.active.shared._server  # noqa: SLF001
        seen = []
        send = server._ask  # noqa: SLF001

        async def watched(request):
            seen.append(numbered())
            return await send(request)

        server._ask = watched  # noqa: SLF001
        await ask("arm-2", "arm-0")
        assert seen[-1] == [0, 1]  # before the messages of the decision
        await federation.stop_active()
        await federation.start_active()
        await connected(federation, *PASSIVE)
        server = federation.active.shared._server  # noqa: SLF001
        assert (await server.offer(("arm-0", "arm-2"), None)).blocks == (1, 0)
        await ask("arm-3")
        with pytest.raises(ArmError, match=r"max_arms=3 arms in all.*new arm 'arm-1'"):
            await ask("arm-1", "arm-0")
        assert numbered() == [0, 1, 2]
        assert (await ask("arm-3", "arm-2")).contributors == tuple(WIDTHS)

    run(federation, scenario)


@pytest.mark.parametrize("form", ["disjoint, greedy, arm", "outer, linucb, statistics"])
def test_without_the_helper_a_bandit_of_the_same_layout_on_own_features_decides(form, tmp_path):
    federation, _ = federation_of(tmp_path, form)

    async def scenario():
        await federation.start_active()
        world = federation.world
        for place in range(4):
            reply = await federation.active.choose(world.request(world.users[place]))
            assert reply.contributors == ("shop",)
            pending = federation.active.leaders["default"].model.pending[reply.event_id]
            assert event_of(pending.observation.x) == ALONE
            await federation.active.learn(RewardRequest(reply.event_id, 1.0))
        alone = federation.active.leaders["default"].model.bandit.slots._alone  # noqa: SLF001
        states = alone.states()
        assert sum(state.n_updates for state in states.values()) == 4
        width = WIDTHS["shop"] + 1
        assert {state.dim for state in states.values()} == {
            width if "disjoint" in form else 3 * width
        }

    run(federation, scenario)


def test_a_late_participant_counts_as_zeros_of_the_one_row(tmp_path):
    federation, twin = federation_of(tmp_path, "outer, greedy, arm")

    async def scenario():
        await federation.start_active()
        await federation.start("bank")
        await connected(federation, "bank")
        await play(federation, twin, 4, contributors=("shop", "bank"))

    run(federation, scenario)


def test_arm_features_longer_than_declared_are_refused(tmp_path):
    federation, _ = federation_of(tmp_path, "outer, greedy, arm")

    async def scenario():
        await federation.start_active()
        world = federation.world
        far = np.full((1, 2), 3.8).tobytes()
        request = DecideRequest(world.users[0], ("arm-0",), arm_features=far)
        with pytest.raises(ArmError, match=r"at most 4 long .* the declared arm_bound, got 5.37"):
            await federation.active.choose(request)

    run(federation, scenario)


def test_terms_name_the_layout_and_whose_rows_can_be_read(tmp_path):
    federation, _ = federation_of(tmp_path, "outer, linucb, statistics")
    terms = federation.world.terms
    assert terms.learns == (
        "the means and the covariance of all arm features in a decision, from which rows of bank, "
        "news can be read"
    )
    roster = federation.files.roster
    assert type(roster).from_bytes(roster.to_bytes()) == roster
    with pytest.raises(ConfigError, match=r"3 arm features .* 'news' has 2 features"):
        replace(roster, terms=replace(terms, shares=replace(terms.shares, accept_leak=("bank",))))
    with pytest.raises(ConfigError, match="accept_leak must be a list of participants, got 'bank'"):
        replace(terms.shares, accept_leak="bank")
