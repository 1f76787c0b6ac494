"""A configuration file becomes a passive participant, until a signal ends it."""

from collections.abc import Callable, Collection
from pathlib import Path

from vfbandits.errors import ConfigError
from vfbandits.features.open import open_features, refuse_other_features
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.participant.outbox import OUTBOX, Outbox
from vfbandits.participant.passive import PassiveService
from vfbandits.participant.state_lock import LOCK, StateLock
from vfbandits.pki import Identity
from vfbandits.pki.files import read_file
from vfbandits.pki.member import authority_key, own_member, sealing_key_of, server_name, tls_of
from vfbandits.protocol.passive import PassiveParticipant, Secrets
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.settings.services import ParticipantConfig, PassiveSettings
from vfbandits.telemetry.log import Logger, logger_for
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.transport.event_loop import signalled
from vfbandits.transport.rpc.client import RpcDialer


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
    member = own_member(place, roster)
    features = open_features(settings.features)
    refuse_other_features(features, member)
    outbox = _open_outbox(place, held, lock) if roster.terms.aggregation == "secure" else None
    role = PassiveParticipant(
        place.name,
        signed,
        authority_key(identity),
        Secrets(sealing_key_of(identity)),
        held=held,
        next_round=outbox.next_round if outbox else 1,
    )
    dialer = RpcDialer(
        place.address,
        tls=tls_of(place),
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


def _open_outbox(place: ParticipantConfig, held: Collection[int], lock: StateLock) -> Outbox:
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
