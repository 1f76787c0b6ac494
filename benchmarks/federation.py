"""Time a live federation beside what one would use instead: ``python -m benchmarks.federation``.

A decision with four passive participants over mutual TLS, beside a raw asyncio fan-out of the same
bytes, which has no roles, checks or deadlines; and a LinUCB round under homomorphic encryption.
Contestants play in turns, wall clock, medians; ratios are medians of those of each turn.  They are
started anew many times: the same program, started twice, is now faster and now slower for all its
life, by as much as it is placed well or badly on the processor's cores.  The CPU time of a round,
of all processes of a contestant, is printed beside the wall clock; it varies far less.

Of the raw fan-outs, ``streams`` is written with asyncio's streams, ``protocol`` with a buffered
protocol of its own, the best that asyncio can do; with ``compute`` it does the same arithmetic as
we do.  The exit code is 1 if a bar is missed.

With ``--against DIR`` only the decision at 8 KB plays, beside that of another checkout of this
repository, such as an older version.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar
from benchmarks.encrypted_round import KINDS, encrypted_round_seconds
from benchmarks.losslessness import OUT
from benchmarks.process import ROOT, checkout
from benchmarks.round_process import Played, RoundProcess

SMALL, LARGE = (100, 10), (1000, 100)
MORE_ARMS = (100, 1000)
IN_FLIGHT = 64
BARE = "decision without access records"
FIGURES: dict[str, dict[str, float]] = {}


class Pace(NamedTuple):
    """How often contestants are started, their turns after each start, and the rounds of a turn."""

    starts: int
    turns: int
    rounds: int


PACE = {SMALL: Pace(8, 2, 150), LARGE: Pace(3, 4, 20)}
BESIDE = Pace(10, 4, 150)


def main() -> None:
    """Measure, write, print, and exit by the bars."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.federation")
    parser.add_argument(
        "--against", type=checkout, help="a checkout to race at 8 KB, and nothing else"
    )
    against = parser.parse_args().against
    console = Console()
    if against is not None:
        with console.status(f"one decision at a time, beside that of {against}"):
            bars = beside(against)
        show(console, bars)
        sys.exit(any(bar.verdict == "FAIL" for bar in bars))
    bars = []
    with console.status("one decision at a time, dense masks"):
        bars += one_at_a_time()
    with console.status("one vector per decision: outer and disjoint"):
        bars += one_vector()
    with console.status("64 decisions in flight"):
        bars += many_at_a_time()
    with console.status("under homomorphic encryption"):
        bars += encrypted()
    OUT.mkdir(parents=True, exist_ok=True)
    verdicts = [{**asdict(bar), "verdict": bar.verdict} for bar in bars]
    path = OUT / "federation.json"
    document = {"bars": verdicts, "figures": FIGURES}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    show(console, bars)
    console.print(str(path), soft_wrap=True)
    sys.exit(any(bar.verdict == "FAIL" for bar in bars))


def show(console: Console, bars: list[Bar]) -> None:
    """Bars, then the times they are made of."""
    table = Table("bar", "bound", "measured", "", "")
    for bar in bars:
        measured = "" if bar.measured is None else f"{bar.measured:.2f}"
        table.add_row(bar.name, f"{bar.sense} {bar.bound:g}", measured, bar.verdict, bar.detail)
    console.print(table)
    times = Table("contestant", "p50 µs", "p99 µs", "CPU µs", "per s", "bytes")
    for name, facts in FIGURES.items():
        cells = (facts[key] for key in ("p50", "p99", "cpu", "per_s", "bytes"))
        times.add_row(name, *(f"{cell:.0f}" for cell in cells))
    console.print(times)


def race(
    settings: dict[str, dict[str, object]],
    pace: Pace,
    *,
    trees: Mapping[str, Path] | None = None,
) -> dict[str, Played]:
    """Let contestants play in turns, after each start one turn to warm up.

    ``trees`` has the checkouts of those that do not run this one.
    """
    played: dict[str, list[Played]] = {name: [] for name in settings}
    for _ in range(pace.starts):
        with ExitStack() as stack:
            processes = {
                name: stack.enter_context(RoundProcess(each, tree=(trees or {}).get(name, ROOT)))
                for name, each in settings.items()
            }
            for process in processes.values():
                process.play(pace.rounds)
            for turn in range(pace.turns):
                order = list(processes.items())
                for name, process in order if turn % 2 else reversed(order):  # nobody always first
                    played[name].append(process.play(pace.rounds))
    together = {name: Played.of(turns) for name, turns in played.items()}
    for name, seen in together.items():
        FIGURES[name] = seen.figures()
    return together


def ours(dim: int, n_arms: int, **more: object) -> dict[str, object]:
    """A federation as a contestant."""
    settings = {"kind": "federation", "only_gather": False, "dim": dim, "n_arms": n_arms}
    return {**settings, **more}


def raw(dim: int, n_arms: int, kind: str, mode: str = "ready") -> dict[str, object]:
    """A raw fan-out of as many bytes."""
    size = 8 * dim * n_arms
    return {"kind": kind, "n_answerers": 4, "size_bytes": size, "mode": mode, "n_arms": n_arms}


def one_at_a_time() -> list[Bar]:
    """The bars on latency, layout per_arm; at 8 KB also what access records cost."""
    bars = []
    for dim, n_arms in (SMALL, LARGE):
        where = f"d={dim}, K={n_arms}"
        contestants = {
            f"decision, {where}": ours(dim, n_arms),
            f"raw streams, {where}": raw(dim, n_arms, "streams"),
            f"gathering, {where}": ours(dim, n_arms, only_gather=True),
            f"raw protocol, {where}": raw(dim, n_arms, "protocol"),
            f"raw protocol + compute, {where}": raw(dim, n_arms, "protocol", "compute"),
        }
        if (dim, n_arms) == SMALL:
            contestants[f"{BARE}, {where}"] = ours(dim, n_arms, is_recorded=False)
        seen = race(contestants, PACE[dim, n_arms])
        decision, streams, gathering, best, compute, *_ = seen.values()
        also = f"gathering alone {gathering.over(streams):.2f}; decision over protocol "
        also += f"{decision.over(best):.2f}, gathering {gathering.over(best):.2f}"
        if (dim, n_arms) == SMALL:
            bare = seen[f"{BARE}, {where}"]
            # This bar is older than access records, which have a bar of their own.
            also = (
                f"middle half of the turns {bare.spread_over(streams)}, CPU "
                f"{bare.cpu_over(streams):.2f}; with access records {decision.over(streams):.2f}; "
                f"{also}"
            )
            bars += [
                Bar(f"{BARE} over raw streams, {where}", "≤", 3.0, bare.over(streams), also),
                Bar(
                    f"decision over one without access records, {where}",
                    "≤",
                    1.1,
                    decision.over(bare),
                    f"middle half {decision.spread_over(bare)}, CPU {decision.cpu_over(bare):.2f}",
                ),
            ]
        else:
            name = f"decision over raw protocol with the same arithmetic, {where}"
            bars.append(Bar(name, "≤", 1.4, decision.over(compute), also))
    return bars


def beside(tree: Path) -> list[Bar]:
    """The decision at 8 KB, beside that of another checkout.

    One that has no access records is raced without ours, and with them for the figure beside it.
    """
    has_records = (tree / "benchmarks" / "unrecorded.py").exists()
    seen = race(
        {
            "decision": ours(*SMALL),
            BARE: ours(*SMALL, is_recorded=False),
            "raw streams": raw(*SMALL, "streams"),
            str(tree): ours(*SMALL),
        },
        BESIDE,
        trees={str(tree): tree},
    )
    decision, bare, streams, theirs = seen.values()
    like = decision if has_records else bare
    detail = (
        f"with access records {decision.over(theirs):.2f} (CPU {decision.cpu_over(theirs):.2f}), "
        f"without {bare.over(theirs):.2f} (CPU {bare.cpu_over(theirs):.2f}), middle half of the "
        f"turns {like.spread_over(theirs)}; over raw streams {decision.over(streams):.2f}, "
        f"{bare.over(streams):.2f} and theirs {theirs.over(streams):.2f}"
    )
    return [Bar(f"decision over that of {tree}", "≤", 1.1, like.over(theirs), detail)]


def one_vector() -> list[Bar]:
    """Layouts in which a participant sends one vector: fewer bytes, and no growth with K."""
    bars = []
    small = FIGURES[f"decision, d={SMALL[0]}, K={SMALL[1]}"]
    for layout in ("outer", "disjoint"):
        names = {k: f"{layout}, gathering, d={SMALL[0]}, K={k}" for k in (SMALL[1], *MORE_ARMS)}
        seen = race(
            {name: ours(SMALL[0], k, layout=layout, only_gather=True) for k, name in names.items()}
            | {f"per_arm beside {layout}": ours(*SMALL, only_gather=True)},
            PACE[SMALL],
        )
        beside = seen[f"per_arm beside {layout}"]
        few = seen[names[SMALL[1]]].bytes
        bars.append(Bar(f"bytes of per_arm dense over {layout}", "≥", 5.0, small["bytes"] / few))
        for n_arms, name in names.items():
            ratio = seen[name].over(beside)
            bars.append(Bar(f"{layout}, K={n_arms}: over per_arm at 8 KB", "≤", 1.0, ratio))
    return bars


def many_at_a_time() -> list[Bar]:
    """Throughput of 64 decisions in flight over that of one at a time."""
    pace = PACE[SMALL]
    with RoundProcess(ours(*SMALL)) as process:
        process.play(pace.rounds, in_flight=IN_FLIGHT)
        turns: dict[int, list[Played]] = {1: [], IN_FLIGHT: []}
        for _ in range(pace.starts * pace.turns):
            for in_flight, played in turns.items():
                played.append(process.play(pace.rounds * (4 if in_flight > 1 else 1), in_flight))
    one, many = (Played.of(played) for played in turns.values())
    FIGURES["decision, one at a time"] = one.figures()
    FIGURES[f"decision, {IN_FLIGHT} in flight"] = many.figures()
    gain = many.rounds_per_s / one.rounds_per_s
    return [Bar(f"throughput of {IN_FLIGHT} decisions in flight over one", "≥", 3.0, gain)]


def encrypted() -> list[Bar]:
    """A LinUCB round under CKKS over our whole decision, both kinds of model."""
    bars = []
    decision = FIGURES[f"decision, d={SMALL[0]}, K={SMALL[1]}"]["p50"]
    for kind in KINDS:
        measured = encrypted_round_seconds(10, model=kind)
        seconds = measured["seconds"]
        FIGURES[f"CKKS, {kind} model, arithmetic only"] = {
            "p50": 1e6 * seconds,
            "p99": 1e6 * seconds,
            "per_s": 1.0 / seconds,
            "bytes": float(sum(measured["sent_bytes"].values())),
            "cpu": math.nan,
        }
        name = f"CKKS ({kind} model), arithmetic alone, over our decision with its network"
        detail = {
            "open": "the active participant is told every chosen context in plain: not a bar",
            "sealed": "nobody sees a context, as with masks",
        }[kind]
        bound = 50.0 if kind == "sealed" else 0.0
        bars.append(Bar(name, "≥", bound, 1e6 * seconds / decision, detail))
    return bars


if __name__ == "__main__":
    main()
