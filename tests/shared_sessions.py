"""Sessions with a federation on secret shares, and a central bandit with the same noise."""

import asyncio

from live_world import DEADLINE_S, Session
from shares_world import GivenDraws

from vfbandits import Bandit, LinTS
from vfbandits.campaign.events import Decided, Rewarded
from vfbandits.core.shares.slots import ALONE, event_of
from vfbandits.demo.shared_noise import read_noises
from vfbandits.journal.open import open_journal
from vfbandits.protocol.application import RewardRequest

SCALE = 0.3
MODEL = f'policy = "lints"\nposterior_scale = {SCALE}\nseed = 7\n'


class SharedSession(Session):
    """An application that decides and rewards; what it should have been told is known later."""

    def __init__(self, world, federation, *, name="app"):
        super().__init__(world, federation, None, name=name)

    async def play(self, rounds, *, learn=True):
        world = self.world
        for _ in range(rounds):
            user = world.users[self.total % len(world.users)]
            reply = await self.client.decide(world.request(user), timeout_s=DEADLINE_S)
            self.total += 1
            self.contributors.append(reply.contributors)
            self.replies.append((user, reply))
            if learn:
                await self.reward(user, reply)

    async def reward(self, user, reply):
        request = RewardRequest(reply.event_id, self.world.reward(user, reply.index))
        await self.client.reward(request, timeout_s=DEADLINE_S)

    async def wait_until_learnt(self):
        """Wait until the servers have learnt all rewards of the journal."""
        async with asyncio.timeout(DEADLINE_S):
            while (await self.status())["shares"]["queued"]:  # noqa: ASYNC110  (in a process)
                await asyncio.sleep(0.02)


def replay(world, federation):
    """Whether each decision by both servers is that of a central bandit, in the journal's order.

    The processes have ended.  Returns how many decisions of either kind there were, and rewards.
    """
    noises, draws = read_noises(federation), GivenDraws()
    dim = sum(world.widths.values())
    twin = Bandit(LinTS(SCALE, space="parameter"), dim=dim)
    twin.draw_from(draws)
    decisions, n_alone, n_rewards = {}, 0, 0
    active = federation.roster.active.name
    journal = open_journal(federation.folder / active / "state" / "journal.db")
    for _, event in journal.read(after=0):
        if isinstance(event, Decided):
            if event_of(event.x) == ALONE:
                n_alone += 1
                continue
            draws.normals = noises[event.event_id]
            contexts = world.context(event.user, event.contributors)
            decision = twin.decide(contexts, arms=world.arms)
            assert (decision.arm, len(decisions)) == (event.arm, len(decisions))
            decisions[event.event_id] = decision
        elif isinstance(event, Rewarded) and event.event_id in decisions:
            twin.reward(decisions[event.event_id], event.value)
            n_rewards += 1
    journal.close()
    return len(decisions), n_alone, n_rewards
