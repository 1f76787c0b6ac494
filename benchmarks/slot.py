"""A contestant in its world: the loop that is timed, and the scales that weigh it."""

import gc
import time
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TypeAlias

import numpy as np

from benchmarks.contestant import Contestant, Task
from benchmarks.world import World, sample_world

# The form of a context is its contestant's own business; nobody else looks inside.
Factory: TypeAlias = Callable[[Task], Contestant[object]]


@dataclass(slots=True)
class Slot:
    """A contestant, its contexts in its own form, and the number of rounds it has played."""

    contestant: Contestant[object]
    world: World
    forms: list[object]
    played: int = 0

    def run(self, rounds: int) -> dict[str, float]:
        """Play on; only choosing and learning are timed, with the bare loop around them."""
        decide, learn = self.contestant.decide, self.contestant.learn
        forms, means, best = self.forms, self.world.means, self.world.best
        noise = self.world.noise(rounds)
        order = [t % len(forms) for t in range(self.played, self.played + rounds)]
        arms = [0] * rounds
        cpu, wall = time.process_time(), time.perf_counter()
        for t, i in enumerate(order):
            form = forms[i]
            arm = decide(form)
            learn(form, arm, means[i][arm] + noise[t])
            arms[t] = arm
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        self.played += rounds
        return {
            "cpu_s": cpu / rounds,
            "wall_s": wall / rounds,
            "regret": sum(best[i] - means[i][arm] for i, arm in zip(order, arms, strict=True)),
            "checksum": zlib.crc32(np.array(arms, dtype="<i4").tobytes()),
        }


def fill_slot(factory: str, task: Task) -> Slot:
    """Build a contestant from ``module:function``; its contexts are prepared here, untimed."""
    contestant, world = resolve(factory)(task), sample_world(task)
    return Slot(contestant, world, [contestant.prepare(contexts) for contexts in world.pool])


def weigh(factory: str, task: Task, *, rounds: int) -> dict[str, float]:
    """Bytes that a contestant holds after some rounds, and the most that it held on the way.

    A first one plays and is forgotten, so that imports and compiled code are not counted.  What
    is allocated behind Python's back (BLAS buffers, numba's own heap) is not seen.
    """
    fill_slot(factory, task).run(rounds)
    world = sample_world(task)
    gc.collect()
    tracemalloc.start()
    contestant = resolve(factory)(task)
    slot = Slot(contestant, world, [contestant.prepare(world.pool[0])])
    slot.run(rounds)
    gc.collect()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"held_bytes": held, "peak_bytes": peak}


def resolve(factory: str) -> Factory:
    """Import what ``module:function`` names."""
    module, name = factory.split(":")
    found: Factory = getattr(import_module(module), name)
    return found
