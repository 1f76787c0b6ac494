"""The campaigns of one server: independent models on the contexts of one federation."""

import asyncio
import time
from collections.abc import Iterable
from functools import partial

from vfbandits.campaign.events import Administered, MasksChanged
from vfbandits.core.bandit import Bandit
from vfbandits.errors import JournalError
from vfbandits.serving.consumer import Consumer
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader
from vfbandits.serving.served import ByName
from vfbandits.telemetry.log import Logger
from vfbandits.telemetry.supervised import Supervised, Supervisor

SETTLE_EVERY_S = 0.25
RETRY_S = 10.0


class RepairWatch:
    """Warns once per campaign that its model met numbers too large for float64.

    ``vfb_model_repairs_total`` has the count.
    """

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._warned: set[str] = set()

    def look(self, campaign: str, bandit: Bandit) -> None:
        """Warn if this model was repaired, once."""
        repairs = bandit.n_repairs
        if repairs and campaign not in self._warned:
            self._warned.add(campaign)
            self._log.warning(
                "model_repaired",
                campaign=campaign,
                repairs=repairs,
                reason="contexts outweigh the ridge beyond what float64 can carry; scale features",
            )


class Campaigns(ByName[Leader]):
    """Campaigns by name; ``/v1/rank`` uses the one named "default".

    ``consumers`` take in the records of replicas, where there may be replicas.
    """

    def __init__(
        self,
        campaigns: Iterable[Leader],
        consumers: Iterable[Consumer] = (),
        *,
        log: Logger,
        snapshot_every: int,
        supervisor: Supervisor | None = None,
    ) -> None:
        super().__init__(campaigns)
        self.consumers = tuple(consumers)
        self._log = log
        self._repairs = RepairWatch(log)
        self._snapshot_every = snapshot_every
        self._supervisor = Supervisor(log) if supervisor is None else supervisor
        self._ticking: list[Supervised] = []
        self._retry_at: dict[str, float] = {}

    def problems(self, *, stuck: bool = False) -> list[str]:
        """Why the process is not ready; with ``stuck``, tasks that are restarted do not count."""
        if self.is_stopping:
            return ["the server is stopping"]
        found = [(campaign.name, campaign.durable.broken_by) for campaign in self]
        broken = [f"campaign {name!r}: {reason}" for name, reason in found if reason is not None]
        return [*broken, *self._behind(), *self._supervisor.problems(stuck=stuck)]

    def _behind(self) -> list[str]:
        """Which campaigns have missed a mask change, and so cannot decide."""
        epochs = {campaign.name: campaign.durable.epoch for campaign in self}
        latest = max(epochs.values(), default=0)
        return [
            f"campaign {name!r}: it is at mask epoch {epoch}, wanted {latest}"
            for name, epoch in epochs.items()
            if epoch < latest
        ]

    def lag_s(self, name: str) -> float:
        """Seconds that a campaign is behind the records of replicas."""
        return max((one.lag_s for one in self.consumers if one.campaign == name), default=0.0)

    def start(self) -> None:
        """Start to settle waits, take snapshots, retire records and take in arrivals."""
        for consumer in self.consumers:
            consumer.start()
        for campaign in self:
            ticks = partial(self._tick_for_ever, campaign)
            self._ticking.append(self._supervisor.start(f"settle {campaign.name}", ticks))

    async def stop(self) -> None:
        """Refuse new requests, and finish open ones."""
        self.is_stopping = True
        for consumer in self.consumers:
            await consumer.stop()
        for task in self._ticking:
            await task.stop()
        for campaign in self:
            await campaign.durable.close()

    async def _tick_for_ever(self, campaign: Leader) -> None:
        while True:
            await asyncio.sleep(SETTLE_EVERY_S)
            try:
                while await campaign.settle():
                    pass
                await campaign.watch()
                while await campaign.expire_arms():
                    pass
                await self._take_snapshot(campaign)
                await campaign.retain()
                self._repairs.look(campaign.name, campaign.model.bandit)
            except JournalError as error:
                # ``problems`` reports it from now on; the other campaigns go on.
                facts = {"campaign": campaign.name, "reason": str(error)}
                self._log.error("campaign_failed", **facts)
                await asyncio.sleep(1.0)

    async def _take_snapshot(self, campaign: Leader) -> None:
        """Take a snapshot when one is due; a failed one is tried again later."""
        durable, now = campaign.durable, time.monotonic()
        if not 0 < self._snapshot_every <= durable.since_snapshot:
            return
        if now < self._retry_at.get(campaign.name, 0.0):
            return
        try:
            await durable.snapshot()
        except JournalError as error:
            if durable.broken_by is not None:
                raise
            self._retry_at[campaign.name] = now + RETRY_S
            self._log.error("snapshot_failed", campaign=campaign.name, reason=str(error))


async def catch_up(
    model: DurableBandit, leader: DurableBandit, *, asked: Administered | None = None
) -> None:
    """Bring a model to the leader's mask epoch, by the changes in the leader's journal.

    A change goes to the default campaign's journal first.  All others get it here: immediately, or
    at the next change or start if their journals fail or the process is killed in between.
    ``asked`` says who asked for the last of the changes.
    """
    if model.epoch == leader.epoch:
        return
    wanted = [*range(model.epoch + 1, leader.epoch + 1)]
    between = _between(leader.recent_mask_changes, model.epoch)
    if len(between) < len(wanted):  # older than those in memory
        between = _between(await leader.mask_changes(), model.epoch)
    # Without one of the changes the model would be noise.
    if not between or [changed.epoch for changed in between] != wanted:
        raise JournalError(
            f"a campaign's journal is at mask epoch {model.epoch}, wanted {leader.epoch}: the "
            "default campaign's journal no longer has the changes between them"
        )
    for changed in between:
        await model.change_masks(
            changed.matrix,
            epoch=changed.epoch,
            signed_roster=changed.signed_roster,
            asked=asked if changed is between[-1] else None,
        )


def _between(changes: Iterable[MasksChanged], epoch: int) -> list[MasksChanged]:
    return [one for one in changes if one.epoch > epoch]
