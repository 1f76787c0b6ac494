"""Long logs, as a server leaves them: decisions with their rewards, and a snapshot near the end."""

from collections.abc import Iterator, Sequence

import numpy as np

import vfbandits as vfb
from vfbandits.campaign.events import Decided, Event, Rewarded
from vfbandits.campaign.model import Model
from vfbandits.core.bandit import Bandit
from vfbandits.journal.base import Journal

EVENTS_PER_BATCH = 5_000
CONTRIBUTORS = ("shop", "bank", "news")


def make_bandit(dim: int) -> Bandit:
    """What the log begins with."""
    return vfb.Bandit(vfb.LinUCB(beta=0.5), dim=dim, seed=1)


def events(n_events: int, *, dim: int, seed: int = 0) -> Iterator[list[Event]]:
    """Batches in which every decision is followed by its reward."""
    rng = np.random.default_rng(seed)
    made = 0
    while made < n_events:
        size = min(EVENTS_PER_BATCH, n_events - made) // 2
        contexts = rng.standard_normal((size, dim))
        batch: list[Event] = []
        for number, x in enumerate(contexts, start=made // 2):
            batch.append(
                Decided(
                    number,
                    f"arm-{number % 10}",
                    number % 10,
                    x,
                    probability=1.0,
                    contributors=CONTRIBUTORS,
                    user=f"user-{number}",
                    at=1.7e9 + number,
                )
            )
            batch.append(Rewarded(number, float(number % 2), 1.7e9 + number))
        made += 2 * size
        yield batch


def write_long_log(
    journals: Sequence[Journal], *, n_events: int, dim: int, behind: int = EVENTS_PER_BATCH
) -> Model:
    """Fill new logs with the same events; the last snapshot has ``behind`` events after it."""
    model = Model(make_bandit(dim))
    for journal in journals:
        journal.save_snapshot(0, model.snapshot())
    for batch in events(n_events, dim=dim):
        for journal in journals:
            journal.append(batch)
        for event in batch:
            model.apply(model.position + 1, event)
        if model.position in (n_events - 2 * behind, n_events - behind):
            frozen = model.snapshot()
            for journal in journals:
                journal.save_snapshot(model.position, frozen)
    return model
