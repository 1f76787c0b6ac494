"""Configuration files of the services, read once into frozen objects.

Every participant has one TOML file; ``vfb federation init`` writes it with comments.  Relative
paths start at the file's own folder.
"""

from dataclasses import dataclass, field
from pathlib import Path

from vfbandits.errors import ConfigError, SettingError
from vfbandits.protocol.active import Patience
from vfbandits.protocol.roster import ROLES
from vfbandits.settings.features import FeatureSettings
from vfbandits.settings.http import CampaignPlan, HttpSettings, campaigns_from, http_from
from vfbandits.settings.model import ModelSettings, model_from
from vfbandits.settings.table import Table, load_document


@dataclass(frozen=True, slots=True)
class Place:
    """Who runs this, and where its files are; every role has these."""

    name: str
    role: str
    identity: Path
    roster: Path
    state: Path
    address: str
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class ActiveSettings:
    """What ``vfb serve active`` needs.

    ``journal_target`` is where the log of events is, as ``open_journal`` takes it; empty for a file
    in the state folder.  ``journal_key`` is the file of the key that it is encrypted with, if any.
    ``accept_loss`` is who accepts that acknowledged records are lost: a flag, not in the file.
    """

    place: Place
    model: ModelSettings
    patience: Patience = field(default_factory=Patience)
    features: FeatureSettings | None = None
    envelopes: Path | None = None
    journal: bool = True
    journal_target: str = ""
    journal_key: Path | None = None
    snapshot_every: int = 50_000
    http: HttpSettings | None = None
    campaigns: tuple[CampaignPlan, ...] = ()
    accept_loss: str | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits between attempts to reach the active participant: jittered, growing, bounded.

    They grow to ``most_s``, and to ``refused_s`` while the active participant refuses: nothing but
    a person will change that.
    """

    first_s: float = 0.05
    most_s: float = 1.0
    dial_s: float = 2.0
    refused_s: float = 30.0


@dataclass(frozen=True, slots=True)
class PassiveSettings:
    """What ``vfb serve passive`` needs."""

    place: Place
    features: FeatureSettings
    backoff: Backoff = field(default_factory=Backoff)


def load_place(path: Path) -> tuple[Place, Table]:
    """The common part of any configuration file, and the rest of it."""
    table = Table(load_document(path), where=path.name)
    folder = path.parent.resolve()
    for key in ("name", "role", "address"):
        if not table.has(key):
            raise ConfigError(f"{path.name}: wanted a {key}, got none")
    role = table.text("role", "")
    if role not in ROLES:
        raise ConfigError(f"{path.name}: role must be one of {', '.join(ROLES)}, got {role!r}")
    place = Place(
        name=table.text("name", ""),
        role=role,
        identity=folder / table.text("identity", "identity"),
        roster=folder / table.text("roster", "roster.signed"),
        state=folder / table.text("state", "state"),
        address=table.text("address", ""),
        insecure=table.flag("insecure", default=False),
    )
    return place, table


def load_active(path: Path) -> ActiveSettings:
    """The settings of an active participant."""
    place, table = load_place(path)
    _refuse_role(path, place, "active")
    folder = path.parent.resolve()
    model = model_from(table.child("model"))
    http = http_from(table.child("http"), folder) if table.has("http") else None
    envelopes, key = table.text("envelopes", ""), table.text("journal_key", "")
    settings = ActiveSettings(
        place,
        model,
        _patience(table.child("patience")),
        _features(table, path, needed=False),
        folder / envelopes if envelopes else None,
        journal=table.flag("journal", default=True),
        journal_target=table.text("journal_target", ""),
        journal_key=folder / key if key else None,
        snapshot_every=table.whole("snapshot_every", 50_000),
        http=http,
        campaigns=tuple(campaigns_from(table.child("campaigns"), model)),
    )
    table.close()
    if http is not None and not settings.journal:
        raise ConfigError(f"{path.name}: [http] answers from the log, so journal must be true")
    return settings


def load_passive(path: Path) -> PassiveSettings:
    """The settings of a passive participant."""
    place, table = load_place(path)
    _refuse_role(path, place, "passive")
    features = _features(table, path, needed=True)
    if features is None:
        raise ConfigError(f"{path.name}: wanted a table [features], got none")
    settings = PassiveSettings(place, features, _backoff(table.child("reconnect")))
    table.close()
    return settings


def load_client(path: Path) -> Place:
    """The settings of an application or an operator; an active participant's will do as well."""
    place, table = load_place(path)
    if place.role not in ("active", "passive"):
        table.close()
    return place


def _refuse_role(path: Path, place: Place, wanted: str) -> None:
    if place.role != wanted:
        raise ConfigError(
            f"{path.name}: wanted the file of role {wanted!r}, got that of {place.role!r}"
        )


def _patience(table: Table) -> Patience:
    default = Patience()
    patience = Patience(
        deadline_s=_positive(table, "deadline_s", default.deadline_s),
        ping_every_s=_positive(table, "ping_every_s", default.ping_every_s),
        change_s=_positive(table, "change_s", default.change_s),
        failures_to_open=table.whole("failures_to_open", default.failures_to_open),
    )
    table.close()
    return patience


def _backoff(table: Table) -> Backoff:
    default = Backoff()
    backoff = Backoff(
        first_s=_positive(table, "first_s", default.first_s),
        most_s=_positive(table, "most_s", default.most_s),
        dial_s=_positive(table, "dial_s", default.dial_s),
        refused_s=_positive(table, "refused_s", default.refused_s),
    )
    table.close()
    return backoff


def _positive(table: Table, key: str, default: float) -> float:
    value = table.number(key, default)
    if value <= 0.0:
        raise table.wrong(key, "a number above 0", value)
    return value


def _features(table: Table, path: Path, *, needed: bool) -> FeatureSettings | None:
    values = table.take("features", None)
    if values is None and not needed:
        return None
    if not isinstance(values, dict):
        raise SettingError(f"{path.name}: wanted a table [features]")
    return FeatureSettings.from_table(values, folder=path.parent.resolve())
