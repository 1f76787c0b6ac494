"""An evaluation's files: a table for people, rows for programs."""

import csv
from collections.abc import Sequence
from pathlib import Path

from vfbandits.evaluate.evaluation import Estimate

CSV_HEADER = (
    "estimator",
    "target",
    "value",
    "low",
    "high",
    "standard_error",
    "gain_low",
    "gain_high",
    "logging_value",
    "relative",
    "n_rounds",
    "effective_size",
    "doubts",
)


def as_record(estimate: Estimate) -> dict[str, object]:
    """One row, by the names of ``CSV_HEADER``; ``doubts`` is a list."""
    record: dict[str, object] = {name: getattr(estimate, name) for name in CSV_HEADER}
    record["doubts"] = list(estimate.doubts)
    return record


def write_csv(estimates: Sequence[Estimate], path: Path) -> None:
    """One row per estimator; doubts are joined by semicolons."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, CSV_HEADER)
        writer.writeheader()
        for estimate in estimates:
            writer.writerow({**as_record(estimate), "doubts": "; ".join(estimate.doubts)})


def spell(value: float | None) -> str:
    """Three significant digits, or a dash.

    >>> spell(0.012345), spell(None)
    ('0.0123', '–')
    """
    return "–" if value is None else f"{value:.3g}"


def spell_interval(estimate: Estimate) -> str:
    """Both ends, or a dash."""
    if estimate.low is None or estimate.high is None:
        return "–"
    return f"{spell(estimate.low)} to {spell(estimate.high)}"


def spell_relative(estimate: Estimate) -> str:
    """As a factor, or a dash where the log earned nothing.

    ▲ or ▼ follows where the gain is clear and no doubt is left.
    """
    if estimate.relative is None or estimate.gain_low is None or estimate.gain_high is None:
        return "–"
    mark = " ▲" if estimate.gain_low > 0.0 else " ▼" if estimate.gain_high < 0.0 else "  "
    return f"{estimate.relative:.2f}×{'  ' if estimate.doubts else mark}"
