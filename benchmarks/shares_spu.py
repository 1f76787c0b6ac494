"""Deciding on secret shares beside SPU, a general engine: ``python -m benchmarks.shares_spu``.

SPU selects an arm under its three-party protocol ABY3, in an environment of its own
(``.venv-spu``), from shares that are there already, and learns nothing.  We decide with the arm
released, and learn the reward.  Counted is processor time of all servers.  Blocks alternate, and
ratios are medians of those of each block.

It is not like for like.  SPU also computes square roots and the largest score without opening
anything, and needs no dealer: ours works ahead of time, and a second ratio counts it in.  The bar
is on LinUCB; LinTS needs no square roots and is half as dear under SPU.  The exit code is 1 if
the bar is missed.
"""

import argparse
import sys
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar
from benchmarks.http_line import LineProcess
from benchmarks.peers.environment import SPU, make_environment
from benchmarks.shares import BLOCK, CASES, Case, Federation, sample_contexts

DIM, N_ARMS, N_PARTICIPANTS = 100, 10, 5
BLOCKS, SELECTIONS = 12, 5
MIN_RATIO = 100.0
BARRED = "LinUCB, arm"
NAMES = {BARRED: "LinUCB", "LinTS, arm": "LinTS"}


def main() -> None:
    """Measure, print, and exit by the bars."""
    argparse.ArgumentParser(prog="python -m benchmarks.shares_spu").parse_args()
    console = Console()
    with console.status("") as status:
        environment = make_environment(status.update, name=SPU)
        if environment.failures:
            sys.exit(f"SPU cannot be installed: {environment.failures}")
        table = Table("policy", "SPU, ms", "A + B, ms", "dealer, ms", "less", "with the dealer")
        ratios = {}
        for case in CASES:
            if case.name in NAMES:
                status.update(f"{case.name}, {BLOCKS} blocks")
                ratios[case.name] = _raced(case, str(environment.python), table)
    console.print(f"processor time at d = {DIM}, K = {N_ARMS}: SPU selects, we decide and learn")
    console.print(table)
    bar = Bar("SPU's selection over our decision and reward", "≥", MIN_RATIO, ratios[BARRED])
    console.print(f"{bar.verdict}: {bar.name}, {bar.measured:.0f} ({bar.sense} {bar.bound:g})")
    sys.exit(bar.verdict == "FAIL")


def _raced(case: Case, python: str, table: Table) -> float:
    shared = Federation.of(case, dim=DIM, n_arms=N_ARMS, n_participants=N_PARTICIPANTS)
    rounds = sample_contexts(DIM, N_ARMS)
    shared.play(rounds)  # compiles what is compiled
    theirs, ours, dealer = [], [], []
    arguments = (str(DIM), str(N_ARMS), NAMES[case.name])
    with LineProcess("benchmarks.peers.spu_worker", *arguments, python=python) as worker:
        for _ in range(BLOCKS):
            spent, _ = shared.play(rounds)
            ours.append((spent["A"] + spent["B"]) / BLOCK)
            dealer.append(spent["dealer"] / BLOCK)
            theirs.append(worker.play({"count": SELECTIONS}).cpu_s or 0.0)
    ratio = median(spu / own for spu, own in zip(theirs, ours, strict=True))
    whole = median(
        spu / (own + dealt) for spu, own, dealt in zip(theirs, ours, dealer, strict=True)
    )
    means = (f"{1e3 * median(some):.2f}" for some in (theirs, ours, dealer))
    table.add_row(NAMES[case.name], *means, f"{ratio:.0f} times", f"{whole:.0f} times")
    return ratio


if __name__ == "__main__":
    main()
