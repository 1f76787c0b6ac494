"""A journal that already holds contexts of any size opens again, learns and changes its masks."""

import asyncio

import numpy as np
import pytest
from durables import linucb, open_on, parts
from numpy.testing import assert_allclose

from vfbandits.campaign.events import Decided, Rewarded
from vfbandits.core.mask import sample_mask
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.serving.campaigns import RepairWatch

NOW = 1_790_000_000.0


def disk_of_before(n, *, layout="per_arm"):
    """A log that version 0.1.0 would have written: it stopped at its 1,000th reward."""
    disk, rng = MemoryDisk(), np.random.default_rng(0)
    asyncio.run(open_on(disk, linucb(layout=layout)).close())
    journal = MemoryJournal(disk)
    model = "tea" if layout == "disjoint" else None
    for number in range(n):
        x = np.array([rng.standard_normal(), NOW + number])
        journal.append([Decided(f"e{number}", "tea", 0, x, model), Rewarded(f"e{number}", x[0])])
    journal.close()
    return disk


@pytest.mark.parametrize("layout", ["per_arm", "disjoint"])
def test_it_opens_decides_rotates_and_opens_again_to_the_same_bits(layout):
    disk, make = disk_of_before(1_300, layout=layout), linucb(layout=layout)
    contexts = np.eye(2) if layout == "per_arm" else np.ones(2)

    async def first():
        bandit = open_on(disk, make)
        assert bandit.recovery.replayed == 2_600
        assert bandit.bandit.n_repairs >= 1_300
        norm = bandit.bandit.estimate_norm()
        await bandit.change_masks(sample_mask(2), epoch=1)
        assert_allclose(bandit.bandit.estimate_norm(), norm, atol=1e-3)
        for _ in range(1_100):
            decision = await bandit.decide(contexts, arms=["tea", "milk"])
            await bandit.reward(decision, 1.0)
        await bandit.snapshot()
        decision = await bandit.decide(contexts, arms=["tea", "milk"])
        await bandit.reward(decision, 0.5)
        seen = parts(bandit.bandit)
        await bandit.close()
        return seen

    async def again():
        bandit = open_on(disk, make)
        seen = parts(bandit.bandit)
        await bandit.close()
        return seen

    assert asyncio.run(first()) == asyncio.run(again())


class Lines:
    def __init__(self):
        self.warnings = []

    def warning(self, event, **facts):
        self.warnings.append((event, facts))


def test_the_service_warns_once_for_each_campaign():
    log, disk = Lines(), disk_of_before(3)
    bandit = open_on(disk)
    watch = RepairWatch(log)
    for _ in range(3):
        watch.look("news", bandit.bandit)
    watch.look("calm", linucb()())
    ((event, facts),) = log.warnings
    assert event == "model_repaired"
    assert (facts["campaign"], facts["repairs"]) == ("news", 3)
    asyncio.run(bandit.close())
