"""A study's files: rows, table, plot, and the settings that make them again."""

import csv
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile

from vfbandits.errors import SettingError
from vfbandits.extras import require
from vfbandits.html_page import png_address, table
from vfbandits.simulate.plot import FORMATS, save_plot
from vfbandits.simulate.price import markdown as price_markdown
from vfbandits.simulate.price import prices, save_price_plot
from vfbandits.simulate.result import CSV_HEADER, Standing, StudyResult
from vfbandits.simulate.study_file import write_study

HEADINGS = ("contestant", "final regret", "ratio to the first of its kind", "mean reward")


def prepare_folder(folder: Path, *, plot_format: str) -> None:
    """Fail before the long run if ``write_result`` could not write."""
    if plot_format in FORMATS:
        require("matplotlib", extra="experiments", to="plotting")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise SettingError(f"out must be a folder to write to, got {folder}: {error}") from error


def write_result(result: StudyResult, folder: Path, *, plot_format: str) -> list[Path]:
    """Write regret.csv, table.md, study.toml and regret.png or .svg; returns their paths.

    If contestants have noise on their vectors, so is noise.png or .svg.  Any other ``plot_format``
    means no plot.
    """
    settings, rows, table = folder / "study.toml", folder / "regret.csv", folder / "table.md"
    settings.write_text(write_study(result.study), encoding="utf-8")
    with rows.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(CSV_HEADER)
        writer.writerows(result.rows())
    found = prices(result)
    more = price_markdown(found) if found else ""
    table.write_text(markdown(result) + more, encoding="utf-8")
    paths = [rows, table, settings]
    if plot_format in FORMATS:
        plot = folder / f"regret.{plot_format}"
        save_plot(result, plot)
        paths.insert(0, plot)
        if found:
            price_plot = folder / f"noise.{plot_format}"
            save_price_plot(result, price_plot)
            paths.insert(1, price_plot)
    return paths


def markdown(result: StudyResult) -> str:
    """The table, for a README."""
    heading, *rows = cells(result)
    lines = [caption(result), "", _row(heading), "|---" + "|---:" * (len(heading) - 1) + "|"]
    return "\n".join([*lines, *(_row([escape(cell) for cell in row]) for row in rows)]) + "\n"


def html(result: StudyResult) -> str:
    """The table for a notebook, and below it the plot where matplotlib is installed."""
    shown = table(cells(result), caption=caption(result))
    if find_spec("matplotlib") is None:
        return shown
    image = BytesIO()
    result.plot().savefig(image, dpi=110)
    return f'{shown}<img alt="regret curves" src="{png_address(image.getvalue())}">'


def caption(result: StudyResult) -> str:
    """What the table shows."""
    study = result.study
    return (
        f"Cumulative regret after {study.horizon} rounds, {study.n_seeds} seeds; ± is half a 95 % "
        "confidence interval."
    )


def cells(result: StudyResult) -> list[list[str]]:
    """The table as text, headings first; rewards only where there are any."""
    standings = result.table()
    rows = [
        [s.contestant, spell(s), spell_ratio(s), "" if s.reward is None else f"{s.reward:.3f}"]
        for s in standings
    ]
    n_columns = 3 if all(s.reward is None for s in standings) else 4
    return [list(row[:n_columns]) for row in (HEADINGS, *rows)]


def _row(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


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
