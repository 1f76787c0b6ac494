"""Measure the featurisation of a Criteo-shaped file: ``python -m benchmarks.criteo``.

The file (out/benchmarks/criteo-<rows>.tsv, 1.2 GB) is generated, featurised in a child process
with one thread, and removed unless ``--keep`` says otherwise.  Speed is rows per second of CPU,
since the bar is per core; wall time stands beside it.  The exit code is 1 if a bar is missed.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar
from benchmarks.criteo_rows import write_rows
from benchmarks.process import ONE_THREAD, ROOT
from benchmarks.report import table

OUT = ROOT / "out" / "benchmarks"
ROWS = 5_000_000
MIN_ROWS_A_SECOND = 150_000.0
MAX_MEMORY_GB = 2.0


def main() -> None:
    """Generate, measure, write, print, and exit by the bars."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.criteo", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the generated file")
    parser.add_argument("--keep", action="store_true", help="leave the file for the next run")
    parser.add_argument("--measure", nargs=2, type=Path, metavar=("FILE", "FOLDER"), help="a child")
    options = parser.parse_args()
    if options.measure is not None:
        json.dump(measure(*options.measure), sys.stdout)
        return
    console = Console()
    OUT.mkdir(parents=True, exist_ok=True)
    source = OUT / f"criteo-{options.rows}.tsv"
    if not source.exists():
        with console.status(f"generating {options.rows:,} rows"):
            write_rows(source, options.rows, np.random.default_rng(0))
    with console.status("featurising"):
        figures = _in_a_child(source)
    if not options.keep:
        source.unlink()
    bars = judge(figures)
    for path in _write(figures, bars):
        console.print(str(path), soft_wrap=True)
    shown = Table("bar", "bound", "measured", "verdict", title="Criteo featurisation")
    for bar in bars:
        shown.add_row(bar.name, f"{bar.sense} {bar.bound:,g}", f"{bar.measured:,.2f}", bar.verdict)
    console.print(shown)
    sys.exit(0 if all(bar.verdict == "pass" for bar in bars) else 1)


def measure(source: Path, folder: Path) -> dict[str, float]:
    """Featurise one file in this process: rows, seconds, and the most memory it had."""
    from vfbandits.datasets.criteo.features import featurise  # noqa: PLC0415  (counts as ours)
    from vfbandits.datasets.criteo.file import CriteoFile  # noqa: PLC0415

    wall, cpu = time.perf_counter(), time.process_time()
    facts = featurise(CriteoFile(source), folder).facts
    return {
        "rows": facts.n_rows_read,
        "rows_kept": facts.n_rows,
        "bad_lines": facts.n_bad_lines,
        "wall_s": time.perf_counter() - wall,
        "cpu_s": time.process_time() - cpu,
        "peak_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "file_bytes": source.stat().st_size,
    }


def judge(figures: dict[str, float]) -> list[Bar]:
    """The bars of the issue."""
    speed = figures["rows"] / figures["cpu_s"]
    memory = figures["peak_bytes"] / 1e9
    return [
        Bar("rows a second and core", "≥", MIN_ROWS_A_SECOND, speed),
        Bar("peak memory, GB", "≤", MAX_MEMORY_GB, memory),
        Bar("lines that could not be read", "≤", 0.0, figures["bad_lines"]),
    ]


def _in_a_child(source: Path) -> dict[str, float]:
    folder = OUT / "criteo-features"
    command = [sys.executable, "-m", "benchmarks.criteo", "--measure", str(source), str(folder)]
    environment = {**os.environ, **ONE_THREAD, "POLARS_MAX_THREADS": "1"}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, text=True
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def _write(figures: dict[str, float], bars: list[Bar]) -> tuple[Path, Path]:
    as_json, as_page = OUT / "criteo.json", OUT / "criteo.md"
    facts = {
        "cores": str(os.cpu_count()),
        "load at the end": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "versions": ", ".join(f"{name} {version(name)}" for name in ("polars", "numpy")),
    }
    verdicts = [{**asdict(bar), "verdict": bar.verdict} for bar in bars]
    everything = {"machine": facts, "figures": figures, "bars": verdicts}
    as_json.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
    lines = [
        "# Criteo featurisation\n",
        *table(("machine", ""), facts.items()),
        "",
        *table(
            ("bar", "bound", "measured", ""),
            [(b.name, f"{b.sense} {b.bound:,g}", f"{b.measured:,.2f}", b.verdict) for b in bars],
        ),
        "",
        *table(("figure", ""), [(name, f"{x:,.1f}") for name, x in figures.items()]),
    ]
    as_page.write_text("\n".join(lines) + "\n")
    return as_json, as_page


if __name__ == "__main__":
    main()
