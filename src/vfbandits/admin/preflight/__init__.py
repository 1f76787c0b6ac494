"""Checks everything that a member's process needs, and changes nothing."""

from datetime import UTC, datetime
from pathlib import Path

from vfbandits.admin.preflight.features import check_features, check_personalizer
from vfbandits.admin.preflight.http import check_http, check_status
from vfbandits.admin.preflight.identity import check_clock, check_identity
from vfbandits.admin.preflight.network import check_answer, check_port, check_reach
from vfbandits.admin.preflight.noise import check_noise
from vfbandits.admin.preflight.report import Report
from vfbandits.admin.preflight.roster import check_own_entry, check_roster
from vfbandits.admin.preflight.state import (
    check_dealt,
    check_envelopes,
    check_helper_log,
    check_journal,
    check_lock,
    check_outbox,
    check_own_share,
    check_shares,
    check_state,
)
from vfbandits.protocol.roster import ACTIVE, HELPER, PASSIVE, SEALING_ROLES, Roster
from vfbandits.settings.services import (
    ActiveSettings,
    HelperSettings,
    ParticipantConfig,
    PassiveSettings,
    load_active,
    load_client,
    load_helper,
    load_passive,
    load_place,
)

WAIT_S = 3.0


def preflight(config: Path, *, now: datetime | None = None, timeout_s: float = WAIT_S) -> Report:
    """Check everything that the member with this configuration file needs.

    ``timeout_s`` bounds each step of the way to the active participant.
    """
    report = Report()
    now = now or datetime.now(UTC)
    place, settings = _read(report, config)
    if place is None:
        return report
    is_participant = place.role in (ACTIVE, PASSIVE)
    check_identity(report, place, now)
    check_clock(report, place, config, now)
    roster = check_roster(report, place)
    member = None if roster is None else check_own_entry(report, place, roster)
    if isinstance(settings, ActiveSettings | PassiveSettings):
        of_passive = settings if isinstance(settings, PassiveSettings) else None
        check_features(report, settings.features, roster, member, of_passive=of_passive)
    if is_participant:
        check_state(report, place)
        check_shares(report, place)
    if isinstance(settings, ActiveSettings):
        _check_active(report, settings, roster, now)
    elif isinstance(settings, PassiveSettings):
        _check_passive(report, settings, roster, now)
    elif isinstance(settings, HelperSettings):
        _check_helper(report, settings, roster, now)
    if place.role == PASSIVE:
        check_lock(report, place)
    if place.role == ACTIVE:
        check_port(report, place)
    elif check_reach(report, place, roster, timeout_s) and place.role not in SEALING_ROLES:
        check_answer(report, config, timeout_s)
    return report


def _check_active(
    report: Report, settings: ActiveSettings, roster: Roster | None, now: datetime
) -> None:
    if roster is not None:
        check_envelopes(report, settings, roster)
        check_dealt(report, settings, roster)
    check_journal(report, settings)
    check_own_share(report, settings)
    if settings.http is not None:
        check_http(report, settings.http, now)
        check_personalizer(report, settings.http, settings.features, roster)


def _check_passive(
    report: Report, settings: PassiveSettings, roster: Roster | None, now: datetime
) -> None:
    check_noise(report, settings, roster)
    if roster is not None:
        check_dealt(report, settings, roster)
        check_outbox(report, settings, roster)
    if settings.status is not None:
        check_status(report, settings.status, now)


def _check_helper(
    report: Report, settings: HelperSettings, roster: Roster | None, now: datetime
) -> None:
    check_state(report, settings)
    if roster is not None:
        check_dealt(report, settings, roster)
    check_helper_log(report, settings)
    if settings.status is not None:
        check_status(report, settings.status, now)


def _read(
    report: Report, config: Path
) -> tuple[ParticipantConfig | None, ActiveSettings | PassiveSettings | HelperSettings | None]:
    """The settings; what is common to all roles is read even if the rest cannot be."""
    place: ParticipantConfig | None = None
    settings: ActiveSettings | PassiveSettings | HelperSettings | None = None
    with report.blaming(
        "configuration", "Correct it; vfb federation init writes one with comments"
    ):
        place = load_place(config)
        if place.role == ACTIVE:
            settings = load_active(config)
        elif place.role == PASSIVE:
            settings = load_passive(config)
        elif place.role == HELPER:
            settings = load_helper(config)
        else:
            load_client(config)
        report.ok("configuration", f"{place.role} {place.name!r}, {config}")
    return place, settings
