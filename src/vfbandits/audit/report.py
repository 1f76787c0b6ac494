"""What an audit found: results, what was not run, and the same as one JSON object."""

from collections.abc import Sequence
from dataclasses import dataclass

from vfbandits.audit.result import Result, Severity
from vfbandits.audit.steps import Step
from vfbandits.html_page import table

ORDER = (Severity.RED, Severity.AMBER, Severity.TRIED)


@dataclass(frozen=True, slots=True)
class Report:
    """All results, and the steps that were not run because the audit was stopped."""

    source: str
    rows: int
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    seed: int
    results: tuple[Result, ...]
    not_run: tuple[str, ...] = ()

    def of(self, severity: Severity) -> tuple[Result, ...]:
        """Results of one severity, in the order of the audit."""
        return tuple(result for result in self.results if result.severity is severity)

    def least_errors(self) -> dict[str, tuple[float, Result | None]]:
        """For each column the smallest error of any attack, and that attack; worst first.

        Attacks that open any table are not counted: they say nothing about this one.
        """
        found: dict[str, tuple[float, Result | None]] = dict.fromkeys(self.columns, (1.0, None))
        for result in self.results:
            if result.is_universal:
                continue
            for column, error in result.errors.items():
                if error < found[column][0]:
                    found[column] = (error, result)
        return dict(sorted(found.items(), key=lambda item: item[1][0]))

    def _repr_html_(self) -> str:
        rows = [
            (str(severity), str(result.level), result.title, f"{result.best:.2g}")
            for severity in Severity
            for result in self.of(severity)
        ]
        said = f"Audit of {self.source}: {self.rows} rows, {len(self.columns)} columns."
        return table([("severity", "level", "attack", "least error"), *rows], caption=said)


def describe_not_run(steps: Sequence[Step]) -> tuple[str, ...]:
    """Steps as text."""
    return tuple(f"{step.level}: {step.title}" for step in steps)


def as_document(report: Report) -> dict[str, object]:
    """The report as ``--json`` prints it."""
    return {
        "source": report.source,
        "rows": report.rows,
        "columns": report.columns,
        "notes": report.notes,
        "seed": report.seed,
        "findings": [_result(result) for result in report.results],
        "not_run": report.not_run,
    }


def _result(result: Result) -> dict[str, object]:
    curve = result.curve
    return {
        "attack": result.attack,
        "level": str(result.level),
        "severity": str(result.severity),
        "title": result.title,
        "needs": result.needs,
        "least_error": result.best,
        "errors": dict(result.errors),
        "exact": result.exact,
        "facts": result.facts,
        "certificate": result.certificate,
        "advice": result.advice,
        "is_universal": result.is_universal,
        "curve": None
        if curve is None
        else {"x": curve.x, "y": curve.y, "at": curve.at, "lines": dict(curve.lines)},
    }
