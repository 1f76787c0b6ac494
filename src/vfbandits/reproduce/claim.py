"""A claim of the paper beside what was measured, and whether it holds."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Whether a claim holds."""

    PASS = "pass"  # noqa: S105  (no password)
    FAIL = "fail"
    UNCHECKED = "not checkable here"


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence of the paper and our answer.

    Attributes
    ----------
    says
        The paper's sentence, in our words.
    place
        Its section or figure, or "ours" for what the paper does not show.
    measured
        Our value, with its unit.
    criterion
        What the value must be for the claim to hold, stated before looking at it.
    reason
        Why it cannot be checked here, or a remark on the verdict.
    """

    says: str
    place: str
    measured: str
    criterion: str
    verdict: Verdict
    reason: str = ""

    @classmethod
    def judged(
        cls, says: str, *, place: str, measured: str, criterion: str, holds: bool, reason: str = ""
    ) -> "Claim":
        """A claim that was checked.

        >>> Claim.judged("x", place="Fig. 4", measured="3", criterion="> 2", holds=True).verdict
        <Verdict.PASS: 'pass'>
        """
        verdict = Verdict.PASS if holds else Verdict.FAIL
        return cls(
            says=says,
            place=place,
            measured=measured,
            criterion=criterion,
            verdict=verdict,
            reason=reason,
        )

    @classmethod
    def unchecked(
        cls, says: str, *, place: str, criterion: str, reason: str, measured: str = "–"
    ) -> "Claim":
        """A claim that this run cannot decide, and why."""
        return cls(
            says=says,
            place=place,
            measured=measured,
            criterion=criterion,
            verdict=Verdict.UNCHECKED,
            reason=reason,
        )


@dataclass(frozen=True, slots=True)
class ValueTable:
    """Measured values that a reader wants beside the claims; cells are text, ready to print."""

    title: str
    header: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
