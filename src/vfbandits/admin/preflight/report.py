"""What a check found: one line each, and what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vfbandits.errors import VFBanditsError

OK, WARNING, PROBLEM = "ok", "warning", "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; unless it is ok, ``says`` ends with what to do."""

    what: str
    state: str
    says: str


class Report:
    """Findings in the order in which they were made.

    >>> report = Report()
    >>> report.ok("roster", "number 3")
    >>> report.is_ready
    True
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []

    @property
    def problems(self) -> list[Finding]:
        """Findings that must be fixed."""
        return [finding for finding in self.findings if finding.state == PROBLEM]

    @property
    def is_ready(self) -> bool:
        """Whether there is no problem; warnings do not count."""
        return not self.problems

    def ok(self, what: str, says: str) -> None:
        """Add a check that passed."""
        self.findings.append(Finding(what, OK, says))

    def warn(self, what: str, says: str) -> None:
        """Add a warning: it works now, and needs attention."""
        self.findings.append(Finding(what, WARNING, says))

    def problem(self, what: str, says: str) -> None:
        """Add a problem that must be fixed."""
        self.findings.append(Finding(what, PROBLEM, says))

    @contextmanager
    def blaming(self, what: str, advice: str = "") -> Iterator[None]:
        """Turn an error of the library into a problem, followed by the advice."""
        try:
            yield
        except VFBanditsError as error:
            said = str(error).rstrip(".")
            self.problem(what, f"{said}.  {advice}" if advice else said)
