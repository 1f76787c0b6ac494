"""Preflight: the feature store, and whether it gives what the roster says."""

from vfbandits.admin.preflight.report import Report
from vfbandits.features.open import Features, open_features
from vfbandits.protocol.roster import Member, Roster
from vfbandits.settings.features import FeatureSettings


def check_features(
    report: Report, settings: FeatureSettings | None, roster: Roster | None, member: Member | None
) -> None:
    """Open the store, ask it, and compare its width and scaling with the roster."""
    if settings is None:
        report.ok("features", "none here: the own block must come with each request")
        return
    if roster is not None:
        _check_key(report, settings, roster)
    with (
        report.blaming("features", "Correct [features], or mend the store"),
        open_features(settings) as features,
    ):
        features.check()
        facts = features.describe()
        rows = f", {facts['rows']} rows" if "rows" in facts else ""
        report.ok("features", f"{settings.kind} store answers{rows}")
        if member is not None:
            _check_width(report, features, member)
            _check_scaling(report, features, settings, member)


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
            f"clip_norm is {settings.clip_norm:g}, but a masked number above {bound:g} is not "
            "sent.  Choose a clip_norm up to that",
        )


def _check_width(report: Report, features: Features, member: Member) -> None:
    if features.width == member.width:
        report.ok("width", f"{member.width}, as in the roster")
    else:
        report.problem(
            "width",
            f"the roster has {member.width} for {member.name!r}, [features] give "
            f"{features.width}.  Correct 'columns' or 'scaling', or join anew with that width",
        )


def _check_scaling(
    report: Report, features: Features, settings: FeatureSettings, member: Member
) -> None:
    if not member.scaling:
        if settings.scaling is not None:
            report.warn(
                "scaling",
                f"{settings.scaling.name} is not pinned in the roster, so nobody would notice if "
                "it changed.  Join with vfb pki request --scaling next time",
            )
        return
    if features.digest == member.scaling:
        report.ok("scaling", f"digest {member.scaling[:16]}…, as in the roster")
    else:
        report.problem(
            "scaling",
            f"the roster has digest {member.scaling}, [features] have {features.digest}.  Use the "
            "scaling that you joined with, or join anew",
        )
