"""``vfb preflight``: whether everything is in place."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vfbandits.features.extra import require

if TYPE_CHECKING:
    from vfbandits.service.report import Report

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def preflight(
    *,
    config: Annotated[Path, typer.Option(help="Your TOML file, whatever your role is.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check names, ports, certificates, clock, roster, widths, features and state before a start.

    Each line says ok, or what is wrong and what to do.  Changes nothing.  Ends with exit code 1
    if there is a problem; warnings do not count.
    """
    require("grpc", extra="rpc", to="a federation")
    from vfbandits.service.preflight import (  # noqa: PLC0415  (an extra, and slow to import)
        preflight as check_all,
    )

    report = check_all(config)
    if as_json:
        findings = [asdict(finding) for finding in report.findings]
        typer.echo(
            json.dumps({"config": str(config), "ready": report.is_ready, "findings": findings})
        )
    else:
        show(report)
    raise typer.Exit(0 if report.is_ready else 1)


def show(report: "Report") -> None:
    """One line for each finding, then their number."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    counts = dict.fromkeys(_COLOURS, 0)
    for finding in report.findings:
        counts[finding.state] += 1
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(state, finding.what, Text(finding.says))
    console = Console()
    console.print(table)
    tally = ", ".join(
        f"{count} {state}{'s' * (state != 'ok' and count != 1)}" for state, count in counts.items()
    )
    verdict = "ready" if report.is_ready else "not ready"
    console.print(f"{verdict}: {tally}", highlight=False)
