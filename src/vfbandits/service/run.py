"""A configuration file becomes a running process, until a signal ends it."""

import asyncio
import signal
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.core.bandit import Bandit
from vfbandits.errors import ConfigError
from vfbandits.features.open import Features, open_features
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.passive import HeldShare, PassiveParticipant, Secrets
from vfbandits.protocol.roster import Member, Roster
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.service.active import ActiveService
from vfbandits.service.campaign_settings import DEFAULT
from vfbandits.service.campaigns import catch_up
from vfbandits.service.change import Changes, load_envelopes, load_round, load_seats
from vfbandits.service.durable import DurableBandit
from vfbandits.service.fleeting import FleetingBandit
from vfbandits.service.log import Logger, logger_for
from vfbandits.service.model import Model
from vfbandits.service.outbox import OUTBOX, Outbox
from vfbandits.service.passive import PassiveService
from vfbandits.service.pki import Identity
from vfbandits.service.pki_files import read_certificate, read_file
from vfbandits.service.settings import ActiveSettings, PassiveSettings, Place
from vfbandits.service.shares import ShareFiles
from vfbandits.service.state_lock import LOCK, StateLock
from vfbandits.service.supervised import Supervisor
from vfbandits.service.warm_up import warm_up_all
from vfbandits.store.journal import Journal
from vfbandits.store.key import read_key
from vfbandits.store.open_journal import is_database, open_journal
from vfbandits.store.snapshot import write_whole
from vfbandits.transport.rpc.client import RpcDialer
from vfbandits.transport.rpc.server import RpcListener
from vfbandits.transport.rpc.tls import TlsFiles

FIRST_EPOCH = 1


def build_active(
    settings: ActiveSettings, log: Logger, supervisor: Supervisor | None = None
) -> ActiveService:
    """An active participant, ready to start; reads its files, opens no port."""
    place = settings.place
    identity = Identity.load(place.identity, place.name)
    authority = authority_key(identity)
    first = _first_roster(place)
    journal = _journal(settings, DEFAULT) if settings.journal else None
    try:
        model = _open_model(settings, journal, open_roster(first, authority), first)
        if isinstance(model, DurableBandit):
            tell_of_loss(log, DEFAULT, model)
        service = _active_of(settings, identity, model, log)
    except BaseException:
        if journal is not None:
            journal.close()  # so that the next one can open it, with what was amiss put right
        raise
    if supervisor is not None:
        service.supervisor = supervisor
    for plan in settings.campaigns:
        if plan.name == DEFAULT:
            service.decisions.check_reward = plan.settings.as_reward
    return service


def _active_of(
    settings: ActiveSettings, identity: Identity, model: Model, log: Logger
) -> ActiveService:
    place = settings.place
    authority = authority_key(identity)
    signed = model.note
    roster = open_roster(signed, authority)
    _own_member(place, roster)
    shares = ShareFiles(place.state / "shares")
    changes = Changes(place.state, shares, authority, _sealing_key(identity), signed)
    envelopes = _envelopes(settings, roster, model.epoch)
    held = shares.load()
    if model.epoch not in held:
        _refuse_unless_new(settings, model, held)
        share = changes.receive_share(roster, model.epoch, envelopes)
        held[model.epoch] = HeldShare(share, signed)
        shares.store(model.epoch, held[model.epoch])
    role = ActiveParticipant(
        roster,
        held[model.epoch].share,
        epoch=model.epoch,
        patience=settings.patience,
        has_share=load_seats(place.state, model.epoch),
        first_round=load_round(place.state),
    )
    role.envelopes = envelopes
    return ActiveService(
        role,
        model,
        settings.model,
        changes,
        features=_features_of(settings, roster.active),
        log=log,
        snapshot_every=settings.snapshot_every,
    )


async def run_active(settings: ActiveSettings, *, on_ready: Callable[[int], None]) -> None:
    """Serve until SIGTERM or SIGINT; ``on_ready`` hears the port."""
    place = settings.place
    log = logger_for(place.name, place.role)
    service = build_active(settings, log)
    service.supervisor.watch_loop()
    await warm_up_all([service.decisions.model.bandit], log)
    on_ready(await service.start(listener_of(place, service)))
    await service.supervisor.until(signalled())
    await service.stop()


def listener_of(place: Place, service: ActiveService) -> RpcListener:
    """The port of an active participant."""
    return RpcListener(place.address, tls=_tls(place), calls=service)


def build_passive(settings: PassiveSettings, log: Logger) -> PassiveService:
    """A passive participant, ready to dial; its state folder is locked from now on."""
    place = settings.place
    identity = Identity.load(place.identity, place.name)
    place.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = StateLock(place.state)
    try:
        return _passive_of(settings, identity, lock, log)
    except BaseException:
        lock.release()
        raise


def _passive_of(
    settings: PassiveSettings, identity: Identity, lock: StateLock, log: Logger
) -> PassiveService:
    place = settings.place
    shares = ShareFiles(place.state / "shares")
    held = shares.load()
    # Of two rosters, the one of the older share is in force until the active participant says so.
    signed = held[min(held)].signed_roster if held else read_file(place.roster, "the signed roster")
    roster = open_roster(signed, authority_key(identity))
    member = _own_member(place, roster)
    features = open_features(settings.features)
    _refuse_other_features(features, member)
    outbox = _open_outbox(place, held, lock) if roster.terms.aggregation == "secure" else None
    role = PassiveParticipant(
        place.name,
        signed,
        authority_key(identity),
        Secrets(_sealing_key(identity)),
        held=held,
        next_round=outbox.next_round if outbox else 1,
    )
    dialer = RpcDialer(
        place.address,
        tls=_tls(place),
        name=place.name,
        role=place.role,
        server_name=server_name(roster),
    )
    return PassiveService(
        role,
        dialer,
        features,
        shares=shares,
        outbox=outbox,
        log=log,
        backoff=settings.backoff,
        lock=lock,
    )


def _open_outbox(place: Place, held: Collection[int], lock: StateLock) -> Outbox:
    """The outbox is made at the first start, before the first share comes, and never again."""
    path, noted = place.state / OUTBOX, lock.noted()
    if not path.is_file() and (held or noted):
        raise ConfigError(missing_outbox(path))
    return Outbox(path, noted=noted, on_reserve=lock.note)


def missing_outbox(path: Path) -> str:
    """What is wrong if there is no outbox, though something may have been sent."""
    return (
        f"{path} is not there, while {path.parent / 'shares'} or {path.parent / LOCK} is from an "
        "earlier start: which pads were used is not known any more, and a pad must not cover two "
        "messages.  Put no old copy back: remove this participant and add it again with new keys "
        "(vfb pki request in an empty folder)"
    )


async def run_passive(settings: PassiveSettings, *, on_ready: Callable[[], None]) -> None:
    """Serve until SIGTERM or SIGINT."""
    place = settings.place
    log = logger_for(place.name, place.role)
    service = build_passive(settings, log)
    supervisor = Supervisor(log)
    supervisor.watch_loop()
    on_ready()
    serving = supervisor.start("link", service.run)
    await signalled()
    service.stop()
    await serving.finish()


def server_name(roster: Roster) -> str:
    """The name that the active participant's certificate must have."""
    return f"{roster.active.name}.{roster.federation}.vfb"


def tls_files(identity: Identity) -> TlsFiles:
    """What TLS needs of an identity."""
    return TlsFiles(identity.certificate_path, identity.key_path, identity.authority_path)


def authority_key(identity: Identity) -> EllipticCurvePublicKey:
    """The key that signs rosters, from the authority's certificate beside the identity."""
    key = read_certificate(identity.authority_path).public_key()
    if not isinstance(key, EllipticCurvePublicKey):
        raise ConfigError(f"wanted an authority with an ECDSA key, got {identity.authority_path}")
    return key


def _first_roster(place: Place) -> bytes:
    """The roster with which the log of events begins; later ones are in the log."""
    kept = place.state / "first-roster.signed"
    if not kept.is_file():
        place.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        data = read_file(place.roster, "the signed roster")
        write_whole(kept, lambda file: file.write(data), mode=0o600)
    return read_file(kept, "the signed roster")


def _tls(place: Place) -> TlsFiles | None:
    return None if place.insecure else tls_files(Identity.load(place.identity, place.name))


async def signalled() -> None:
    """Return when the process is asked to end."""
    asked = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, asked.set)
    await asked.wait()


async def open_models(settings: ActiveSettings, service: ActiveService) -> dict[str, DurableBandit]:
    """The models of all campaigns, the default first, at the same mask epoch."""
    lead = service.decisions.model
    if not isinstance(lead, DurableBandit):
        raise ConfigError("campaigns need a log, so journal must be true")
    models = {DEFAULT: lead}
    for plan in settings.campaigns:
        if plan.name != DEFAULT:
            make = partial(plan.model.build, service.role.roster)
            journal = _journal(settings, plan.name)
            models[plan.name] = DurableBandit.open(journal, make, epoch=lead.epoch, note=lead.note)
            await catch_up(models[plan.name], lead)
    service.decisions.others = {name: models[name] for name in models if name != DEFAULT}
    return models


def tell_of_loss(log: Logger, campaign: str, model: DurableBandit) -> None:
    """Log that a journal was opened although it had lost records."""
    lost = model.recovery.damage.records
    if lost:
        log.warning("loss_accepted", campaign=campaign, records=lost, position=model.position)


def _open_model(
    settings: ActiveSettings, journal: Journal | None, roster: Roster, signed: bytes
) -> Model:
    def make() -> Bandit:
        return settings.model.build(roster)

    if journal is None:
        return FleetingBandit(make, epoch=FIRST_EPOCH, note=signed)
    return DurableBandit.open(journal, make, epoch=FIRST_EPOCH, note=signed)


def _refuse_unless_new(
    settings: ActiveSettings, model: Model, held: Mapping[int, HeldShare]
) -> None:
    """A share is drawn for new journals only: what was learnt behind another would turn to noise.

    The share is on the disk before the first record is written, so that a journal without any has
    never had one.
    """
    if not isinstance(model, DurableBandit):
        return
    learnt = [DEFAULT] if model.position or model.epoch != FIRST_EPOCH else []
    plans = () if learnt else settings.campaigns
    learnt += [plan.name for plan in plans if _has_records(settings, plan.name)]
    if learnt:
        raise ConfigError(missing_share(settings.place.state, model.epoch, held, learnt[0]))


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
    """The log of a campaign: a file of its own, or one of its name in the database."""
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


def _own_member(place: Place, roster: Roster) -> Member:
    member = roster.find(place.name)
    if member is None or member.role != place.role:
        raise ConfigError(f"wanted {place.role} {place.name!r} in the roster, it is not there")
    return member


def _sealing_key(identity: Identity) -> X25519PrivateKey:
    if identity.sealing_key is None:
        raise ConfigError(f"{identity.subject.name!r} has no sealing key; make a new request")
    return identity.sealing_key


def _features_of(settings: ActiveSettings, member: Member) -> Features | None:
    if settings.features is None:
        return None
    features = open_features(settings.features)
    _refuse_other_features(features, member)
    return features


def _refuse_other_features(features: Features, member: Member) -> None:
    if features.width != member.width:
        raise ConfigError(f"width: the roster has {member.width}, [features] give {features.width}")
    if member.scaling and features.digest != member.scaling:
        raise ConfigError(
            f"scaling: the roster has {member.scaling!r}, [features] have {features.digest!r}"
        )
