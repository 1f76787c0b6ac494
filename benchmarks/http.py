"""Time rank and reward over HTTP: ``python -m benchmarks.http``.

* Nobody but the active participant is there, K = 10 and d = 100: ``rank`` beside a handler on the
  same server, behind the same keys, limits and metrics, that reads the same request and answers a
  word; and beside that handler with nothing before it.
* Four passive participants, as processes over mutual TLS: ``rank`` beside a bare gRPC fan-out of as
  many bytes, which decides nothing and keeps nothing.

Ours is what its users run: API keys, limits, metrics, the dashboard's counts, and a log in SQLite
that is synced before an answer goes out.  Contestants have processes of their own and play in
turns, one turn to warm up; one more process makes the load, over 32 connections that stay open.
Figures are medians of turns, and shares medians of the shares of each turn: a machine that others
share is now fast and now slow.  The exit code is 1 if a bar is missed.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar
from benchmarks.http_federation import served
from benchmarks.http_line import LineProcess, Turn
from benchmarks.http_load import Load
from benchmarks.losslessness import OUT

N_ARMS, DIM = 10, 100
CONNECTIONS = 32
LEAST_SHARE = 0.5
NARROW = {"shop": DIM - 1, "bank": 1}
WIDE = {"shop": 20, "bank": 20, "news": 20, "post": 20, "gym": 20}
ALONE, TOGETHER = "rank, dense, alone", "rank, dense, 4 passive"
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


@dataclass(frozen=True, slots=True)
class Seen:
    """The turns of one contestant: with all connections, and with a single one."""

    many: list[Turn]
    one: list[Turn]

    @property
    def per_s(self) -> float:
        """Requests a second, the median turn's."""
        return median(turn.per_s for turn in self.many)

    def share_of(self, other: "Seen") -> float:
        """Ours over the other's requests a second, the median turn's."""
        return median(
            ours.per_s / its.per_s for ours, its in zip(self.many, other.many, strict=True)
        )

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
        }


def main() -> None:
    """Measure, write, print, and exit by the bars."""
    console = Console()
    OUT.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(dir=OUT) as folder, console.status("") as status:
        status.update("nobody but the active participant")
        seen = no_passive(Path(folder, "alone"), Plan())
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
    bare, batched = seen[ALONE].share_of(seen[BARE]), seen[TOGETHER].share_of(seen[BATCHED])
    return [
        _share(
            f"{ALONE}: share of an {EMPTY}",
            seen[ALONE],
            seen[EMPTY],
            f"share of an {BARE} {bare:.2f}",
        ),
        _share(
            f"{TOGETHER}: share of a {FAN_OUT}",
            seen[TOGETHER],
            seen[FAN_OUT],
            f"share of a {BATCHED} {batched:.2f}",
        ),
    ]


def no_passive(
    folder: Path, plan: Plan, masks: Sequence[str] = ("dense", "blockwise")
) -> dict[str, Seen]:
    """Ours beside the empty handler."""
    with ExitStack() as stack:
        load = stack.enter_context(LineProcess("benchmarks.http_load"))
        plays: dict[str, Play] = {}
        for mask in masks:
            home = folder / mask
            home.mkdir(parents=True)
            ours, keys = stack.enter_context(
                served(home, NARROW, n_arms=N_ARMS, mask=mask, connected=False)
            )
            plays[f"rank, {mask}, alone"] = _calls(load, ours)
            if EMPTY not in plays:
                for name, arguments in ((EMPTY, [str(keys)]), (BARE, [])):
                    empty = LineProcess("benchmarks.http_empty", *arguments)
                    port = stack.enter_context(empty).port
                    plays[name] = _calls(load, replace(ours, port=port))
            plays[f"rank with ids, {mask}, alone"] = _calls(load, replace(ours, named=True))
            plays[f"rank and reward, {mask}, alone"] = _calls(load, replace(ours, rewards=True))
        return race(plays, plan)


def four_passive(folder: Path, plan: Plan) -> dict[str, Seen]:
    """Ours beside the bare fan-out, with messages of its own for every round and in batches."""
    folder.mkdir(parents=True)
    size = str(8 * DIM * N_ARMS)
    with ExitStack() as stack:
        load = stack.enter_context(LineProcess("benchmarks.http_load"))
        ours, _ = stack.enter_context(
            served(folder, WIDE, n_arms=N_ARMS, mask="dense", connected=True)
        )
        plays: dict[str, Play] = {TOGETHER: _calls(load, ours)}
        for name, how in ((FAN_OUT, "one"), (BATCHED, "batched")):
            fan_out = LineProcess("benchmarks.http_fan_out", "4", size, how)
            plays[name] = _rounds(stack.enter_context(fan_out))
        both = f"rank and reward{TOGETHER.removeprefix('rank')}"
        plays[both] = _calls(load, replace(ours, rewards=True))
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
    rates = Table("contestant", "a second", "turns", "p50 µs", "p99 µs", "one client p50", "p99")
    for name, facts in figures.items():
        turns = f"{facts['slowest_turn_per_s']:,.0f} to {facts['fastest_turn_per_s']:,.0f}"
        cells = [f"{facts[key]:,.0f}" for key in ("p50_us", "p99_us", "one_p50_us", "one_p99_us")]
        rates.add_row(name, f"{facts['per_s']:,.0f}", turns, *cells)
    console.print(rates)


def _share(name: str, ours: Seen, other: Seen, detail: str = "") -> Bar:
    return Bar(name, "≥", LEAST_SHARE, ours.share_of(other), detail)


def _calls(process: LineProcess, load: Load) -> Play:
    asked = asdict(load)
    return lambda n, seconds: process.play({"load": asked, "in_flight": n, "seconds": seconds})


def _rounds(process: LineProcess) -> Play:
    return lambda n, seconds: process.play({"in_flight": n, "seconds": seconds})


if __name__ == "__main__":
    main()
