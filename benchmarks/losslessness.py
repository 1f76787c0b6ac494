"""Time the losslessness figure against plain NumPy: ``python -m benchmarks.losslessness``.

One seed of the figure at the paper's full size (two algorithms, four variants, 5000 rounds), as
``vfb reproduce losslessness`` runs it, beside the same rounds played by the textbook version, which
inverts Lambda and calls multivariate_normal in every round.  All in this process, CPU time, one
BLAS thread.  The other seeds cost the same.  The exit code is 1 if the bar is missed.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict

import numpy as np
from rich.console import Console
from scipy.linalg import block_diag

from benchmarks.bars import Bar
from benchmarks.contestant import Algorithm, Contestant, Matrix, Task
from benchmarks.process import ROOT
from benchmarks.textbook import build
from vfbandits.core.mask import sample_mask
from vfbandits.reproduce.catalogue import choose_figures, experiments_folder, find_figures
from vfbandits.reproduce.folder_module import load_function
from vfbandits.simulate.threads import one_thread
from vfbandits.simulate.world import World, WorldSettings, even_widths

OUT = ROOT / "out" / "benchmarks"
MOST = 0.1
WIDTHS = even_widths(100, 5)
HORIZON = 5_000
PARTIAL = 20
ALGORITHMS: tuple[Algorithm, ...] = ("LinUCB", "LinTS")


def main() -> None:
    """Measure both, write, print, and exit by the bar."""
    argparse.ArgumentParser(prog="python -m benchmarks.losslessness").parse_args()
    console = Console()
    with one_thread():
        with console.status("the figure, one seed"):
            ours = time_ours()
        with console.status("the plain NumPy version, one seed"):
            plain = time_plain()
    bar = Bar(
        "losslessness at full size: fraction of the plain version's time", "≤", MOST, ours / plain
    )
    OUT.mkdir(parents=True, exist_ok=True)
    figures = {"ours_s": ours, "plain_s": plain, "bar": {**asdict(bar), "verdict": bar.verdict}}
    path = OUT / "losslessness.json"
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    console.print(f"ours {ours:.1f} s, plain NumPy {plain:.1f} s of CPU for one of five seeds")
    console.print(f"{bar.name}: {ours / plain:.3f} (bound {MOST:g}): {bar.verdict}")
    console.print(str(path), soft_wrap=True)
    sys.exit(bar.verdict != "pass")


def time_ours() -> float:
    """CPU seconds of the figure's cells with the first seed; compiled loops are warm."""
    (figure,) = choose_figures(find_figures(experiments_folder()), ["losslessness"])
    play = load_function(figure.folder, "run", "run_cell")
    quick = figure.cells({**figure.config(quick=True), "seeds": [0]})
    cells = figure.cells({**figure.config(quick=False), "seeds": [0]})
    for cell in quick:
        play(cell)
    start = time.process_time()
    for cell in cells:
        play(cell)
    return time.process_time() - start


def time_plain() -> float:
    """CPU seconds of the same rounds, played by the textbook version."""
    world = World(WorldSettings(WIDTHS), np.random.SeedSequence(0))
    dense: Matrix = sample_mask(100)
    blockwise: Matrix = block_diag(*(sample_mask(20) for _ in range(5)))
    start = time.process_time()
    for algorithm in ALGORITHMS:
        _play(_contestant(algorithm, 100), world, np.eye(100), is_masked=False)
        _play(_contestant(algorithm, 100), world, dense, is_masked=True)
        _play(_contestant(algorithm, 100), world, blockwise, is_masked=True)
        _play(_contestant(algorithm, PARTIAL), world, np.eye(100)[:PARTIAL], is_masked=False)
    return time.process_time() - start


def _contestant(algorithm: Algorithm, dim: int) -> Contestant[Matrix]:
    return build(Task(algorithm, dim, 10, seed=0, posterior_scale=0.01))


def _play(bandit: Contestant[Matrix], world: World, turn: Matrix, *, is_masked: bool) -> None:
    width = len(turn)
    for given in world.rounds(HORIZON):
        contexts = given.contexts @ turn.T if is_masked else given.contexts[:, :width]
        arm = bandit.decide(contexts)
        bandit.learn(contexts, arm, float(given.rewards[arm]))


if __name__ == "__main__":
    main()
