"""The campaigns of a ranker: a configuration becomes models that follow their logs."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass

from vfbandits.errors import ConfigError, UnknownEventError
from vfbandits.journal.crypto import JournalKey, read_key
from vfbandits.journal.inbox.open import open_inbox
from vfbandits.journal.open import open_reader
from vfbandits.pki import Identity
from vfbandits.pki.member import authority_key, server_name, tls_files
from vfbandits.protocol.roster import ACTIVE, Roster
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.serving.leader_link import LeaderLink
from vfbandits.serving.replica import Replica, Shape, Sources
from vfbandits.serving.replica_journal import ReplicaJournal
from vfbandits.serving.tail import Tail
from vfbandits.settings.http import CampaignPlan
from vfbandits.settings.services import ActiveSettings
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.transport.rpc.application import ApplicationClient

SLACK_S = 2.0


@dataclass(slots=True)
class Replicas:
    """Replicas by name, and the leader that they ask; implements ``ServedCampaigns``."""

    by_name: dict[str, Replica]
    leader: LeaderLink
    read_roster: Callable[[bytes], Roster]
    supervisor: Supervisor
    is_stopping: bool = False

    def __iter__(self) -> Iterator[Replica]:
        """All of them, the default first."""
        return iter(self.by_name.values())

    def __getitem__(self, name: str) -> Replica:
        """The ranker of this campaign."""
        if name not in self.by_name:
            known = ", ".join(self.by_name)
            raise UnknownEventError(f"campaign must be one of {known}, got {name!r}")
        return self.by_name[name]

    @property
    def names(self) -> list[str]:
        """Names of the campaigns."""
        return list(self.by_name)

    @property
    def roster(self) -> Roster:
        """In force as far as the log was read."""
        return self.read_roster(next(iter(self)).model.note)

    def problems(self) -> list[str]:
        """Why no traffic should come: without its log a ranker cannot even take a reward."""
        if self.is_stopping:
            return ["the server is stopping"]
        failing = [(ranker.name, ranker.tail.failing) for ranker in self]
        broken = [f"campaign {name!r}: {reason}" for name, reason in failing if reason is not None]
        return [*broken, *self.supervisor.problems()]

    def start(self) -> None:
        """Follow the logs, and look at the federation."""
        self.leader.start()
        for ranker in self:
            ranker.tail.start(self.supervisor, name=f"tail {ranker.name}")

    async def stop(self) -> None:
        """Finish what is under way, then hang up."""
        self.is_stopping = True
        await self.leader.stop()
        for ranker in self:
            await ranker.close()


async def open_replicas(
    settings: ActiveSettings,
    *,
    address: str,
    supervisor: Supervisor,
) -> Replicas:
    """All campaigns, at the end of their logs; ``address`` is where the leader listens.

    JournalError while there are no such logs yet, or the database cannot be reached.
    """
    place = settings.place
    identity = Identity.load(place.identity, place.name)
    authority = authority_key(identity)

    def read_roster(note: bytes) -> Roster:
        return open_roster(note, authority)

    key = None if settings.journal_key is None else read_key(settings.journal_key)
    async with AsyncExitStack() as stack:
        opened = {}
        for plan in settings.campaigns:
            opened[plan.name] = await asyncio.to_thread(_open, settings, plan, key)
            tail, log = opened[plan.name]
            stack.push_async_callback(log.close)
            stack.push_async_callback(tail.stop)
        first, _ = next(iter(opened.values()))
        roster = read_roster(first.model.note)
        if roster.active.name != place.name:
            raise ConfigError(f"wanted the active participant {roster.active.name!r}, "
                              f"got the file of {place.name!r}")  # fmt: skip
        client = ApplicationClient(
            address,
            tls=None if place.insecure else tls_files(identity),
            name=place.name,
            role=ACTIVE,
            server_name=server_name(roster),
        )
        answer_s = settings.patience.deadline_s + SLACK_S
        leader = LeaderLink(client, answer_s=answer_s, supervisor=supervisor)
        sources = Sources(leader.gather, lambda note: Shape.of(read_roster(note)))
        stack.pop_all()
    plans = {plan.name: plan.settings for plan in settings.campaigns}
    rankers = {
        name: Replica(name, tail, log, sources, plans[name]) for name, (tail, log) in opened.items()
    }
    return Replicas(rankers, leader, read_roster, supervisor)


def _open(
    settings: ActiveSettings, plan: CampaignPlan, key: JournalKey | None
) -> tuple[Tail, ReplicaJournal]:
    target = settings.journal_target
    reader = open_reader(target, name=plan.name, key=key)
    try:
        inbox = open_inbox(target, name=plan.name, key=key)
        try:
            # One reader: what is looked up goes by a connection of its own.
            return Tail(reader), ReplicaJournal(inbox, reader)
        except BaseException:
            inbox.close()
            raise
    except BaseException:
        reader.close()
        raise
