"""Preflight: noise on vectors, its price, and the key that it needs."""

from vfbandits.admin.preflight.report import Report
from vfbandits.participant.noise import (
    FOLDER,
    KEY_FILE,
    read_key,
    read_terms,
    refuse_unless_bounded,
)
from vfbandits.protocol.roster import Roster
from vfbandits.settings.services import PassiveSettings


def check_noise(report: Report, settings: PassiveSettings, roster: Roster | None) -> None:
    """The terms can be calibrated, fit the roster, and the key is the one of earlier starts."""
    folder = settings.state / FOLDER
    with report.blaming("noise"):
        known = read_terms(folder)
        if settings.noise is None:
            if known is not None:
                report.warn(
                    "noise",
                    f"none, but it was added until now ({known.terms[-1].noise.terms}).  Vectors "
                    "sent from now on have no noise; restore [noise] if that is not intended",
                )
            return
        terms = settings.noise.terms
        sigma = terms.sigma
        if roster is not None:
            refuse_unless_bounded(terms, roster.terms.bound)
        if known is not None or (folder / KEY_FILE).exists():
            read_key(folder, known)
        report.ok("noise", f"{terms}, deviation {sigma:.3g}")
        if known is not None and known.terms[-1].noise != settings.noise:
            report.warn(
                "noise",
                f"the terms were {known.terms[-1].noise.terms}.  With others each vector is "
                "released once more, and costs its epsilon once more",
            )
