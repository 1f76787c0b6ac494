"""Whatever happens to a durable bandit, it is the fold of its log."""

import asyncio

import numpy as np
import pytest
from durables import World, logged, open_on, parts
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import MORE

import vfbandits as vfb
from vfbandits.campaign.model import Model, fold
from vfbandits.journal.memory import MemoryDisk

deeds = st.one_of(
    st.tuples(st.just("decide"), st.booleans()),
    st.tuples(st.just("decide"), st.booleans()),
    st.tuples(st.just("reward"), st.integers(0, 5)),
    st.tuples(st.just("reward"), st.integers(0, 5)),
    st.tuples(st.just("rush"), st.integers(1, 12)),
    st.tuples(st.just("forget"), st.integers(0, 5)),
    st.tuples(st.just("move"), st.integers(1, 4)),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("reopen"), st.booleans()),
)
POLICIES = [
    vfb.LinUCB(beta=0.5),
    vfb.LinTS(posterior_scale=0.5, space="parameter", n_draws=10),
    vfb.LinTS(posterior_scale=0.5, n_draws=10),
    vfb.LinGreedy(epsilon=0.3),
]


@pytest.mark.parametrize("policy", POLICIES, ids=["ucb", "parameter", "auto", "greedy"])
@pytest.mark.parametrize("layout", ["per_arm", "outer", "disjoint"])
@given(
    discount=st.sampled_from([1.0, 0.7]),
    seed=st.integers(0, 2**32 - 1),
    plan=st.lists(deeds, min_size=4, max_size=25),
)
@settings(deadline=None, max_examples=15 * MORE)
def test_whatever_happens_the_model_is_the_fold_of_its_log_bit_for_bit(
    layout, policy, discount, seed, plan
):
    """Exact: Lambda, u, inverse, theta, counters, open and settled decisions, their numbers."""

    async def run():
        world = World(layout, policy, discount, seed)
        for deed, *arguments in plan:
            await getattr(world, deed)(*arguments)
        scratch = fold(enumerate(logged(world.disk), start=1), Model(world.make()))
        assert parts(world.bandit.bandit) == parts(scratch.bandit)
        assert (world.bandit.epoch, world.bandit.signed_roster) == (
            scratch.epoch,
            scratch.signed_roster,
        )
        await world.reopen(kindly=True)
        await world.bandit.close()

    asyncio.run(run())


@pytest.mark.parametrize("discount", [1.0, 0.99])
@pytest.mark.parametrize(
    ("dim", "layout", "stops"),
    [(5, "per_arm", (400, 1_050)), (5, "disjoint", (400, 1_050)), (300, "per_arm", (40, 110))],
)
def test_guards_and_refills_come_at_the_same_reward_after_a_restart(dim, layout, stops, discount):
    """Past the guard at 1,000 updates; 300 dimensions are past the compiled loops."""

    def make():
        return vfb.Bandit(
            vfb.LinUCB(), dim=dim, layout=layout, discount=discount, ridge=0.1, seed=1
        )

    async def run():
        disk, rng = MemoryDisk(), np.random.default_rng(2)
        twin = make()
        for stop in stops:
            bandit = open_on(disk, make)
            while len(disk.records) < 2 * stop:
                contexts = rng.standard_normal((2, dim) if layout == "per_arm" else dim)
                value = float(rng.standard_normal())
                for one in (bandit, twin):
                    made = one.decide(contexts, arms=["a", "b"])
                    decision = await made if one is bandit else made
                    done = one.reward(decision, value)
                    await done if one is bandit else done
            if stop == stops[0]:
                await bandit.snapshot()
            await bandit.close()
        again = open_on(disk, make)
        assert again.recovery.start == 2 * stops[0]
        assert parts(again.bandit) == parts(twin)
        await again.close()

    asyncio.run(run())
