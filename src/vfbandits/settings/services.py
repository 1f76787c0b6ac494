"""Configuration files of the services, read once into frozen objects.

Every participant has one TOML file; ``vfb federation init`` writes it with comments.  Relative
paths start at the file's own folder.
"""

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from vfbandits.campaign.settings import DEFAULT
from vfbandits.errors import ConfigError
from vfbandits.protocol.active import Patience
from vfbandits.protocol.roster import SEALING_ROLES, is_name
from vfbandits.settings.access import AccessSettings
from vfbandits.settings.decode import decode, keys_of, load_document
from vfbandits.settings.features import FeatureSettings
from vfbandits.settings.http import CampaignPlan, CampaignTable, HttpSettings
from vfbandits.settings.model import ModelSettings
from vfbandits.settings.noise import NoiseSettings
from vfbandits.settings.status import StatusSettings
from vfbandits.settings.values import Count, Positive, Secret, Settings, Text

S = TypeVar("S", bound=Settings)


class ParticipantConfig(Settings, frozen=True, kw_only=True):
    """The member that this process is, and its files; every role has these keys.

    Attributes
    ----------
    name
        Name of this member, as in the roster.
    role
        Role of this member, as in the roster.
    address
        ``host:port`` that the active participant listens on, or that the others connect to.
    identity
        Folder of the key and the certificates.
    roster
        File with the members of the federation, signed by its organiser.
    state
        Folder of the mask shares, and of all that must survive a restart.
    insecure
        No TLS; only on loopback, for tests.
    """

    name: Text
    role: Literal["active", "passive", "helper", "application", "operator", "generator"]
    address: Text
    identity: Path = msgspec.field(default_factory=lambda: Path("identity"))
    roster: Path = msgspec.field(default_factory=lambda: Path("roster.signed"))
    state: Path = msgspec.field(default_factory=lambda: Path("state"))
    insecure: bool = False


class ActiveConfig(ParticipantConfig, frozen=True, kw_only=True):
    """The file of the active participant.

    Attributes
    ----------
    model
        What is learnt, and how.
    patience
        Timeouts of calls to passive participants, and of mask changes.
    features
        Feature store; without it features come with each request.
    envelopes
        Folder of the envelopes that ``vfb masks deal`` wrote.
    dealt
        Folder of the secrets and windows that ``vfb masks deal`` wrote (protection shares).
    journal
        Whether decisions and rewards survive a restart.
    journal_target
        A PostgreSQL url, or env:NAME of an environment variable that has it; without it the
        journal is a file in the state folder.
    journal_key
        File of the key that the journal is encrypted with.
    snapshot_every
        Records from one snapshot of the model to the next.
    http
        The HTTP interface.
    campaigns
        By name; "default" is used by requests that name none.
    """

    role: Literal["active"]
    model: ModelSettings = ModelSettings()
    patience: Patience = msgspec.field(default_factory=Patience)
    features: FeatureSettings | None = None
    envelopes: Path | None = None
    dealt: Path = msgspec.field(default_factory=lambda: Path("dealt"))
    journal: bool = True
    journal_target: Secret = msgspec.field(default_factory=Secret)
    journal_key: Path | None = None
    snapshot_every: Count = 50_000
    http: HttpSettings | None = None
    campaign_tables: dict[str, CampaignTable] = msgspec.field(
        default_factory=dict, name="campaigns"
    )

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if self.http is not None and not self.journal:
            raise ConfigError("[http] answers from the journal, so journal must be true, got false")
        self._refuse_unknown_campaign()
        for name, table in self.campaign_tables.items():
            if table.retain_days is not None and not self.journal:
                raise ConfigError(
                    f"campaigns.{name}.retain_days is about the journal, so journal must be true, "
                    "got false"
                )
        if DEFAULT in self.campaign_tables and self.campaign_tables[DEFAULT].model is not None:
            raise ConfigError(
                "campaigns.default.model must be [model] itself, got [campaigns.default.model]"
            )
        for name in self.campaign_tables:  # they name files, journals and paths of HTTP
            if not is_name(name):
                raise ConfigError(
                    "campaigns must have names of letters, digits, '-', '_' or '.', "
                    f"got {name[:40]!r}"
                )

    def _refuse_unknown_campaign(self) -> None:
        facade = None if self.http is None else self.http.personalizer
        known = {DEFAULT: None, **self.campaign_tables}
        if facade is not None and facade.campaign not in known:
            raise ConfigError(
                f"http.personalizer.campaign must be one of {', '.join(known)}, "
                f"got {facade.campaign[:40]!r}"
            )

    @property
    def campaigns(self) -> tuple[CampaignPlan, ...]:
        """The default campaign, which has the model of [model], and the others."""
        tables = {DEFAULT: CampaignTable(), **self.campaign_tables}
        return tuple(
            table.plan(name, self.model if name == DEFAULT else ModelSettings())
            for name, table in tables.items()
        )


class ActiveSettings(ActiveConfig, frozen=True, kw_only=True):
    """Settings of ``vfb serve active``: its file, and those that only a flag can give.

    Attributes
    ----------
    accept_loss
        Who accepts that acknowledged records are lost; None for nobody.
    started_by
        Who starts the process, for the records of changes that its file makes; empty if not known.
    """

    accept_loss: str | None = None
    started_by: str = ""


class Backoff(Settings, frozen=True, kw_only=True):
    """Waits between attempts to reach the active participant: jittered, growing, bounded.

    Attributes
    ----------
    first_s
        First wait; each is about twice as long as the one before, with jitter.
    most_s
        The longest wait.
    dial_s
        Timeout of a connection attempt.
    refused_s
        The longest wait while the active participant refuses this member, which only an operator
        can change.
    """

    first_s: Positive = 0.05
    most_s: Positive = 1.0
    dial_s: Positive = 2.0
    refused_s: Positive = 30.0


class PassiveSettings(ParticipantConfig, frozen=True, kw_only=True):
    """The file of a passive participant.

    Attributes
    ----------
    features
        Where its features are.
    access
        Limits on what it answers.
    status
        A port for probes and Prometheus; without it none is opened.
    noise
        Noise on each vector before it is masked; without it there is none.
    dealt
        Folder of the secrets that ``vfb masks deal`` wrote (protection shares).
    reconnect
        Back-off between connection attempts.
    """

    role: Literal["passive"]
    features: FeatureSettings
    dealt: Path = msgspec.field(default_factory=lambda: Path("dealt"))
    access: AccessSettings = AccessSettings()
    status: StatusSettings | None = None
    noise: NoiseSettings | None = None
    backoff: Backoff = msgspec.field(default=Backoff(), name="reconnect")

    def __post_init__(self) -> None:
        """Refuse settings that contradict each other."""
        if self.features.is_request or self.features.arm_scaling is not None:
            came = 'kind = "request"' if self.features.is_request else "arm_scaling"
            raise ConfigError(
                f"features: {came} is for the active participant, which applications call; a "
                "passive participant needs a store"
            )
        if self.noise is not None and self.features.clip_norm is not None:
            raise ConfigError(
                "[noise] clips rows at its own clip, so clip_norm under [features] must be left "
                "out, got both"
            )


class HelperSettings(ParticipantConfig, frozen=True, kw_only=True):
    """The file of a helper without features (protection shares).

    Attributes
    ----------
    dealt
        Folder of the secrets that ``vfb masks deal`` wrote.
    status
        A port for probes and Prometheus; without it none is opened.
    reconnect
        Back-off between connection attempts.
    """

    role: Literal["helper"]
    dealt: Path = msgspec.field(default_factory=lambda: Path("dealt"))
    status: StatusSettings | None = None
    backoff: Backoff = msgspec.field(default=Backoff(), name="reconnect")


def load_place(path: Path) -> ParticipantConfig:
    """The keys that every role has; others are not checked."""
    document = load_document(path, ConfigError)
    common = {key: value for key, value in document.items() if key in keys_of(ParticipantConfig)}
    return decode(common, ParticipantConfig, where=path.name, folder=path.parent.resolve())


def load_active(path: Path) -> ActiveSettings:
    """The settings of an active participant."""
    return ActiveSettings(**msgspec.structs.asdict(_load(path, ActiveConfig)))


def load_passive(path: Path) -> PassiveSettings:
    """The settings of a passive participant."""
    return _load(path, PassiveSettings)


def load_helper(path: Path) -> HelperSettings:
    """The settings of a helper without features."""
    return _load(path, HelperSettings)


def load_client(path: Path) -> ParticipantConfig:
    """The settings of an application, operator or generator, or those that participants share."""
    place = load_place(path)
    return place if place.role in SEALING_ROLES else _load(path, ParticipantConfig)


def _load(path: Path, kind: type[S]) -> S:
    document = load_document(path, ConfigError)
    return decode(document, kind, where=path.name, folder=path.parent.resolve())
