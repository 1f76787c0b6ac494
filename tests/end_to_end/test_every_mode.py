"""AP, four PPs and a mask generator as processes over mutual TLS decide as one bandit would."""

import asyncio

import numpy as np
import pytest
from live_world import WIDTHS, LiveWorld, Session, wait_until_connected

from vfbandits import Federation, LinTS, LinUCB
from vfbandits.campaign.draws import EventDraws
from vfbandits.protocol.roster import Terms

POLICIES = {
    "linucb": (LinUCB(beta=0.5), 'policy = "linucb"\nbeta = 0.5\nseed = 7\n'),
    "lints": (
        LinTS(posterior_scale=0.1, space="arm"),
        'policy = "lints"\nposterior_scale = 0.1\nspace = "arm"\nseed = 7\n',
    ),
}
# Those of which each part is in another one too take their time in the long tests.
MODES = [
    ("blockwise", "plain", "per_arm", "lints"),
    pytest.param("blockwise", "plain", "outer", "linucb", marks=pytest.mark.long),
    pytest.param("blockwise", "plain", "disjoint", "linucb", marks=pytest.mark.long),
    pytest.param("dense", "plain", "per_arm", "linucb", marks=pytest.mark.long),
    ("dense", "plain", "outer", "lints"),
    pytest.param("dense", "plain", "disjoint", "lints", marks=pytest.mark.long),
    ("dense", "secure", "per_arm", "linucb"),
    ("dense", "secure", "outer", "linucb"),
    ("dense", "secure", "disjoint", "lints"),
]


@pytest.mark.parametrize(("mask", "aggregation", "layout", "policy_name"), MODES)
def test_processes_over_tls_decide_as_the_run_in_one_process(
    tmp_path, mask, aggregation, layout, policy_name
):
    terms = Terms(mask, aggregation, layout, arm_dim=3 if layout == "outer" else 0)
    world = LiveWorld(tmp_path, terms=terms)
    policy, text = POLICIES[policy_name]
    in_process = Federation(
        policy,
        widths=WIDTHS,
        mask=mask,
        aggregation=aggregation,
        layout=layout,
        arm_dim=terms.arm_dim or None,
        seed=7,
    )
    with world.federation(model=text) as federation:
        session = asyncio.run(play(world, federation, world.central(policy, seed=7), in_process))
    assert session.is_lossless, (session.equal, session.total, session.largest_difference)
    assert all(set(names) == set(WIDTHS) for names in session.contributors)


async def play(world, federation, central, in_process):
    draws = EventDraws(7)
    draws.lend_to(in_process.bandit)
    async with Session(world, federation, central) as session:
        await wait_until_connected(session)
        for _ in range(40):
            user = world.users[session.total % len(world.users)]
            await session.play(1)
            blocks = {name: world.rows(name, user) for name in WIDTHS}
            if not world.per_arm:
                blocks = {name: block[0] for name, block in blocks.items()}
            reply = session.replies[-1]
            draws.seed(reply.event_id)
            decision = in_process.decide(blocks, arms=world.arms, arm_features=world.arm_features)
            assert decision.arm == reply.arm
            assert np.allclose(decision.scores, np.frombuffer(reply.scores), atol=1e-9)
            in_process.reward(decision, world.reward(user, reply.index))
    return session
