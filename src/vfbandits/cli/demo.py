"""``vfb demo``: what the library promises, shown in a minute or two."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vfbandits.cli.choices import PlotFormat
from vfbandits.cli.parity import compare
from vfbandits.cli.simulate import run_and_write
from vfbandits.simulate.study import PAPER_POLICIES, Study
from vfbandits.simulate.trial import ParityTrial
from vfbandits.simulate.world import WorldSettings, even_widths


def demo(
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, for a first look.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for what is written.")] = Path("out/demo"),
    processes: Annotated[
        int | None, typer.Option(help="Runs at a time.", show_default="all processors")
    ] = None,
) -> None:
    """Show that masked equals plain, then what more features are worth (the paper's experiment).

    Ends with exit code 1 if a masked decision differs from the plain one.
    """
    if quick:
        world = WorldSettings(even_widths(20, 5))
        study = Study(world=world, horizon=200, n_seeds=2)
        trials = [ParityTrial(policy, world, horizon=200) for policy in PAPER_POLICIES]
        processes = processes or 1  # starting more would take longer than all the runs
    else:
        study = Study()
        trials = [ParityTrial(policy, study.world) for policy in PAPER_POLICIES]
    raise typer.Exit(show_all(trials, study, out, processes=processes))


def show_all(
    trials: Sequence[ParityTrial], study: Study, out: Path, *, processes: int | None
) -> int:
    """Run the trials, then the study; returns the exit code, 1 if a decision differs."""
    codes = [compare(trial) for trial in trials]
    run_and_write(study, out, processes=processes, plot_format=PlotFormat.png)
    return max(codes)
