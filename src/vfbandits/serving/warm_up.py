"""Warm-up of models before a process reports that it is ready."""

import asyncio
import time
from collections.abc import Sequence

from vfbandits.core.bandit import Bandit
from vfbandits.core.warm_up import warm_up
from vfbandits.telemetry.log import Logger


async def warm_up_all(bandits: Sequence[Bandit], log: Logger) -> None:
    """Load the loops of these models, in a thread: probes are answered meanwhile."""
    started = time.perf_counter()
    for bandit in bandits:
        await asyncio.to_thread(warm_up, bandit)
    log.info(
        "models_warmed_up", models=len(bandits), seconds=round(time.perf_counter() - started, 3)
    )
