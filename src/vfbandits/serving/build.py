"""The composition root: how a process of the active participant is assembled.

=======  ===============================  ==========================  =====================
role     its campaigns                    contexts come from          HTTP
=======  ===============================  ==========================  =====================
both     leaders, each with its journal   the participants, by gRPC   if there is ``[http]``
trainer  the same, while it leads         the same                    all but ranking
ranker   replicas, each with its tail     the trainer, by gRPC        all but retracting
=======  ===============================  ==========================  =====================

HTTP is a ``Front`` that the caller makes (``http/serve.py``): gRPC alone works without it.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from vfbandits.campaign.events import LEADERSHIP, Administered
from vfbandits.campaign.settings import DEFAULT
from vfbandits.core.shares.slots import SlotLearner
from vfbandits.errors import ConfigError, FeatureError, JournalError
from vfbandits.features.named import FeatureNames
from vfbandits.features.open import open_features, open_names
from vfbandits.files import write_whole
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.pki import Identity
from vfbandits.pki.files import read_file
from vfbandits.pki.member import authority_key, own_member, sealing_key_of, server_name, tls_of
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.passive import HeldShare
from vfbandits.protocol.roster import ACTIVE, Roster
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.serving.active import ActiveService
from vfbandits.serving.campaigns import Campaigns, catch_up
from vfbandits.serving.consumer import Consumer
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.journals import CampaignJournals
from vfbandits.serving.leader import Leader
from vfbandits.serving.leader_link import LeaderLink
from vfbandits.serving.masks import Changes, load_envelopes, load_round, load_seats
from vfbandits.serving.replica import Replica, Replicas, Shape, Sources
from vfbandits.serving.replica_journal import ReplicaJournal
from vfbandits.serving.share_epochs import DealtEpochs
from vfbandits.serving.standby import STANDING_BY, Standby
from vfbandits.serving.tail import Tail
from vfbandits.serving.traced import TracedLeader
from vfbandits.serving.warm_up import warm_up_all
from vfbandits.settings.address import describe_url
from vfbandits.settings.http import HttpSettings
from vfbandits.settings.role import Role
from vfbandits.settings.services import ActiveSettings, ParticipantConfig
from vfbandits.telemetry.log import Logger, logger_for
from vfbandits.telemetry.readings import SharesGauges
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.telemetry.tracer import Tracer
from vfbandits.telemetry.tracing import TracingSettings, make_tracer
from vfbandits.transport.event_loop import signalled
from vfbandits.transport.rpc.application import ApplicationClient
from vfbandits.transport.rpc.server import RpcListener

FIRST_EPOCH = 1
WAITING_FOR_LOG = "waiting for the journal"
TRY_EVERY_S = 0.5
LEADER_SLACK_S = 2.0  # what a ranker adds to the leader's own deadline

Kind: TypeAlias = Literal["active", "trainer", "ranker"]


@dataclass(frozen=True, slots=True)
class Process:
    """A process, as its front serves it.

    Attributes
    ----------
    kind
        "active" is a process of role both.
    campaigns
        Leaders or replicas, by name.
    roster
        The roster in force.
    participants, link_changes
        The state of each participant, and the changes of their links, oldest first.
    tracer
        Traces the requests.
    names
        Turns features by name into the active participant's block.
    shares
        What is left of the dealt words, and whether the helper is there, under protection "shares".
    """

    kind: Kind
    campaigns: Campaigns | Replicas
    roster: Callable[[], Roster]
    participants: Callable[[], Mapping[str, Mapping[str, object]]]
    link_changes: Callable[[], list[tuple[float, str, str]]]
    tracer: Tracer | None = None
    names: FeatureNames = field(default_factory=FeatureNames)
    shares: Callable[[], SharesGauges | None] = lambda: None


Serve: TypeAlias = Callable[[], Awaitable[int | None]]


class Front(Protocol):
    """The HTTP side of a process."""

    async def start(self, reason: str) -> int | None:
        """Listen before there is anything to serve, and ``wait``; returns the port."""
        ...

    def wait(self, reason: str) -> None:
        """Answer probes, and refuse everything else for this reason."""
        ...

    async def prepare(self, process: Process) -> Serve:
        """Observe the process from its first decision.

        The returned function begins to serve the process, listens if that has not begun, and
        returns the port; None if there is none.
        """
        ...

    async def stop(self) -> None:
        """Take no more requests, and finish those under way."""
        ...


class NoFront:
    """The front of a process that applications reach over gRPC only."""

    async def start(self, reason: str) -> None:
        """Do nothing: there is no port."""

    def wait(self, reason: str) -> None:
        """Do nothing: there are no probes."""

    async def prepare(self, process: Process) -> Serve:
        """Do nothing: there is no observer."""
        del process
        return self._serve

    async def _serve(self) -> None:
        """Do nothing: there is no port."""

    async def stop(self) -> None:
        """Do nothing: nothing was started."""


MakeFront: TypeAlias = Callable[[HttpSettings, Supervisor, Logger], Front]
# Called with the port of gRPC, None for a trainer and a ranker, and that of HTTP, None without it.
OnReady: TypeAlias = Callable[[int | None, int | None], None]


@dataclass(frozen=True, slots=True)
class _Base:
    """What every role begins with."""

    settings: ActiveSettings
    journals: CampaignJournals
    supervisor: Supervisor
    front: Front
    log: Logger


# --- roles ----------------------------------------------------------------------------------------


async def run_process(
    settings: ActiveSettings,
    *,
    on_ready: OnReady,
    role: Role = Role.BOTH,
    leader: str = "",
    make_front: MakeFront | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    ``leader`` is the leader's address for a ranker; the address in the file if it is empty.
    """
    journals = CampaignJournals(settings)
    _refuse_role(settings, journals, role)
    if role is not Role.BOTH:
        _refuse_for_shares(settings, role)
    log = logger_for(settings.name, settings.role)
    if role is not Role.BOTH:
        log = log.bind(process=role.value)
    supervisor = Supervisor(log)
    supervisor.watch_loop()
    front: Front = NoFront()
    if settings.http is not None and make_front is not None:
        front = make_front(settings.http, supervisor, log)
    base = _Base(settings, journals, supervisor, front, log)
    if role is Role.BOTH:
        await _run_both(base, on_ready)
        return
    on_ready(None, await front.start(STANDING_BY if role is Role.TRAINER else WAITING_FOR_LOG))
    try:
        stopping = asyncio.create_task(supervisor.until(signalled()))
        if role is Role.TRAINER:
            await _run_trainer(base, stopping)
        else:
            await _run_ranker(base, stopping, leader or settings.address)
        log.info("process_stopped")
        await stopping  # which raises if the process could not go on
    finally:
        await front.stop()


def _refuse_role(settings: ActiveSettings, journals: CampaignJournals, role: Role) -> None:
    """Refuse settings with which a process of this role could not work, or not safely."""
    if settings.http is None and role is not Role.BOTH:
        raise ConfigError(f"role {role.value}: wanted a table [http], got none")
    if not journals.is_shared and role is not Role.BOTH:
        target = settings.journal_target if settings.journal else ""
        raise ConfigError(
            f"role {role.value}: wanted a journal_target in PostgreSQL, such as 'env:VFB_JOURNAL', "
            f"which several processes can share, got {describe_url(target) if target else 'none'}"
        )
    if settings.http is not None:
        settings.http.refuse_unless_safe()


def _refuse_for_shares(settings: ActiveSettings, role: Role) -> None:
    authority = authority_key(Identity.load(settings.identity, settings.name))
    roster = open_roster(read_file(settings.roster, "the signed roster"), authority)
    if roster.terms.shares is not None:
        raise ConfigError(
            f"role {role.value}: protection 'shares' runs in one process of role both, since slots "
            "are a sequence that one process owns"
        )


async def _run_both(base: _Base, on_ready: OnReady) -> None:
    leading = await _take_over(base, kind="active")
    try:
        on_ready(*await leading.start())
        await base.supervisor.until(signalled())
        leading.campaigns.is_stopping = True
        await base.front.stop()  # open requests still need all other parts
    finally:
        await leading.stop()


async def _run_trainer(base: _Base, stopping: "asyncio.Task[None]") -> None:
    standby = Standby(
        base.settings.state,
        base.journals,
        take_over=partial(_take_over, base, kind="trainer"),
        stand_by=partial(base.front.wait, STANDING_BY),
        stopping=stopping,
        log=base.log,
    )
    await standby.run()


async def _run_ranker(base: _Base, stopping: "asyncio.Task[None]", address: str) -> None:
    replicas = await _open_replicas_once_there(base, stopping, address)
    if replicas is None:
        return
    leader = replicas.leader
    process = Process(
        kind="ranker",
        campaigns=replicas,
        roster=lambda: replicas.roster,
        participants=leader.participants,
        link_changes=leader.link_changes,
        names=names_of_ranker(base.settings, replicas.roster, base.log),
    )
    serve = await base.front.prepare(process)  # before the tails read on
    replicas.start()
    await warm_up_all([replica.model.bandit for replica in replicas], base.log)
    await serve()
    base.log.info("ranker_started", campaigns=", ".join(replicas.names), leader=address)
    await asyncio.wait({stopping})
    replicas.is_stopping = True
    await base.front.stop()
    await replicas.stop()


def names_of_ranker(settings: ActiveSettings, roster: Roster, log: Logger) -> FeatureNames:
    """Features by name; none on a machine without the scaling, which only a leader must have."""
    try:
        return open_names(settings.features, roster)
    except FeatureError as error:
        log.warning("names_unavailable", reason=str(error))
        return FeatureNames()


# --- a process that leads -------------------------------------------------------------------------


@dataclass(slots=True)
class Leading:
    """An active participant with all its campaigns, which decides and learns until ``stop``."""

    base: _Base
    service: ActiveService
    campaigns: Campaigns
    tracer: Tracer | None
    kind: Kind
    names: FeatureNames

    async def start(self) -> tuple[int, int | None]:
        """Listen for participants, and serve applications; returns the ports of gRPC and HTTP."""
        base, service = self.base, self.service
        process = Process(
            kind=self.kind,
            campaigns=self.campaigns,
            roster=lambda: service.role.roster,
            participants=service.participants,
            link_changes=service.presence.changes,
            tracer=self.tracer,
            names=self.names,
            shares=service.describe_shares,
        )
        await warm_up_all([leader.model.bandit for leader in self.campaigns], base.log)
        serve = await base.front.prepare(process)
        port = await service.start(listener_of(base.settings, service))
        self.campaigns.start()
        return port, await serve()

    def reasons_to_give_way(self) -> list[str]:
        """Why this process should stop leading; a task that is restarted is no reason yet."""
        return self.campaigns.problems(stuck=True)

    async def stop(self) -> None:
        """Finish open requests, then close everything."""
        self.campaigns.is_stopping = True
        await self.service.stop()
        await self.campaigns.stop()
        if self.tracer is not None:
            self.tracer.close()


async def _take_over(base: _Base, *, kind: Kind) -> Leading:
    """Open all journals for writing, which no other process can do from now on."""
    settings, log = base.settings, base.log
    build = partial(build_active, settings, log, base.supervisor, base.journals)
    active = await asyncio.to_thread(build)
    tracer: Tracer | None = None
    if settings.http is not None:
        tracer = make_tracer(TracingSettings(settings.http.traces))
    try:
        campaigns = await open_campaigns(settings, active, log, tracer=tracer)
    except BaseException:
        if tracer is not None:
            tracer.close()
        raise
    leading = Leading(
        base=base,
        service=active.service,
        campaigns=campaigns,
        tracer=tracer,
        kind=kind,
        names=active.names,
    )
    if kind == "trainer":  # one of several processes that may lead
        host = f"{settings.name}@{socket.gethostname()}"
        asked = Administered(LEADERSHIP, "a trainer took over", host, time.time())
        try:
            for leader in campaigns:
                await leader.durable.log(asked)
        except BaseException:
            await leading.stop()
            raise
    return leading


@dataclass(slots=True)
class JournalQueue:
    """The journal of the one campaign on secret shares, and the queue of its rewards."""

    durable: DurableBandit

    @property
    def slots(self) -> SlotLearner:
        """The queue of the model in memory."""
        slots = self.durable.model.bandit.slots
        if slots is None:
            raise ConfigError(
                "the journal must be one on secret shares, got that of a plain model: start a new "
                "journal for another protection level"
            )
        return slots

    async def flush(self) -> None:
        """Wait until all records so far are durable."""
        await self.durable.flush()


@dataclass(slots=True)
class Active:
    """An active participant: its role as a service, and the journal of the default campaign."""

    service: ActiveService
    durable: DurableBandit
    journals: CampaignJournals
    names: FeatureNames


def build_active(
    settings: ActiveSettings,
    log: Logger,
    supervisor: Supervisor | None = None,
    journals: CampaignJournals | None = None,
) -> Active:
    """An active participant, ready to start; reads its files, opens no port."""
    identity = Identity.load(settings.identity, settings.name)
    first = _first_roster(settings)
    journals = CampaignJournals(settings) if journals is None else journals
    journal = journals.open(DEFAULT)
    try:
        roster = open_roster(first, authority_key(identity))
        make = partial(settings.model.build, roster)
        (default, *_) = settings.campaigns
        durable = DurableBandit.open(
            journal, make, epoch=FIRST_EPOCH, signed_roster=first, file_settings=default.described
        )
        _tell_of_loss(log, DEFAULT, durable)
        role, changes = _role_of(settings, identity, durable, journals)
        names = open_names(settings.features, role.roster)
        features = None
        if settings.features is not None and not settings.features.is_request:
            features = open_features(settings.features)
    except BaseException:
        journal.close()  # so that the next attempt can open it, once the error is corrected
        raise
    service = ActiveService(role, settings.model, changes, features=features, log=log)
    if supervisor is not None:
        service.supervisor = supervisor
    if role.roster.terms.shares is not None:
        try:
            _share_contexts(service, settings, identity, durable, changes)
        except BaseException:
            journal.close()
            raise
    return Active(service, durable, journals, names)


def _role_of(
    settings: ActiveSettings,
    identity: Identity,
    durable: DurableBandit,
    journals: CampaignJournals,
) -> tuple[ActiveParticipant, Changes]:
    """The role with its mask share, and its files for mask changes."""
    authority = authority_key(identity)
    state, signed, epoch = settings.state, durable.signed_roster, durable.epoch
    roster = open_roster(signed, authority)
    own_member(settings, roster)
    shares = ShareFiles(state / "shares")
    changes = Changes(state, shares, authority, sealing_key_of(identity), signed)
    envelopes = load_envelopes(state / "envelopes", roster, epoch)
    if not envelopes and settings.envelopes is not None:
        envelopes = load_envelopes(settings.envelopes, roster, epoch)
    held = shares.load()
    if epoch not in held:
        _refuse_unless_new(settings, durable, held, journals)
        share = changes.receive_share(roster, epoch, envelopes)
        held[epoch] = HeldShare(share, signed)
        shares.store(epoch, held[epoch])
    seats = load_seats(state)
    role = ActiveParticipant(
        roster,
        held[epoch].share,
        epoch=epoch,
        patience=settings.patience,
        has_share=() if seats is None or seats.epoch != epoch else seats.names,
        first_round=1 if roster.terms.shares is not None else load_round(state),
        sealing_key=sealing_key_of(identity),
    )
    role.envelopes = envelopes
    return role, changes


def _share_contexts(
    service: ActiveService,
    settings: ActiveSettings,
    identity: Identity,
    durable: DurableBandit,
    changes: Changes,
) -> None:
    """Open server A with its dealt words; an unfinished hand-over comes first."""
    role, slots = service.role, durable.model.bandit.slots
    if slots is not None:
        slots.take_terms(role.roster.share_terms)
    epochs = DealtEpochs(settings, sealing_key_of(identity), role, changes)
    server, own, following = epochs.open_server(service.helper.answer)
    role.resume_at(server.next_round)
    service.share_contexts(server, own, epochs)
    if following is not None and service.shared is not None:
        service.shared.go_to(following)


def _by_file(settings: ActiveSettings) -> str:
    """The author of settings that come with the file that a process was started with."""
    return f"file, {settings.started_by}" if settings.started_by else "file"


async def open_campaigns(
    settings: ActiveSettings, active: Active, log: Logger, *, tracer: Tracer | None = None
) -> Campaigns:
    """All campaigns, the default first, at the same mask epoch."""
    service, first, journals = active.service, active.durable, active.journals
    if service.shared is not None and len(settings.campaigns) > 1:
        names = ", ".join(plan.name for plan in settings.campaigns)
        raise ConfigError(
            f"protection 'shares' has one campaign, {DEFAULT!r}: words are dealt for one model; "
            f"got {names}"
        )
    leaders, consumers = [], []
    async with AsyncExitStack() as opened:
        opened.push_async_callback(first.close)
        for plan in settings.campaigns:
            durable = first
            if plan.name != DEFAULT:
                make = partial(plan.model.build, service.role.roster)
                journal = journals.open(plan.name)
                opened.callback(journal.close)
                durable = DurableBandit.open(
                    journal,
                    make,
                    epoch=first.epoch,
                    signed_roster=first.signed_roster,
                    file_settings=plan.described,
                )
                await catch_up(durable, first)
                _tell_of_loss(log, plan.name, durable)
            elif service.shared is not None:
                service.shared.attach(JournalQueue(durable))
            rules = plan.settings
            if settings.http is None:  # no application knows of a wait
                rules = replace(rules, reward_wait_s=None)
            source = service.shared or service.rounds
            if tracer is None:
                leader = Leader(plan.name, durable, source, rules)
            else:
                leader = TracedLeader(plan.name, durable, source, rules, tracer=tracer)
            if service.shared is not None:
                leader.observe([service.shared])
            leader.arm_expiry_s, leader.log = plan.model.arm_expiry_s, log
            leader.retain_s = plan.retain_s
            await leader.note_file(plan.described, by=_by_file(settings))
            leaders.append(leader)
            if journals.is_shared:
                inbox = await asyncio.to_thread(journals.open_inbox, plan.name)
                opened.push_async_callback(asyncio.to_thread, inbox.close)
                is_in_use = partial(_has_rankers, service)
                consumers.append(
                    Consumer(leader, inbox, is_in_use=is_in_use, supervisor=service.supervisor)
                )
        opened.pop_all()
    service.leaders = {leader.name: leader for leader in leaders}
    return Campaigns(
        leaders,
        consumers,
        log=log,
        snapshot_every=settings.snapshot_every,
        supervisor=service.supervisor,
    )


def _has_rankers(service: ActiveService) -> bool:
    return service.counts["gathered"] > 0


def listener_of(settings: ParticipantConfig, service: ActiveService) -> RpcListener:
    """The port of an active participant."""
    return RpcListener(settings.address, tls=tls_of(settings), calls=service)


def _first_roster(settings: ActiveSettings) -> bytes:
    """The roster with which the journal begins; later ones are in the journal."""
    kept = settings.state / "first-roster.signed"
    if not kept.is_file():
        settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = read_file(settings.roster, "the signed roster")
        write_whole(kept, lambda file: file.write(data), mode=0o600)
    return read_file(kept, "the signed roster")


def _tell_of_loss(log: Logger, campaign: str, model: DurableBandit) -> None:
    """Log that a journal was opened although it had lost records."""
    lost = model.recovery.damage.records
    if lost:
        log.warning("loss_accepted", campaign=campaign, records=lost, position=model.position)


def _refuse_unless_new(
    settings: ActiveSettings,
    durable: DurableBandit,
    held: Collection[int],
    journals: CampaignJournals,
) -> None:
    """Refuse to draw a share for a journal with records: its model would turn to noise.

    A share is on the disk before the first record is written, so a journal without records has
    never had one.
    """
    if not settings.journal:
        return
    if durable.position or durable.epoch != FIRST_EPOCH:
        raise ConfigError(missing_share(settings.state, durable.epoch, held, DEFAULT))
    for plan in settings.campaigns:
        if plan.name != DEFAULT and journals.has_records(plan.name):
            raise ConfigError(missing_share(settings.state, durable.epoch, held, plan.name))


def missing_share(state: Path, epoch: int, held: Collection[int], campaign: str) -> str:
    """The error text if the share of ``epoch`` is missing, behind which ``campaign`` has learnt."""
    others = f", got those of {', '.join(map(str, sorted(held)))}" if held else ""
    return (
        f"{state / 'shares' / f'epoch-{epoch}.share'} is not there{others}: campaign {campaign!r} "
        f"has learnt behind this share, and behind a new one its estimates would be noise.  Put "
        f"the file back from a backup.  If there is none, move {state} away and begin again at "
        f"epoch {FIRST_EPOCH}: see 'What to back up' in the operations manual"
    )


# --- a process that follows -----------------------------------------------------------------------


async def _open_replicas_once_there(
    base: _Base, stopping: "asyncio.Task[None]", address: str
) -> Replicas | None:
    """Wait until a trainer has made the journals; None if this process is to stop first."""
    told = ""
    while not stopping.done():
        try:
            return await _open_replicas(base, address)
        except JournalError as error:
            if str(error) != told:
                told = str(error)
                base.log.warning("journal_awaited", reason=told)
        await asyncio.wait({stopping}, timeout=TRY_EVERY_S)
    return None


async def _open_replicas(base: _Base, address: str) -> Replicas:
    """All campaigns, at the end of their journals; ``address`` is where the leader listens."""
    settings, supervisor = base.settings, base.supervisor
    authority = authority_key(Identity.load(settings.identity, settings.name))

    def read_roster(signed: bytes) -> Roster:
        return open_roster(signed, authority)

    async with AsyncExitStack() as stack:
        opened = {}
        for plan in settings.campaigns:
            tail, journal = await asyncio.to_thread(_open_replica, base.journals, plan.name)
            opened[plan.name] = tail, journal, plan.settings
            stack.push_async_callback(journal.close)
            stack.push_async_callback(tail.stop)
        roster = read_roster(opened[DEFAULT][0].model.signed_roster)
        if roster.active.name != settings.name:
            raise ConfigError(
                f"wanted the active participant {roster.active.name!r}, "
                f"got the file of {settings.name!r}"
            )
        client = ApplicationClient(
            address,
            tls=tls_of(settings),
            name=settings.name,
            role=ACTIVE,
            server_name=server_name(roster),
        )
        stack.pop_all()
    answer_s = settings.patience.deadline_s + LEADER_SLACK_S
    leader = LeaderLink(client, answer_s=answer_s, supervisor=supervisor)
    sources = Sources(leader.gather, lambda signed: Shape.of(read_roster(signed)))
    replicas = [
        Replica(name, tail, journal, sources, rules)
        for name, (tail, journal, rules) in opened.items()
    ]
    return Replicas(replicas, leader, read_roster, supervisor)


def _open_replica(journals: CampaignJournals, campaign: str) -> tuple[Tail, ReplicaJournal]:
    with ExitStack() as opened:
        reader = opened.enter_context(closing(journals.open_reader(campaign)))
        inbox = opened.enter_context(closing(journals.open_inbox(campaign)))
        # One reader serves both: its look-ups use a connection of their own.
        result = Tail(reader), ReplicaJournal(inbox, reader)
        opened.pop_all()
    return result
