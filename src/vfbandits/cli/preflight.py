"""``vfb preflight``: check a configuration before the start."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.output import AsJson, Output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from vfbandits.admin.preflight.report import Report

_COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


def preflight(
    *,
    config: Annotated[Path, typer.Option(help="TOML file of any role.")],
    as_json: AsJson = False,
) -> None:
    """Check names, ports, certificates, clock, roster, widths, features and state before a start.

    Each line is ok, or names a problem and its fix.  Changes nothing.  The exit code is 1 if there
    is a problem; warnings do not count.
    """
    from vfbandits.extras import require

    require("grpc", extra="rpc", to="preflight")
    from vfbandits.admin.preflight import preflight as check_all

    report = check_all(config)
    document = {"config": config, "ready": report.is_ready, "findings": report.findings}
    Output(as_json=as_json).show(document, lambda: for_people(report))
    raise typer.Exit(0 if report.is_ready else 1)


def for_people(report: "Report") -> "list[RenderableType]":
    """One line for each finding, then their number."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    counts = dict.fromkeys(_COLOURS, 0)
    for finding in report.findings:
        counts[finding.state] += 1
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(state, finding.what, Text(finding.says))
    tally = ", ".join(
        f"{count} {state}{'s' * (state != 'ok' and count != 1)}" for state, count in counts.items()
    )
    verdict = "ready" if report.is_ready else "not ready"
    return [table, f"{verdict}: {tally}"]
