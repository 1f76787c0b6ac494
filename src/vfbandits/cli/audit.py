"""``vfb audit``: what an active participant could read from a participant's own table."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from vfbandits.cli.failure import stop, terminated_as_interrupted
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import COMPUTING, OUTPUT
from vfbandits.errors import FeatureError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.table import Table

    from vfbandits.audit.report import Report
    from vfbandits.audit.result import Level, Result
    from vfbandits.audit.selftest import Line
    from vfbandits.audit.steps import Step
    from vfbandits.audit.table import AuditTable

T = TypeVar("T")
COLOURS = {"red": "red", "amber": "yellow", "tried": "dim"}
KEYS_PER_LOOKUP = 2000


class LevelName(StrEnum):
    """What the active participant sees."""

    mask = "mask"
    sum = "sum"
    statistics = "statistics"
    arm = "arm"


def audit(  # noqa: PLR0913  (one argument for each flag)
    table: Annotated[
        Path | None,
        typer.Argument(
            help="The participant's table: CSV, CSV.gz or Parquet. With --config, a table with the "
            "key columns of the users to look up.",
            show_default="the file of --config",
        ),
    ] = None,
    *,
    config: Annotated[
        Path | None,
        typer.Option(help="A passive participant's TOML file: audit what its store would send."),
    ] = None,
    level: Annotated[
        list[LevelName] | None,
        typer.Option(
            help="What the active participant sees: masked rows, their sum, released means, or the "
            "arm. Can be repeated.",
            show_default="all",
        ),
    ] = None,
    columns: Annotated[
        str, typer.Option(help="Columns to audit, such as a,b,c.", show_default="all but ids")
    ] = "",
    other_columns: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Level sum: columns of all other passive participants.",
            show_default="as many as the table's",
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option(min=1, help="Maximum number of rows to use.", rich_help_panel=COMPUTING)
    ] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.", rich_help_panel=COMPUTING)] = 0,
    selftest: Annotated[
        bool,
        typer.Option(
            "--selftest", help="Run the attacks on simulated data and print the table of the docs."
        ),
    ] = False,
    out: Annotated[Path, typer.Option(help="Output folder.", rich_help_panel=OUTPUT)] = Path(
        "out/audit"
    ),
    as_json: AsJson = False,
) -> None:
    """Attack a participant's own table as a curious active participant could.

    Reports for each attack what it needs and what it recovered, as one page, audit.html.  Nothing
    leaves this machine.  An interrupted audit writes the results so far.
    """
    from vfbandits.extras import require_extras

    require_extras("experiments", to="vfb audit")
    output = Output(as_json=as_json)
    if selftest:
        _run_selftest(output, seed=seed)
        return
    from vfbandits.audit.result import Level
    from vfbandits.audit.steps import plan
    from vfbandits.simulate.output import prepare_folder

    chosen = tuple(name.strip() for name in columns.split(",") if name.strip())
    block = _read(table, config, chosen, rows=rows, seed=seed)
    prepare_folder(out, plot_format="none")
    levels = [Level(name.value) for name in level or LevelName]
    steps = plan(block, levels=_once(levels), seed=seed, n_others=other_columns)
    results = _run(steps)
    source = str(config if table is None else table)
    report = _report(source, block, steps, results, seed=seed)
    page = _write_page(report, out)
    output.show({**_document(report), "page": page}, lambda: [_as_table(report)])
    output.say(f"wrote {page}")
    if report.not_run:
        stop(f"stopped: {len(results)} of {len(steps)} attacks are in {page}")


def _read(
    table: Path | None, config: Path | None, chosen: tuple[str, ...], *, rows: int, seed: int
) -> "AuditTable":
    if config is not None:
        if chosen:
            raise FeatureError(
                "with --config the columns are those of its [features], got --columns too"
            )
        return _read_store(config, table, rows=rows, seed=seed)
    if table is None:
        raise FeatureError("wanted TABLE, --config or --selftest, got none of them")
    from vfbandits.audit.table import prepare
    from vfbandits.features.whole_table import read_whole_table

    return prepare(read_whole_table(table), chosen=chosen, rows=rows, seed=seed)


def _read_store(config: Path, table: Path | None, *, rows: int, seed: int) -> "AuditTable":
    """Rows as the participant would send them: scaled, and no longer than its ``clip_norm``."""
    import numpy as np

    from vfbandits.audit.table import without_constants
    from vfbandits.features.open import open_features, scaling_of
    from vfbandits.features.table_file import read_table
    from vfbandits.settings.services import load_passive

    place = load_passive(config)
    settings = place.features
    path = table or settings.path
    if path is None:
        raise FeatureError(
            f"a store of kind {settings.kind} is asked by keys: wanted a TABLE with the columns "
            f"{', '.join(settings.key)}, got none"
        )
    keys = read_table(path, key=settings.key, numbers=()).keys
    notes = ["rows are those that the participant would send, scaled as its file says"]
    if place.noise is not None:
        notes.append(
            f"the noise of its file ({place.noise.terms}) is left out: what is recovered here "
            "would be recovered with that noise on it"
        )
    if len(keys) > rows:
        notes.append(f"{rows:,} of {len(keys):,} rows were drawn")
        places = np.sort(np.random.default_rng(seed).choice(len(keys), rows, replace=False))
        keys = [keys[place] for place in places]
    blocks, missing, clipped = [], 0, 0
    with open_features(settings) as features:
        for start in range(0, len(keys), KEYS_PER_LOOKUP):
            found = features.block(keys[start : start + KEYS_PER_LOOKUP])
            blocks.append(found.values)
            missing, clipped = missing + found.missing, clipped + found.clipped
        width = features.width
    if missing:
        notes.append(f"{missing:,} users are not in the store: their rows are zeros")
    if clipped:
        notes.append(f"{clipped:,} rows were shortened to clip_norm")
    values = np.vstack(blocks) if blocks else np.empty((0, width))
    return without_constants(values, scaling_of(settings).scaled_columns, notes=notes)


def _once(levels: "Sequence[Level]") -> "list[Level]":
    return list(dict.fromkeys(levels))


def _run(steps: "Sequence[Step]") -> "list[Result]":
    return _until_interrupted(
        "attacks", [(f"{step.level}: {step.title}", step.run) for step in steps]
    )


def _until_interrupted(what: str, work: "Sequence[tuple[str, Callable[[], T]]]") -> list[T]:
    """Results of the work in its order; Ctrl-C or SIGTERM ends it and keeps the results so far."""
    from vfbandits.simulate.threads import one_thread

    results: list[T] = []
    try:
        with terminated_as_interrupted(), one_thread(), progress(what, total=len(work)) as tell:
            for done, (note, run) in enumerate(work):
                tell(done, note=note)
                results.append(run())
    except KeyboardInterrupt:
        return results
    return results


def _report(
    source: str,
    block: "AuditTable",
    steps: "Sequence[Step]",
    results: "Sequence[Result]",
    *,
    seed: int,
) -> "Report":
    from vfbandits.audit.report import Report, describe_not_run

    return Report(
        source=source,
        rows=len(block.values),
        columns=block.columns,
        notes=block.notes,
        seed=seed,
        results=tuple(results),
        not_run=describe_not_run(steps[len(results) :]),
    )


def _document(report: "Report") -> dict[str, object]:
    from vfbandits.audit.report import as_document

    return as_document(report)


def _write_page(report: "Report", out: Path) -> Path:
    """Write audit.html for its owner only: it names columns and what they reveal."""
    from vfbandits.audit.page import page_text
    from vfbandits.files import write_whole
    from vfbandits.reproduce.machine import versions_line

    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    text = page_text(report, date=date, versions=versions_line())
    return write_whole(out / "audit.html", lambda file: file.write(text.encode()), mode=0o600)


def _as_table(report: "Report") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from vfbandits.audit.page import listing, spell_error
    from vfbandits.audit.report import ORDER

    table = Table()
    for header in ("finding", "level", "attack", "least error", "columns that suffer most"):
        table.add_column(header)
    for result in (result for severity in ORDER for result in report.of(severity)):
        names = [name for name, _ in result.worst_columns(len(result.errors))]
        suffer = "all" if len(names) == len(result.errors) > 1 else listing(names, 3)
        words = (result.level, result.title, spell_error(result.best), suffer or "–")
        mark = Text(result.severity.upper(), style=COLOURS[result.severity])
        table.add_row(mark, *(Text(word) for word in words))
    return table


def _run_selftest(output: Output, *, seed: int) -> None:
    from vfbandits.audit.selftest import NOTES, selftest

    cases = selftest(seed=seed)
    work = [(case.attacker, case.measure) for case in cases]
    lines = _until_interrupted("measurements", work)
    document = {"seed": seed, "lines": lines, "notes": NOTES}
    output.show(document, lambda: [_selftest_table(lines), *NOTES])
    if len(lines) < len(cases):
        stop(f"stopped: {len(lines)} of {len(cases)} lines are measured")


def _selftest_table(lines: "Sequence[Line]") -> "Table":
    from rich.table import Table
    from rich.text import Text

    from vfbandits.audit.result import Level

    table = Table()
    for header in ("the attacker has", *Level):
        table.add_column(header)
    for line in lines:
        table.add_row(line.attacker, *(Text(line.spell(level)) for level in Level))
    return table
