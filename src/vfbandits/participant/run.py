"""A passive participant or a helper, run from its configuration until a signal."""

from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

from vfbandits.core.noise import KeyedNoise, describe_noise
from vfbandits.core.shares.dealer import ParticipantSecrets
from vfbandits.core.shares.handover.passage import NextEpoch
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.core.shares.warm_up import warm_up_shares, warm_up_sharing
from vfbandits.errors import (
    ConfigError,
    EnvelopeError,
    FeatureError,
    IdentityError,
    SettingError,
    SharesError,
)
from vfbandits.features.open import Features, open_features, refuse_other_features
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.journal.shares.secrets import newest_epoch, read_secrets
from vfbandits.journal.shares.store import Dealt, epoch_of
from vfbandits.participant.access.discrete import DiscreteCheck
from vfbandits.participant.access.gate import open_gate
from vfbandits.participant.access.record import FOLDER as ACCESS_FOLDER
from vfbandits.participant.epoch_files import EpochFiles
from vfbandits.participant.helper import HelperService
from vfbandits.participant.noise import FOLDER as NOISE_FOLDER
from vfbandits.participant.noise import open_noise, refuse_unless_bounded
from vfbandits.participant.outbox import OUTBOX, RESERVE, Outbox
from vfbandits.participant.passive import PassiveService
from vfbandits.participant.share_helper import FILE as HELPER_FILE
from vfbandits.participant.share_helper import IN_LOG, DurableHelper, HelpingServer
from vfbandits.participant.state_lock import LOCK, StateLock
from vfbandits.pki import Identity
from vfbandits.pki.files import read_file
from vfbandits.pki.member import authority_key, own_member, sealing_key_of, server_name, tls_of
from vfbandits.protocol.dealt import PartySecrets, next_terms, terms_digest
from vfbandits.protocol.held_share import HeldShare
from vfbandits.protocol.helper import IndependentHelper
from vfbandits.protocol.passive import PassiveParticipant, Secrets
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.settings.address import is_loopback
from vfbandits.settings.noise import NoiseSettings
from vfbandits.settings.services import HelperSettings, ParticipantConfig, PassiveSettings
from vfbandits.settings.status import StatusSettings
from vfbandits.telemetry.log import Logger, logger_for
from vfbandits.telemetry.supervised import Supervisor
from vfbandits.transport.event_loop import signalled
from vfbandits.transport.rpc.client import RpcDialer

# On secret shares a round is a slot, and reserved slots are lost at a restart.
RESERVED_SLOTS = 8


class Front(Protocol):
    """The port with the status of a participant."""

    async def start(self) -> int:
        """Listen; returns the port."""
        ...

    async def stop(self) -> None:
        """Take no more requests, and finish those under way."""
        ...


class Dialling(Protocol):
    """A service that keeps a stream to the active participant."""

    async def run(self) -> None:
        """Serve until ``stop``."""
        ...

    def stop(self) -> None:
        """Finish what is being answered, then end."""
        ...


S = TypeVar("S", bound=Dialling)
MakeFront: TypeAlias = Callable[[StatusSettings, S, Supervisor, Logger], Front]


def build_passive(settings: PassiveSettings, log: Logger) -> PassiveService:
    """A passive participant, ready to dial; its state folder is locked from now on."""
    identity = Identity.load(settings.identity, settings.name)
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = StateLock(settings.state)
    try:
        return _passive_of(settings, identity, lock, log)
    except BaseException:
        lock.release()
        raise


def _passive_of(
    settings: PassiveSettings, identity: Identity, lock: StateLock, log: Logger
) -> PassiveService:
    shares = ShareFiles(settings.state / "shares")
    held = shares.load()
    signed = _signed_roster(settings, held)
    roster = open_roster(signed, authority_key(identity))
    member = own_member(settings, roster)
    noise = None if settings.noise is None else _noise_of(settings.noise, settings, roster, log)
    features = open_features(settings.features, consent=settings.access.consent, noise=noise)
    refuse_other_features(features, member)
    check = _check_columns(settings, features, log)
    is_shared = roster.terms.shares is not None
    outbox = None
    if is_shared or roster.terms.aggregation == "secure":
        reserve = RESERVED_SLOTS if is_shared else RESERVE
        outbox = _open_outbox(settings, held, lock, reserve=reserve)
    sharing: dict[int, ParticipantSecrets] = {}
    helper: HelpingServer | None = None
    if is_shared:
        place = SharingFiles(settings, identity, shares, roster)
        sharing, helper = place.participants(), place.open_helper()
    if roster.terms.shares is not None:
        rules = roster.terms.shares
        log.info("shares_agreed", helper=rules.helper, active_learns=roster.terms.learns)
    role = PassiveParticipant(
        settings.name,
        signed,
        authority_key(identity),
        Secrets(sealing_key_of(identity), sharing=sharing),
        held=held,
        next_round=outbox.next_round if outbox else 1,
        noise=None if noise is None else noise.terms,
    )
    return PassiveService(
        role,
        _dialer(settings, roster),
        features,
        shares=shares,
        outbox=outbox,
        gate=open_gate(settings.access, settings.state / ACCESS_FOLDER, digest=features.digest),
        log=log,
        backoff=settings.backoff,
        lock=lock,
        check=check,
        helper=helper,
        dealt=settings.dealt if is_shared else None,
    )


def build_helper(settings: HelperSettings, log: Logger) -> HelperService:
    """A helper without features, ready to dial; its journal is locked from now on."""
    identity = Identity.load(settings.identity, settings.name)
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    shares = ShareFiles(settings.state / "shares")
    held = shares.load()
    signed = _signed_roster(settings, held)
    key, authority = sealing_key_of(identity), authority_key(identity)
    role = IndependentHelper(settings.name, signed, authority, key, held=held)
    roster = role.roster
    server = SharingFiles(settings, identity, shares, roster).open_helper()
    if server is None:
        raise ConfigError(f"wanted the secrets of a server for {settings.name!r}, got none")
    if roster.terms.shares is not None:
        log.info("shares_agreed", helper=settings.name, active_learns=roster.terms.learns)
    epochs = EpochFiles(settings.name, shares, dealt=settings.dealt, server=server)
    dialer = _dialer(settings, roster)
    return HelperService(role, dialer, server, epochs=epochs, log=log, backoff=settings.backoff)


def _signed_roster(settings: ParticipantConfig, held: Mapping[int, HeldShare]) -> bytes:
    """The roster to start with: of two, the older one, until the active participant changes it."""
    if held:
        return held[min(held)].signed_roster
    return read_file(settings.roster, "the signed roster")


def _dialer(settings: ParticipantConfig, roster: Roster) -> RpcDialer:
    return RpcDialer(
        settings.address,
        tls=tls_of(settings),
        name=settings.name,
        role=settings.role,
        server_name=server_name(roster),
    )


class SharingFiles:
    """The files of a participant or a helper for secret shares: rosters and secrets.

    The roster of an epoch is kept with the share of its mask; ``first`` is the roster of a member
    without a share.
    """

    def __init__(
        self,
        settings: PassiveSettings | HelperSettings,
        identity: Identity,
        shares: ShareFiles,
        first: Roster,
    ) -> None:
        self._settings = settings
        self._key = sealing_key_of(identity)
        self._authority = authority_key(identity)
        self._shares = shares
        self._first = first

    def participants(self) -> dict[int, ParticipantSecrets]:
        """The secrets that cover its rows, for each epoch that it has a share of or may join."""
        epochs = self._epochs or (self._newest,)
        return {epoch: self._participant(epoch) for epoch in epochs}

    def open_helper(self) -> DurableHelper | None:
        """Server B, if this is the helper."""
        settings = self._settings
        path = settings.state / HELPER_FILE
        epoch = epoch_of(path) or min(self._epochs, default=self._newest)
        secrets = self._secrets(epoch)
        if secrets.server is None:
            warm_up_sharing()
            return None
        roster = self._roster(epoch)
        warm_up_shares(roster.share_terms)
        dealt = Dealt(epoch, secrets.deal, terms_digest(roster))
        return DurableHelper(
            path, roster.share_terms, secrets.server, dealt=dealt, successor=self._successor
        )

    def _successor(self, epoch: int, terms: ShareTerms) -> tuple[NextEpoch, Dealt]:
        """What server B needs for a hand-over from the state of the epoch before."""
        try:
            before, after = self._roster(epoch - 1), self._roster(epoch)
            secrets = self._secrets(epoch)
            if secrets.server is None:
                raise ConfigError(f"wanted the secrets of server B in epoch {epoch}, got none")
            plan = NextEpoch(*next_terms(terms, before, after), secrets.server)
        except (ConfigError, EnvelopeError, IdentityError, SettingError) as error:
            raise SharesError(f"server B cannot hand over to epoch {epoch}: {IN_LOG}") from error
        return plan, Dealt(epoch, secrets.deal, terms_digest(after))

    @property
    def _epochs(self) -> tuple[int, ...]:
        return self._shares.epochs()

    @property
    def _newest(self) -> int:
        return newest_epoch(self._settings.dealt, self._settings.name)

    def _participant(self, epoch: int) -> ParticipantSecrets:
        secrets = self._secrets(epoch).participant
        if secrets is None:
            raise ConfigError(
                f"{self._settings.dealt} must have the secrets of a participant, got none"
            )
        return secrets

    def _secrets(self, epoch: int) -> PartySecrets:
        settings, roster = self._settings, self._roster(epoch)
        return read_secrets(settings.dealt, settings.name, roster, epoch=epoch, key=self._key)

    def _roster(self, epoch: int) -> Roster:
        if not self._epochs:
            return self._first
        held = self._shares.load().get(epoch)
        if held is None:
            raise ConfigError(
                f"wanted the share and the roster of epoch {epoch} in "
                f"{self._settings.state / 'shares'}, got those of {list(self._epochs)}"
            )
        return open_roster(held.signed_roster, self._authority)


def _noise_of(
    settings: NoiseSettings, place: ParticipantConfig, roster: Roster, log: Logger
) -> KeyedNoise:
    refuse_unless_bounded(settings.terms, roster.terms.bound)
    noise = open_noise(settings, place.state / NOISE_FOLDER)
    log.info("noise_added", **describe_noise(noise.terms), sigma=noise.terms.sigma)
    return noise


def _check_columns(
    settings: PassiveSettings, features: Features, log: Logger
) -> DiscreteCheck | None:
    """Refuse flags and counts; returns the check if the store does not answer now."""
    check = DiscreteCheck.of(features, settings.access)
    is_at_home = is_loopback(settings.address)
    try:
        problem = check.problem()
        if problem and not is_at_home:
            raise ConfigError(problem)
        if check.look():
            by = "loopback" if problem else "access.accept"
            log.warning("discrete_accepted", columns=", ".join(check.look()), by=by)
    except FeatureError as error:
        log.warning("discrete_unchecked", reason=str(error))
        return None if is_at_home else check
    return None


def _open_outbox(
    place: ParticipantConfig, held: Collection[int], lock: StateLock, *, reserve: int
) -> Outbox:
    """Open the outbox, which is created at the first start only, before the first share comes."""
    path, noted = place.state / OUTBOX, lock.noted()
    if not path.is_file() and (held or noted):
        raise ConfigError(missing_outbox(path))
    return Outbox(path, noted=noted, on_reserve=lock.ack, reserve=reserve)


def missing_outbox(path: Path) -> str:
    """The error text if the outbox is missing, though messages may have been sent."""
    return (
        f"{path} is not there, while {path.parent / 'shares'} or {path.parent / LOCK} is from an "
        "earlier start: the used pads are no longer known, and a pad must not cover two "
        "messages.  Do not restore an old copy: remove this participant and add it again with new "
        "keys (vfb pki request in an empty folder)"
    )


async def run_passive(
    settings: PassiveSettings,
    *,
    on_ready: Callable[[int | None], None],
    make_front: MakeFront[PassiveService] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    With [status] ``make_front`` makes what listens there; ``on_ready`` is called with its port.
    """
    log = logger_for(settings.name, settings.role)
    service = build_passive(settings, log)
    beside = {"access record": service.sync_record, "user index": service.index_users}
    await _serve(
        service,
        log,
        status=settings.status,
        on_ready=on_ready,
        make_front=make_front,
        beside=beside,
    )


async def run_helper(
    settings: HelperSettings,
    *,
    on_ready: Callable[[int | None], None],
    make_front: MakeFront[HelperService] | None = None,
) -> None:
    """As ``run_passive``, for a helper without features."""
    log = logger_for(settings.name, settings.role)
    service = build_helper(settings, log)
    await _serve(
        service, log, status=settings.status, on_ready=on_ready, make_front=make_front, beside={}
    )


async def _serve(
    service: S,
    log: Logger,
    *,
    status: StatusSettings | None,
    on_ready: Callable[[int | None], None],
    make_front: MakeFront[S] | None,
    beside: Mapping[str, Callable[[], Coroutine[object, object, None]]],
) -> None:
    supervisor = Supervisor(log)
    supervisor.watch_loop()
    front = None
    if status is not None and make_front is not None:
        front = make_front(status, service, supervisor, log)
    on_ready(await front.start() if front is not None else None)
    serving = supervisor.start("link", service.run)
    others = [supervisor.start(name, work) for name, work in beside.items()]
    await signalled()
    if front is not None:
        await front.stop()
    for other in others:
        await other.stop()
    service.stop()
    await serving.finish()
