"""Visitors of the demo: each is shown an arm over HTTP, and its reward follows later."""

import time
from collections import deque
from collections.abc import Callable

import numpy as np

from vfbandits.client.calls import ApiError, ApiUnreachable
from vfbandits.client.client import Client
from vfbandits.demo.rehearsal import NOISE, Town

EVERY_S = 0.05
HOLDBACK = 0.2
REWARD_AFTER = 20  # visits later


def visit(town: Town, url: str, *, while_true: Callable[[], bool]) -> None:
    """Let visitors come for as long as ``while_true`` says.

    Some of them get the baseline from now on; decisions before were the policy's alone.
    """
    rng = np.random.default_rng()
    shown: deque[tuple[str, float]] = deque()
    with Client(url) as client:
        client.change_config(holdback=HOLDBACK)
        while while_true():
            time.sleep(EVERY_S)
            try:
                shown.append(_one(client, town, rng))
                if len(shown) > REWARD_AFTER:
                    client.reward(*shown.popleft())
            except (ApiError, ApiUnreachable):
                # The user may be restarting processes; visitors come back.
                shown.clear()


def _one(client: Client, town: Town, rng: np.random.Generator) -> tuple[str, float]:
    """One visit: its event, and the reward to report later."""
    user = int(rng.integers(len(town.users)))
    answer = client.rank(town.users[user], town.arms)
    index = town.arms.index(answer.arm)
    return answer.event_id, float(town.expected[user, index] + rng.normal(scale=NOISE))
