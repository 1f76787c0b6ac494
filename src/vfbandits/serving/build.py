"""A configuration file becomes a running process, until a signal ends it."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vfbandits.campaign.settings import DEFAULT
from vfbandits.errors import ConfigError
from vfbandits.features.open import Features, open_features, refuse_other_features
from vfbandits.files import write_whole
from vfbandits.journal.base import Journal
from vfbandits.journal.crypto import read_key
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.journal.open import is_database, open_journal
from vfbandits.journal.recent import RecentJournal
from vfbandits.pki import Identity
from vfbandits.pki.files import read_file
from vfbandits.pki.member import authority_key, own_member, sealing_key_of, tls_of
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.passive import HeldShare
from vfbandits.protocol.roster import Member, Roster
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.serving.active import ActiveService
from vfbandits.serving.campaigns import Campaigns, catch_up
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import NO_TRACER, Leader
from vfbandits.serving.masks import Changes, load_envelopes, load_round, load_seats
from vfbandits.serving.warm_up import warm_up_all
from vfbandits.settings.services import ActiveSettings, ParticipantConfig
from vfbandits.telemetry.log import Logger, logger_for
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.telemetry.tracer import Tracer
from vfbandits.transport.event_loop import signalled
from vfbandits.transport.rpc.server import RpcListener

FIRST_EPOCH = 1


@dataclass(slots=True)
class Active:
    """An active participant: its role as a service, and the journal of the default campaign."""

    service: ActiveService
    durable: DurableBandit

    async def close(self) -> None:
        """Give the journal back; for one that was never started."""
        await self.durable.close()


def build_active(
    settings: ActiveSettings, log: Logger, supervisor: Supervisor | None = None
) -> Active:
    """An active participant, ready to start; reads its files, opens no port."""
    place = settings.place
    identity = Identity.load(place.identity, place.name)
    authority = authority_key(identity)
    first = _first_roster(place)
    journal = _journal(settings, DEFAULT)
    try:
        roster = open_roster(first, authority)
        make = partial(settings.model.build, roster)
        durable = DurableBandit.open(journal, make, epoch=FIRST_EPOCH, note=first)
        tell_of_loss(log, DEFAULT, durable)
        service = _active_of(settings, identity, durable, log)
    except BaseException:
        journal.close()  # so that the next one can open it, with what was amiss put right
        raise
    if supervisor is not None:
        service.supervisor = supervisor
    return Active(service, durable)


def _active_of(
    settings: ActiveSettings, identity: Identity, durable: DurableBandit, log: Logger
) -> ActiveService:
    place = settings.place
    authority = authority_key(identity)
    signed, epoch = durable.note, durable.epoch
    roster = open_roster(signed, authority)
    own_member(place, roster)
    shares = ShareFiles(place.state / "shares")
    changes = Changes(place.state, shares, authority, sealing_key_of(identity), signed)
    envelopes = _envelopes(settings, roster, epoch)
    held = shares.load()
    if epoch not in held:
        _refuse_unless_new(settings, durable, held)
        share = changes.receive_share(roster, epoch, envelopes)
        held[epoch] = HeldShare(share, signed)
        shares.store(epoch, held[epoch])
    role = ActiveParticipant(
        roster,
        held[epoch].share,
        epoch=epoch,
        patience=settings.patience,
        has_share=load_seats(place.state, epoch),
        first_round=load_round(place.state),
    )
    role.envelopes = envelopes
    features = _features_of(settings, roster.active)
    return ActiveService(role, settings.model, changes, features=features, log=log)


async def open_campaigns(
    settings: ActiveSettings, active: Active, log: Logger, *, tracer: Tracer = NO_TRACER
) -> Campaigns:
    """All campaigns, the default first, at the same mask epoch."""
    service, first = active.service, active.durable
    leaders = []
    for plan in settings.campaigns:
        durable = first
        if plan.name != DEFAULT:
            make = partial(plan.model.build, service.role.roster)
            journal = _journal(settings, plan.name)
            durable = DurableBandit.open(journal, make, epoch=first.epoch, note=first.note)
            await catch_up(durable, first)
            tell_of_loss(log, plan.name, durable)
        rules = plan.settings
        if settings.http is None:  # no application was told of a wait
            rules = replace(rules, reward_wait_s=None)
        leader = Leader(plan.name, durable, service.rounds, rules, tracer=tracer)
        leader.arm_expiry_s, leader.log = plan.model.arm_expiry_s, log
        leaders.append(leader)
    service.leaders = {leader.name: leader for leader in leaders}
    return Campaigns(
        leaders,
        log=log,
        snapshot_every=settings.snapshot_every,
        supervisor=service.supervisor,
    )


async def run_active(settings: ActiveSettings, *, on_ready: Callable[[int], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``on_ready`` hears the port."""
    place = settings.place
    log = logger_for(place.name, place.role)
    active = build_active(settings, log)
    service = active.service
    service.supervisor.watch_loop()
    campaigns = await open_campaigns(settings, active, log)
    await warm_up_all([leader.model.bandit for leader in campaigns], log)
    port = await service.start(listener_of(place, service))
    campaigns.start()
    on_ready(port)
    await service.supervisor.until(signalled())
    await service.stop()
    await campaigns.stop()


def listener_of(place: ParticipantConfig, service: ActiveService) -> RpcListener:
    """The port of an active participant."""
    return RpcListener(place.address, tls=tls_of(place), calls=service)


def _first_roster(place: ParticipantConfig) -> bytes:
    """The roster with which the log of events begins; later ones are in the log."""
    kept = place.state / "first-roster.signed"
    if not kept.is_file():
        place.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = read_file(place.roster, "the signed roster")
        write_whole(kept, lambda file: file.write(data), mode=0o600)
    return read_file(kept, "the signed roster")


def tell_of_loss(log: Logger, campaign: str, model: DurableBandit) -> None:
    """Log that a journal was opened although it had lost records."""
    lost = model.recovery.damage.records
    if lost:
        log.warning("loss_accepted", campaign=campaign, records=lost, position=model.position)


def _refuse_unless_new(
    settings: ActiveSettings, durable: DurableBandit, held: Mapping[int, HeldShare]
) -> None:
    """A share is drawn for new journals only: what was learnt behind another would turn to noise.

    The share is on the disk before the first record is written, so that a journal without any has
    never had one.
    """
    if not settings.journal:
        return
    learnt = [DEFAULT] if durable.position or durable.epoch != FIRST_EPOCH else []
    plans = () if learnt else settings.campaigns
    learnt += [plan.name for plan in plans if _has_records(settings, plan.name)]
    if learnt:
        raise ConfigError(missing_share(settings.place.state, durable.epoch, held, learnt[0]))


def missing_share(state: Path, epoch: int, held: Collection[int], campaign: str) -> str:
    """What is wrong if there is no share of ``epoch``, behind which ``campaign`` has learnt."""
    others = f", got those of {', '.join(map(str, sorted(held)))}" if held else ""
    return (
        f"{state / 'shares' / f'epoch-{epoch}.share'} is not there{others}: campaign {campaign!r} "
        f"has learnt behind this share, and behind a new one its estimates would be noise.  Put "
        f"the file back from a backup.  If there is none, move {state} away and begin again at "
        f"epoch {FIRST_EPOCH}: see 'What to back up' in the operations manual"
    )


def _has_records(settings: ActiveSettings, campaign: str) -> bool:
    if campaign == DEFAULT or not _may_be_there(settings, campaign):
        return False
    journal = _journal(settings, campaign)
    try:
        return journal.last_position > 0
    finally:
        journal.close()


def _may_be_there(settings: ActiveSettings, campaign: str) -> bool:
    target = settings.journal_target
    return bool(target and is_database(target)) or _campaign_file(settings, campaign).exists()


def _campaign_file(settings: ActiveSettings, campaign: str) -> Path:
    return settings.place.state / "campaigns" / f"{campaign}.db"


def _journal(settings: ActiveSettings, campaign: str) -> Journal:
    """The journal of a campaign: a file of its own, or one of its name in the database."""
    if not settings.journal:
        return RecentJournal()
    key = None if settings.journal_key is None else read_key(settings.journal_key)
    target, state, accept = settings.journal_target, settings.place.state, settings.accept_loss
    if target and is_database(target):
        witness = witness_of(settings, campaign)
        witness.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open_journal(target, name=campaign, key=key, witness=witness, accept_loss=accept)
    if campaign == DEFAULT:
        return open_journal(target or state / "journal.db", key=key, accept_loss=accept)
    path = _campaign_file(settings, campaign)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    return open_journal(path, key=key, accept_loss=accept)


def witness_of(settings: ActiveSettings, campaign: str) -> Path:
    """The file that notes how far a campaign's log in a database was acknowledged."""
    return settings.place.state / "witness" / f"{campaign}.head"


def _envelopes(settings: ActiveSettings, roster: Roster, epoch: int) -> dict[str, bytes]:
    folders = [settings.place.state / "envelopes", settings.envelopes]
    found: dict[str, bytes] = {}
    for folder in folders:
        if folder is not None and not found:
            found = load_envelopes(folder, roster, epoch)
    return found


def _features_of(settings: ActiveSettings, member: Member) -> Features | None:
    if settings.features is None:
        return None
    features = open_features(settings.features)
    refuse_other_features(features, member)
    return features
