"""Measure what a round costs, and hold it against the bars: ``python -m benchmarks.speed``.

Ratios are made within one run, from medians of repetitions in turns, so that the machine cancels.
The exit code is 1 if a bar is missed or if our own code breaks, and 0 otherwise.
"""

import argparse
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks.machine import describe_machine
from benchmarks.peers.environment import make_environment
from benchmarks.plan import FULL, QUICK, SECTIONS, Plan, Stage, stages
from benchmarks.process import ROOT
from benchmarks.report import Report
from benchmarks.stable import open_stable

OUT = ROOT / "out" / "benchmarks"
COLOURS = {"pass": "green", "FAIL": "bold red", "not measured": "yellow"}


def main() -> None:
    """Measure, write, print, and exit by the bars."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small grid, few turns, no peers")
    parser.add_argument(
        "--only",
        action="append",
        choices=SECTIONS,
        metavar="NAME",
        help=f"one section, may be repeated: {', '.join(SECTIONS)}",
    )
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    report = measure(plan, list(stages(plan, options.only or SECTIONS)))
    paths = report.write(OUT)
    console = Console()
    console.print(_bars(report))
    for name, reason in report.failures.items():
        console.print(f"{name} broke: {reason}", style="bold red", markup=False)
    for path in paths:
        console.print(str(path), soft_wrap=True)
    sys.exit(0 if report.is_met else 1)


def measure(plan: Plan, planned: list[tuple[str, Stage]]) -> Report:
    """Go through the stages with a progress line on standard error."""
    columns = (SpinnerColumn(), "{task.description}", BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        line = progress.add_task("starting", total=len(planned))
        peers = None
        if plan.has_peers and any(name.startswith("Lin") for name, _ in planned):
            peers = make_environment(lambda text: progress.update(line, description=text))
        with open_stable(peers) as stable:
            report = Report(describe_machine(stable))
            for name, stage in planned:
                progress.update(line, description=name)
                stage(stable, report)
                progress.advance(line)
    return report


def _bars(report: Report) -> Table:
    shown = Table("bar", "bound", "measured", "verdict", "", title="Bars")
    for bar in report.bars:
        measured = "" if bar.measured is None else f"{bar.measured:.2f}"
        verdict = f"[{COLOURS[bar.verdict]}]{bar.verdict}[/]"
        shown.add_row(bar.name, f"{bar.sense} {bar.bound:g}", measured, verdict, bar.detail)
    return shown


if __name__ == "__main__":
    main()
