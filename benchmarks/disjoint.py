"""What a decision costs in layout disjoint when many arms have been rewarded.

Two campaigns on logs in memory play in turns, in blocks, so that whatever slows the machine slows
both; on a machine that does other work too, the wall clock of a campaign is noise, and CPU time
says more.  Also the bandit alone, which slows down with the memory that the asked arms are spread
over; how long a snapshot holds the event loop; and how long a restart takes.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeAlias

import numpy as np

import vfbandits as vfb
from vfbandits.campaign.model import Model
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.arrays import Counts
from vfbandits.core.context import Split
from vfbandits.core.warm_up import warm_up
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.snapshot import open_sealed, seal_snapshot
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader

DIM = 20
ASKED = 10
MAX_RATIO = 1.2
Play: TypeAlias = Callable[[Leader, tuple[str, ...]], Awaitable[object]]


class Source:
    """Contexts that need no federation."""

    max_rows = 1_000
    keep = None
    split = Split.of({"shop": 5, "bank": 15})

    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def n_rows(self, query: Query) -> int:
        """One, of the user."""
        del query
        return 1

    async def contexts(self, queries: Sequence[Query], *, campaign: str) -> list[Contexts]:
        """Random rows of about length 1."""
        del campaign
        rows = self._rng.standard_normal((len(queries), 1, DIM)) / DIM**0.5
        return [Contexts(row, self.split.names) for row in rows]

    def release(self) -> None:
        """Nothing waits for it."""


def main() -> None:
    """Measure, print, and exit by the bar."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.disjoint", description=__doc__)
    parser.add_argument("--arms", type=int, default=20_000, help="how many have been rewarded")
    parser.add_argument("--blocks", type=int, default=200, help="turns of each campaign")
    parser.add_argument("--rounds", type=int, default=20, help="decisions in a block")
    options = parser.parse_args()
    sys.exit(asyncio.run(measure(options.arms, options.blocks, options.rounds)))


async def measure(n_arms: int, blocks: int, rounds: int) -> int:
    """Print what was measured; 0 if the bar is met."""
    empty, full = await make(0), await make(n_arms)
    is_met = True
    say(f"A decision with {ASKED} arms asked, d = {DIM}, at 0 and at {n_arms:,} arms:")
    for name, play in (("a campaign", rank), ("the bandit alone", decide)):
        first, last = await race(empty, full, play, blocks=blocks, rounds=rounds)
        say(f"  {name}, p50: {ratio(first.wall_s, last.wall_s)}")
        say(f"  {name}, CPU: {ratio(first.cpu_s, last.cpu_s)}")
        if play is rank:
            is_met = median(last.wall_s) <= MAX_RATIO * median(first.wall_s)
    held_s = []
    for _ in range(2):  # the first, and one after which little was learnt
        started = time.perf_counter()
        snapshot = Model(full.model.bandit).snapshot()
        held_s.append(time.perf_counter() - started)
    sealed = seal_snapshot(snapshot)
    started = time.perf_counter()
    vfb.Bandit.restore(open_sealed(sealed))
    restored_s = time.perf_counter() - started
    say(f"a snapshot of {n_arms:,} arms holds the event loop for {held_s[0] * 1e3:.0f} ms, the "
        f"next one for {held_s[1] * 1e3:.0f} ms; its {len(sealed) / 1e6:.0f} MB are restored in "
        f"{restored_s:.2f} s")  # fmt: skip
    say(f"bar, p50 of a campaign at most {MAX_RATIO} times: {'pass' if is_met else 'FAIL'}")
    return 0 if is_met else 1


async def make(n_arms: int) -> Leader:
    """A campaign in which each of so many arms has had a reward."""
    policy = vfb.LinUCB()
    model = DurableBandit.open(
        MemoryJournal(MemoryDisk()), lambda: vfb.Bandit(policy, dim=DIM, layout="disjoint", seed=0)
    )
    warm_up(model.bandit)
    campaign = Leader("default", model, Source(), CampaignSettings(policy))
    for start in range(0, n_arms, 500):
        arms = [f"arm {arm}" for arm in range(start, min(start + 500, n_arms))]
        await asyncio.gather(*(teach(campaign, arm) for arm in arms))
    return campaign


async def teach(campaign: Leader, arm: str) -> None:
    """Show one arm and reward it."""
    await campaign.rank(Query("ann", (arm,), f"first {arm}"))
    await campaign.reward(f"first {arm}", 1.0)


async def rank(campaign: Leader, arms: tuple[str, ...]) -> object:
    """A durable decision and its answer."""
    return await campaign.rank(Query("ann", arms))


async def decide(campaign: Leader, arms: tuple[str, ...]) -> object:
    """A decision and its probabilities, forgotten."""
    bandit, user = campaign.model.bandit, np.full(DIM, 0.2)
    decision = bandit.decide(user, arms=arms)
    bandit.forget(decision)
    return decision.propensity.probabilities()


async def race(
    empty: Leader, full: Leader, play: Play, *, blocks: int, rounds: int
) -> tuple["Cost", "Cost"]:
    """What a decision of both costs, in turns."""
    rng = np.random.default_rng(1)
    n_arms = max(full.model.bandit.n_arms, ASKED)
    costs = Cost(), Cost()
    for block in range(2 * blocks):
        campaign, cost = (empty, full)[block % 2], costs[block % 2]
        asked = [arms_of(rng.choice(n_arms, ASKED, replace=False)) for _ in range(rounds)]
        busy = time.process_time()
        for arms in asked:
            started = time.perf_counter()
            await play(campaign, arms)
            cost.wall_s.append(time.perf_counter() - started)
        cost.cpu_s.append((time.process_time() - busy) / rounds)
    return costs


@dataclass(frozen=True, slots=True)
class Cost:
    """Wall seconds of each decision, and CPU seconds of a decision by block."""

    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)


def ratio(empty: list[float], full: list[float]) -> str:
    """Both medians in microseconds, and their ratio."""
    first, last = median(empty), median(full)
    return f"{first * 1e6:.1f} and {last * 1e6:.1f} µs, ratio {last / first:.2f}"


def arms_of(numbers: Counts) -> tuple[str, ...]:
    """Names of arms."""
    return tuple([f"arm {number}" for number in numbers])


def say(line: str) -> None:
    """Print a line of the report."""
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
