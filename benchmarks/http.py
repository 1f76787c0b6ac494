"""Time rank and reward over HTTP: ``python -m benchmarks.http``.

* Nobody but the active participant is there, K = 10 and d = 100: ``rank`` beside a handler on the
  same server, behind the same keys, limits and metrics, that reads the same request and answers a
  word; and beside that handler with nothing before it.
* ``rank`` behind a proxy that says whom it asks for, and in a campaign that its path names: CPU
  time of the server's process beside that of direct calls, in many short turns.
* The server that people would write themselves, FastAPI with MABWiser and one commit to SQLite for
  each request, in an environment of its own (``.venv-peers``).
* Four passive participants, as processes over mutual TLS: ``rank`` beside a bare gRPC fan-out of as
  many bytes, which decides nothing and keeps nothing.

Ours is what its users run: API keys, limits, metrics, the dashboard's counts, and a log in SQLite
that is synced before an answer goes out.  Contestants have processes of their own and play in
turns, one turn to warm up; one more process makes the load, over 32 connections that stay open.
Figures are medians of turns, and fractions medians of the fractions of each turn: a shared machine
is now fast and now slow.  The exit code is 1 if a bar is missed.

With ``--against DIR`` only ``rank`` without passive participants plays, beside that of another
checkout of this repository, such as an older version.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar
from benchmarks.cpu_time import cpu_s
from benchmarks.http_federation import served
from benchmarks.http_line import LineProcess, Turn
from benchmarks.http_load import Load
from benchmarks.losslessness import OUT
from benchmarks.peers.environment import make_environment
from benchmarks.process import ONE_THREAD, ROOT, WorkerDiedError, checkout

N_ARMS, DIM = 10, 100
CONNECTIONS = 32
SHOWN = ("p50_us", "p99_us", "one_p50_us", "one_p99_us", "cpu_us")
MIN_FRACTION = 0.5
MIN_OVER_NAIVE = 2.0
MAX_CPU_OVER_DIRECT = 1.05
MAX_CPU_OVER_OTHER = 1.15
NARROW = {"shop": DIM - 1, "bank": 1}
WIDE = {"shop": 20, "bank": 20, "news": 20, "post": 20, "gym": 20}
ALONE, TOGETHER = "rank, dense, alone", "rank, dense, 4 passive"
DIRECT = "rank, dense, direct"
BY_PROXY, IN_CAMPAIGN = "rank, dense, behind a proxy", "rank, dense, in a named campaign"
NAIVE = "FastAPI, MABWiser and SQLite"
NAIVE_PACKAGES = ("fastapi", "uvicorn", "httptools", "uvloop", "numpy", "scipy", "mabwiser")
EMPTY, BARE = "empty handler", "empty handler with nothing before it"
FAN_OUT, BATCHED = "bare fan-out", "bare fan-out in batches"

Play: TypeAlias = Callable[[int, float], Turn]


@dataclass(frozen=True, slots=True)
class Plan:
    """How long everything is played."""

    turns: int = 7
    seconds: float = 2.0
    one_s: float = 1.0
    connections: int = CONNECTIONS

    @property
    def of_ways(self) -> "Plan":
        """The same time in short turns: a few hundredths are looked for."""
        return replace(self, turns=5 * self.turns, seconds=self.seconds / 5.0, one_s=0.05)


@dataclass(frozen=True, slots=True)
class Seen:
    """The turns of one contestant: with all connections, and with a single one."""

    many: list[Turn]
    one: list[Turn]

    @property
    def per_s(self) -> float:
        """Requests a second, the median turn's."""
        return median(turn.per_s for turn in self.many)

    def fraction_of(self, other: "Seen") -> float:
        """Ours over the other's requests a second, the median turn's."""
        return median(
            ours.per_s / its.per_s for ours, its in zip(self.many, other.many, strict=True)
        )

    def cpu_over(self, other: "Seen") -> float | None:
        """CPU time of our server for a request over that of the other's, the median turn's."""
        pairs = zip(self.many, other.many, strict=True)
        shares = [a.cpu_s / b.cpu_s for a, b in pairs if a.cpu_s is not None and b.cpu_s]
        return median(shares) if shares else None

    def figures(self) -> dict[str, object]:
        """As they are written; times in microseconds."""
        return {
            "per_s": self.per_s,
            "slowest_turn_per_s": min(turn.per_s for turn in self.many),
            "fastest_turn_per_s": max(turn.per_s for turn in self.many),
            "p50_us": 1e6 * median(turn.p50_s for turn in self.many),
            "p99_us": 1e6 * median(turn.p99_s for turn in self.many),
            "one_p50_us": 1e6 * median(turn.p50_s for turn in self.one),
            "one_p99_us": 1e6 * median(turn.p99_s for turn in self.one),
            "cpu_us": 1e6 * median([turn.cpu_s or 0.0 for turn in self.many]),
        }


def main() -> None:
    """Measure, write, print, and exit by the bars."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http")
    parser.add_argument("--against", type=checkout, help="a checkout to race, and nothing else")
    tree = parser.parse_args().against
    console = Console()
    OUT.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()
    if tree is not None:
        with tempfile.TemporaryDirectory(dir=OUT) as folder, console.status(f"beside {tree}"):
            seen = beside(Path(folder), Plan(), tree)
        bars = bars_beside(seen)
        show(console, bars, {name: each.figures() for name, each in seen.items()})
        sys.exit(any(bar.verdict != "pass" for bar in bars))
    with tempfile.TemporaryDirectory(dir=OUT) as folder, console.status("") as status:
        peers = make_environment(status.update, only=NAIVE_PACKAGES)
        status.update("nobody but the active participant")
        python = None if peers.failures else peers.python
        seen = no_passive(Path(folder, "alone"), Plan(), peers=python)
        status.update("four passive participants")
        seen |= four_passive(Path(folder, "together"), Plan())
    bars, figures = bars_of(seen), {name: each.figures() for name, each in seen.items()}
    verdicts = [{**asdict(bar), "verdict": bar.verdict} for bar in bars]
    document = {"load at the start": load, "bars": verdicts, "figures": figures}
    path = OUT / "http.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    show(console, bars, figures)
    console.print(str(path), soft_wrap=True)
    sys.exit(any(bar.verdict != "pass" for bar in bars))


def bars_of(seen: Mapping[str, Seen]) -> list[Bar]:
    """Ours over what it is compared with."""
    alone, batched = seen[ALONE], seen[TOGETHER].fraction_of(seen[BATCHED])
    naive = alone.fraction_of(seen[NAIVE]) if NAIVE in seen else None
    empty, cpu = alone.fraction_of(seen[EMPTY]), alone.cpu_over(seen[EMPTY])
    figures = f"fraction of an {EMPTY} {empty:.2f}, of one with nothing before it "
    figures += f"{alone.fraction_of(seen[BARE]):.2f}"
    if cpu is not None:
        figures += f"; CPU of {cpu:.1f} {EMPTY}s"
    return [
        Bar(f"{ALONE}: throughput, times {NAIVE}", "≥", MIN_OVER_NAIVE, naive, figures),
        *(
            Bar(
                f"{name}: CPU of the server, times that of direct calls",
                "≤",
                MAX_CPU_OVER_DIRECT,
                seen[name].cpu_over(seen[DIRECT]),
            )
            for name in (BY_PROXY, IN_CAMPAIGN)
        ),
        _fraction(
            f"{TOGETHER}: fraction of a {FAN_OUT}",
            seen[TOGETHER],
            seen[FAN_OUT],
            f"fraction of a {BATCHED} {batched:.2f}",
        ),
    ]


def no_passive(
    folder: Path,
    plan: Plan,
    masks: Sequence[str] = ("dense", "blockwise"),
    *,
    peers: Path | None = None,
) -> dict[str, Seen]:
    """Ours beside the empty handler, and beside the peers' server if there is a Python for it."""
    with ExitStack() as stack:
        load = stack.enter_context(LineProcess("benchmarks.http_load"))
        plays: dict[str, Play] = {}
        ways: dict[str, Play] = {}
        for mask in masks:
            home = folder / mask
            home.mkdir(parents=True)
            running = stack.enter_context(
                served(home, NARROW, n_arms=N_ARMS, mask=mask, connected=False)
            )
            ours, pid = running.load, running.pid
            plays[f"rank, {mask}, alone"] = _calls(load, ours, pid)
            if EMPTY not in plays:
                ways[DIRECT] = _calls(load, ours, pid)
                ways[BY_PROXY] = _calls(load, running.by_proxy, pid)
                ways[IN_CAMPAIGN] = _calls(load, running.in_campaign, pid)
                others = {EMPTY: LineProcess("benchmarks.http_empty", str(running.keys))}
                others[BARE] = LineProcess("benchmarks.http_empty")
                if peers is not None:
                    database = str(home / "naive.db")
                    module = "benchmarks.peers.http_server"
                    others[NAIVE] = LineProcess(module, database, python=str(peers))
                for name, process in others.items():
                    port = stack.enter_context(process).port
                    plays[name] = _calls(load, replace(ours, port=port), process.pid)
            plays[f"rank with ids, {mask}, alone"] = _calls(load, replace(ours, named=True), pid)
            plays[f"rank and reward, {mask}, alone"] = _calls(
                load, replace(ours, rewards=True), pid
            )
        return race(plays, plan) | race(ways, plan.of_ways)


def beside(folder: Path, plan: Plan, tree: Path) -> dict[str, Seen]:
    """Ours beside the same of another checkout, in short turns."""
    with ExitStack() as stack:
        load = stack.enter_context(LineProcess("benchmarks.http_load"))
        plays: dict[str, Play] = {}
        for name, where in (("rank", ROOT), ("rank there", tree)):
            home = folder / name
            home.mkdir(parents=True)
            ranks, pid = stack.enter_context(served_by(where, home))
            plays[name] = _calls(load, ranks, pid)
            both = name.replace("rank", "rank and reward")
            plays[both] = _calls(load, replace(ranks, rewards=True), pid)
        return race(plays, plan.of_ways)


def bars_beside(seen: Mapping[str, Seen]) -> list[Bar]:
    """CPU time of our server over that of the other checkout's."""
    return [
        Bar(
            f"{name}: CPU of the server, times that of the other checkout",
            "≤",
            MAX_CPU_OVER_OTHER,
            seen[name].cpu_over(seen[f"{name} there"]),
        )
        for name in ("rank", "rank and reward")
    ]


@contextmanager
def served_by(tree: Path, folder: Path) -> Iterator[tuple[Load, int]]:
    """A federation that runs the code of a checkout: how it is called, and its process."""
    path = os.pathsep.join([str(tree / "src"), str(tree)])
    process = subprocess.Popen(
        [sys.executable, "-P", str(ROOT / "benchmarks" / "http_served.py"), str(folder)],
        cwd=tree,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline() if process.stdout is not None else ""
        if not line:
            raise WorkerDiedError(f"the federation of {tree} ended with code {process.wait()}")
        told = json.loads(line)
        yield Load(**told["load"]), told["pid"]
    finally:
        process.communicate()


def four_passive(folder: Path, plan: Plan) -> dict[str, Seen]:
    """Ours beside the bare fan-out, with messages of its own for every round and in batches."""
    folder.mkdir(parents=True)
    size = str(8 * DIM * N_ARMS)
    with ExitStack() as stack:
        load = stack.enter_context(LineProcess("benchmarks.http_load"))
        running = stack.enter_context(
            served(folder, WIDE, n_arms=N_ARMS, mask="dense", connected=True)
        )
        ours, pid = running.load, running.pid
        plays: dict[str, Play] = {TOGETHER: _calls(load, ours, pid)}
        for name, how in ((FAN_OUT, "one"), (BATCHED, "batched")):
            fan_out = LineProcess("benchmarks.http_fan_out", "4", size, how)
            plays[name] = _rounds(stack.enter_context(fan_out))
        both = f"rank and reward{TOGETHER.removeprefix('rank')}"
        plays[both] = _calls(load, replace(ours, rewards=True), pid)
        return race(plays, plan)


def race(plays: Mapping[str, Play], plan: Plan) -> dict[str, Seen]:
    """Let contestants play in turns; the first turn does not count."""
    seen = {name: Seen([], []) for name in plays}
    for turn in range(1 + plan.turns):
        for name, play in plays.items():
            many = play(plan.connections, plan.seconds)
            one = play(1, plan.one_s)
            if turn:
                seen[name].many.append(many)
                seen[name].one.append(one)
    return seen


def show(console: Console, bars: list[Bar], figures: Mapping[str, Mapping[str, object]]) -> None:
    """Bars, then what they are made of."""
    table = Table("bar", "bound", "measured", "", "")
    for bar in bars:
        measured = "" if bar.measured is None else f"{bar.measured:.2f}"
        table.add_row(bar.name, f"{bar.sense} {bar.bound:g}", measured, bar.verdict, bar.detail)
    console.print(table)
    rates = Table(
        "contestant", "a second", "turns", "p50 µs", "p99 µs", "one client p50", "p99", "CPU µs"
    )
    for name, facts in figures.items():
        turns = f"{facts['slowest_turn_per_s']:,.0f} to {facts['fastest_turn_per_s']:,.0f}"
        cells = [f"{facts[key]:,.0f}" for key in SHOWN]
        rates.add_row(name, f"{facts['per_s']:,.0f}", turns, *cells)
    console.print(rates)


def _fraction(name: str, ours: Seen, other: Seen, detail: str = "") -> Bar:
    return Bar(name, "≥", MIN_FRACTION, ours.fraction_of(other), detail)


def _calls(process: LineProcess, load: Load, pid: int) -> Play:
    """A turn of calls, with what it took of the CPU of the process ``pid``."""
    asked = asdict(load)

    def play(n: int, seconds: float) -> Turn:
        before = cpu_s(pid)
        turn = process.play({"load": asked, "in_flight": n, "seconds": seconds})
        after = cpu_s(pid)
        if before is None or after is None:
            return turn
        return replace(turn, cpu_s=(after - before) / turn.count)

    return play


def _rounds(process: LineProcess) -> Play:
    return lambda n, seconds: process.play({"in_flight": n, "seconds": seconds})


if __name__ == "__main__":
    main()
