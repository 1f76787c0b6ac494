"""A study's files: rows, table, plot, and the settings that make them again."""

import csv
from pathlib import Path
from tempfile import TemporaryFile

from vfbandits.errors import SettingError
from vfbandits.simulate.plot import FORMATS, require_matplotlib, save_plot
from vfbandits.simulate.result import CSV_HEADER, Standing, StudyResult
from vfbandits.simulate.study_file import write_study


def prepare_folder(folder: Path, *, plot_format: str) -> None:
    """Whatever would keep ``write_result`` from writing is found out before the long run."""
    if plot_format in FORMATS:
        require_matplotlib()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingError(f"out must be a folder to write to, got {folder}: {error}") from error


def write_result(result: StudyResult, folder: Path, *, plot_format: str) -> list[Path]:
    """Write regret.csv, table.md, study.toml and regret.png or .svg; returns their paths.

    Any other ``plot_format`` means no plot.
    """
    settings, rows, table = folder / "study.toml", folder / "regret.csv", folder / "table.md"
    settings.write_text(write_study(result.study), encoding="utf-8")
    with rows.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_HEADER)
        writer.writerows(result.rows())
    table.write_text(markdown(result), encoding="utf-8")
    paths = [rows, table, settings]
    if plot_format in FORMATS:
        plot = folder / f"regret.{plot_format}"
        save_plot(result, plot)
        paths.insert(0, plot)
    return paths


def markdown(result: StudyResult) -> str:
    """The table, for a README."""
    study = result.study
    lines = [
        f"Cumulative regret after {study.horizon} rounds, {study.n_seeds} seeds; ± is half a 95 % "
        "confidence interval.",
        "",
        "| contestant | final regret | ratio to the first of its kind |",
        "|---|---:|---:|",
        *(f"| {escape(s.contestant)} | {spell(s)} | {spell_ratio(s)} |" for s in result.table()),
    ]
    return "\n".join(lines) + "\n"


def spell(standing: Standing) -> str:
    """Mean and half-width.

    >>> spell(Standing("a", 19.19, 2.467, 1.0)), spell(Standing("a", 19.19, None, 1.0))
    ('19.2 ± 2.5', '19.2')
    """
    if standing.half_width is None:
        return f"{standing.mean:.1f}"
    return f"{standing.mean:.1f} ± {standing.half_width:.1f}"


def spell_ratio(standing: Standing) -> str:
    """The ratio, or a dash where there is none."""
    return "–" if standing.ratio is None else f"{standing.ratio:.2f}×"


def escape(text: str) -> str:
    """``text`` inside a cell of a Markdown table."""
    return text.replace("|", "\\|")
