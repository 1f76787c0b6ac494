"""Preflight: the feature store, and whether it gives what the roster says."""

import numpy as np

from vfbandits.admin.preflight.report import Report
from vfbandits.features.open import (
    Features,
    open_features,
    open_names,
    refuse_without_hashing,
)
from vfbandits.features.scaling import Scaling
from vfbandits.participant.access.discrete import SAMPLE, DiscreteCheck
from vfbandits.protocol.roster import PASSIVE, PSEUDONYMS, Member, Roster
from vfbandits.settings.access import AccessSettings
from vfbandits.settings.address import is_loopback
from vfbandits.settings.features import FeatureSettings
from vfbandits.settings.http import HttpSettings
from vfbandits.settings.services import PassiveSettings


def check_features(
    report: Report,
    settings: FeatureSettings | None,
    roster: Roster | None,
    member: Member | None,
    *,
    of_passive: PassiveSettings | None = None,
) -> None:
    """Open the store, ask it, and compare its width and scaling with the roster.

    For a passive participant, also look for columns that can be read back from masked rows.
    """
    access = AccessSettings() if of_passive is None else of_passive.access
    if settings is None:
        report.ok("features", "none configured: features must come with each request")
        return
    if roster is not None and (settings.is_request or settings.arm_scaling is not None):
        _check_names(report, settings, roster)
    if settings.is_request:
        return
    if roster is not None:
        _check_key(report, settings, roster)
    with (
        report.blaming("features", "Correct [features], or repair the store"),
        open_features(settings, consent=access.consent) as features,
    ):
        features.check()
        facts = features.describe()
        rows = f", {facts['rows']} rows" if "rows" in facts else ""
        report.ok("features", f"{settings.kind} store responds{rows}")
        if member is not None:
            _check_width(report, features, member)
            _check_scaling(report, features, settings, member)
            if roster is not None and member.role == PASSIVE:
                _check_users(report, features, roster)
        if roster is not None and roster.terms.shares is not None:
            _check_lengths(report, features, settings, roster.terms.bound, of_passive)
        if of_passive is not None:
            _check_columns(report, features, of_passive)


def _check_names(report: Report, settings: FeatureSettings, roster: Roster) -> None:
    """Load the scalings by which features of requests are read."""
    with report.blaming("names", "Correct 'scaling' or 'arm_scaling' under [features]"):
        names = open_names(settings, roster)
        scalings = [one.scaling for one in (names.own, names.arms) if one is not None]
        count = sum(len(scaling.columns) for scaling in scalings)
        hashed = sum(scaling.rest for scaling in scalings)
        others = f", and any other, hashed to {hashed} columns" if hashed else ""
        report.ok("names", f"{count} features may come by name with a request{others}")
        if settings.is_request:
            _check_scaling(report, scalings[0], settings, roster.active)


def check_personalizer(
    report: Report,
    http: HttpSettings,
    settings: FeatureSettings | None,
    roster: Roster | None,
) -> None:
    """Whether the paths of Azure Personalizer can be served, if they are asked for."""
    if http.personalizer is None or roster is None:
        return
    with report.blaming("personalizer", "Correct [http.personalizer]; docs/personalizer.md"):
        names = open_names(settings, roster)
        widths = refuse_without_hashing(http.personalizer, names, roster)
        hashed = ", ".join(f"{key} {width}" for key, width in widths.items())
        report.ok("personalizer", f"layout {roster.terms.layout}, hashed to {hashed} columns")


def _check_users(report: Report, features: Features, roster: Roster) -> None:
    """Read all users, which a participant needs to resolve pseudonyms."""
    if roster.terms.users == PSEUDONYMS:
        count = len({*features.users()})
        report.ok("users", f"{count} can be read, to be found by their pseudonyms")


def _check_columns(report: Report, features: Features, settings: PassiveSettings) -> None:
    check = DiscreteCheck.of(features, settings.access)
    problem = check.problem()
    if not problem:
        names = ", ".join(check.look())
        found = f"{names} can be read back, which is accepted" if names else "no flags or counts"
        report.ok("columns", f"{found}; other attacks: vfb audit")
    elif is_loopback(settings.address):
        report.warn("columns", f"on loopback only: {problem}")
    else:
        report.problem("columns", problem)


def _check_lengths(
    report: Report,
    features: Features,
    settings: FeatureSettings,
    bound: float,
    of_passive: PassiveSettings | None,
) -> None:
    """Look for rows that are refused on secret shares, without reporting their lengths."""
    has_noise = of_passive is not None and of_passive.noise is not None
    if has_noise or (settings.clip_norm is not None and settings.clip_norm <= bound):
        report.ok("rows", f"clipped to {bound:g}, the declared bound, or less")
        return
    rows = features.sample(SAMPLE)
    longer = int((np.vecdot(rows, rows) > (bound * (1.0 + 1e-12)) ** 2).sum())
    if not longer:
        report.ok("rows", f"none of {len(rows)} is longer than {bound:g}, the declared bound")
        return
    report.warn(
        "rows",
        f"{longer} of {len(rows)} rows are longer than {bound:g}, the declared bound, and will be "
        f"refused.  Set clip_norm = {bound:g} under [features], or scale the features",
    )


def _check_key(report: Report, settings: FeatureSettings, roster: Roster) -> None:
    layout = roster.terms.layout
    wanted = 2 if layout == "per_arm" else 1
    if len(settings.key) != wanted:
        names = "the user's and the arm's" if wanted == 2 else "the user's"
        report.problem(
            "features",
            f"layout {layout} wants {wanted} key column{'s' * (wanted > 1)}, {names}, got "
            f"{', '.join(settings.key)}.  Correct 'key' under [features]",
        )
    bound = roster.terms.bound
    if settings.clip_norm is not None and settings.clip_norm > bound:
        report.warn(
            "features",
            f"clip_norm is {settings.clip_norm:g}, but a masked value above {bound:g} is not "
            "sent.  Use a clip_norm of at most that",
        )


def _check_width(report: Report, features: Features, member: Member) -> None:
    if features.width == member.width:
        report.ok("width", f"{member.width}, as in the roster")
    else:
        report.problem(
            "width",
            f"the roster has {member.width} for {member.name!r}, [features] give "
            f"{features.width}.  Correct 'columns' or 'scaling', or join again with that width",
        )


def _check_scaling(
    report: Report, features: Features | Scaling, settings: FeatureSettings, member: Member
) -> None:
    if not member.scaling:
        if settings.scaling is not None:
            report.warn(
                "scaling",
                f"{settings.scaling.name} is not pinned in the roster, so a change of it would "
                "not be noticed.  Join with vfb pki request --scaling next time",
            )
        return
    if features.digest == member.scaling:
        report.ok("scaling", f"digest {member.scaling[:16]}…, as in the roster")
    else:
        report.problem(
            "scaling",
            f"the roster has digest {member.scaling}, [features] have {features.digest}.  Use the "
            "scaling that you joined with, or join again",
        )
