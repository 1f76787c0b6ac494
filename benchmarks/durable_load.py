"""Many visitors at once on a bandit behind a log: how many events it makes durable in a second."""

import asyncio
import time

import numpy as np

import vfbandits as vfb
from vfbandits.core.arrays import Matrix
from vfbandits.journal.base import Journal
from vfbandits.serving.durable import DurableBandit

DIM, N_ARMS = 100, 10
VISITORS = 256


def events_per_second(journal: Journal, *, seconds: float) -> tuple[float, float]:
    """Events per second, decisions and rewards, and how many went into one commit."""
    return asyncio.run(_run(journal, seconds))


async def _run(journal: Journal, seconds: float) -> tuple[float, float]:
    bandit = DurableBandit.open(journal, lambda: vfb.Bandit(vfb.LinUCB(beta=0.5), dim=DIM, seed=1))
    contexts = np.random.default_rng(0).standard_normal((64, N_ARMS, DIM))
    await asyncio.gather(*(_visit(bandit, contexts, time.perf_counter() + 1.0) for _ in range(32)))
    commits, events = bandit.commits
    start = time.perf_counter()
    await asyncio.gather(*(_visit(bandit, contexts, start + seconds) for _ in range(VISITORS)))
    elapsed = time.perf_counter() - start
    n_commits, n_events = (
        after - before for after, before in zip(bandit.commits, (commits, events), strict=True)
    )
    await bandit.close()
    return n_events / elapsed, n_events / n_commits


async def _visit(bandit: DurableBandit, contexts: Matrix, end: float) -> None:
    number = 0
    while time.perf_counter() < end:
        number += 1
        decision = await bandit.decide(
            contexts[number % len(contexts)], contributors=("shop", "bank", "news"), user="user-17"
        )
        await bandit.reward(decision, float(number % 2))
