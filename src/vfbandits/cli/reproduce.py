"""``vfb reproduce``: the paper's figures, each with the paper's claims."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.criteo_rounds import featurised
from vfbandits.cli.engine_flags import (
    EngineFlag,
    EngineName,
    Processes,
    RayAddress,
    engine_from,
)
from vfbandits.cli.failure import stop
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import OUTPUT
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.reproduce.figure import Figure
    from vfbandits.reproduce.rows import Settings
    from vfbandits.reproduce.runner import Headway, Outcome

CRITEO = "fig6c_criteo"
OWNERS = "owners"
COLOURS = {"pass": "green", "fail": "red", "not checkable here": "yellow"}


def reproduce(  # noqa: PLR0913  (one argument for each flag)
    what: Annotated[
        list[str],
        typer.Argument(
            help="all, or names of figures, or list to print the names.", show_default=False
        ),
    ],
    *,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small sizes; takes about a minute.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Rerun finished cells too.")] = False,
    engine: EngineFlag = EngineName.local,
    processes: Processes = None,
    ray_address: RayAddress = None,
    criteo: Annotated[
        Path | None,
        typer.Option(help="criteo: your copy of the training file (TSV, gz or Parquet)."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="owners: folder with the data sets.", show_default=False),
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder of figure definitions.", show_default="the paper's")
    ] = None,
    out: Annotated[Path, typer.Option(help="Output folder.", rich_help_panel=OUTPUT)] = Path("out"),
    date: Annotated[
        str | None,
        typer.Option(help="Date to print on the page.", show_default="now", rich_help_panel=OUTPUT),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Reproduce the paper's figures, and report for each claim whether it holds.

    Writes rows (CSV), images, and index.html, a page with all results.  An interrupted run resumes:
    finished cells are not run again.
    """
    from vfbandits.extras import require_extras
    from vfbandits.reproduce.catalogue import choose_figures, experiments_folder, find_figures
    from vfbandits.reproduce.machine import machine_line, versions_line
    from vfbandits.reproduce.page import write_page
    from vfbandits.reproduce.runner import reproduce as run_figures
    from vfbandits.simulate.output import prepare_folder

    output = Output(as_json=as_json)
    found = find_figures(experiments_folder() if figures is None else figures)
    if what == ["list"]:
        output.show({"figures": list_object(found)}, lambda: [as_list(found)])
        return
    chosen = choose_figures(found, what)
    more = sorted({extra for figure in chosen for extra in figure.extras})
    require_extras("experiments", *more, to=" ".join(["vfb reproduce", *what]))
    runner = engine_from(engine, processes, ray_address)
    prepare_folder(out, plot_format="png")
    overrules: dict[str, Settings] = {}
    if criteo is not None:
        overrules[CRITEO] = {"rounds": str(featurised(criteo, out / "criteo-rounds"))}
    if data is not None:
        overrules[OWNERS] = {"data": str(data.absolute())}
    last: list[Headway] = []
    try:
        with _progress(last) as tell:
            outcomes = run_figures(
                chosen,
                out,
                engine=runner,
                quick=quick,
                fresh=fresh,
                overrules=overrules,
                on_cell=tell,
            )
    except KeyboardInterrupt:
        kept = f"{last[-1].cells} of {last[-1].of_cells}" if last else "no"
        stop(f"stopped: {kept} cells are kept in {out}, the same command resumes from there")
    write_page(
        outcomes,
        out / "index.html",
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC") if date is None else date,
        machine=machine_line(),
        versions=versions_line(),
        quick=quick,
    )
    page = out / "index.html"
    output.show({"claims": claim_objects(outcomes), "page": page}, lambda: [as_table(outcomes)])
    output.say(f"wrote {page}")


def list_object(figures: "Sequence[Figure]") -> list[dict[str, str]]:
    """Names and titles, as ``--json`` prints them."""
    return [
        {"figure": one.short_name, "folder": one.name, "paper": one.paper, "title": one.title}
        for one in figures
    ]


def as_list(figures: "Sequence[Figure]") -> "Table":
    """Names and titles, for the terminal."""
    from rich.table import Table

    table = Table()
    for header in ("figure", "folder", "in the paper", "what it shows"):
        table.add_column(header)
    for figure in figures:
        table.add_row(figure.short_name, figure.name, figure.paper, figure.title)
    return table


def claim_objects(outcomes: "Sequence[Outcome]") -> list[dict[str, object]]:
    """Every claim with its verdict, as ``--json`` prints them."""
    return [
        {"figure": outcome.figure.short_name, **asdict(claim)}
        for outcome in outcomes
        for claim in outcome.claims
    ]


def as_table(outcomes: "Sequence[Outcome]") -> "Table":
    """Every claim with its verdict, for the terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(show_lines=True)
    for header in ("verdict", "figure", "the paper says", "measured"):
        table.add_column(header)
    for outcome in outcomes:
        for claim in outcome.claims:
            verdict = Text(claim.verdict, style=COLOURS[claim.verdict])
            words = (outcome.figure.short_name, claim.says, claim.measured)
            table.add_row(verdict, *(Text(word) for word in words))
    return table


@contextmanager
def _progress(seen: "list[Headway]") -> "Iterator[Callable[[Headway], None]]":
    """Progress over all cells by their weights, so that the remaining time is a fair estimate."""
    with progress("") as tell:

        def tell_headway(headway: "Headway") -> None:
            seen[1:] = [headway]
            first = seen[0] if len(seen) > 1 else headway
            played = f", {headway.rounds:,} rounds" if headway.rounds else ""
            # What was finished before this run took no time in it.
            tell(
                headway.work - first.work,
                total=headway.of_work - first.work,
                note=f"{headway.cells} of {headway.of_cells} cells{played}",
            )

        yield tell_headway
