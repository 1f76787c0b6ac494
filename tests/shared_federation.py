"""Services on secret shares in one process, for tests."""

import asyncio

from live_world import LiveWorld
from served_federation import ServedFederation

from vfbandits.protocol.roster import SharesRules, Terms

WIDTHS = {"shop": 2, "bank": 3, "news": 2}
PASSIVE = ("bank", "news")
SCALE = 0.3
RULES = SharesRules(helper="bank", max_arms=4, window=4, decisions=6, posterior_scale=SCALE)
TERMS = Terms(bound=4.0, shares=RULES)
MODEL = f'policy = "lints"\nposterior_scale = {SCALE}\nseed = 7\n'


class SharedFederation(ServedFederation):
    """Services on secret shares in this process."""

    def __init__(self, tmp_path, *, terms=TERMS, kind="memory", model=MODEL):
        world = LiveWorld(tmp_path, widths=WIDTHS, terms=terms, n_users=6)
        plan = world.federation
        world.federation = lambda: plan(model=model, patience="deadline_s = 5.0\n")
        super().__init__(world, kind)


def run(federation, scenario):
    """Play a scenario, and end all services whatever becomes of it."""

    async def played():
        try:
            return await scenario()
        finally:
            await federation.close()

    return asyncio.run(played())


async def until(holds):
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110  (conditions in several services)
            await asyncio.sleep(0.01)


async def connected(federation, *names):
    await until(lambda: set(names) <= set(federation.active.role.askable()))
