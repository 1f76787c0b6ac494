"""What scaling out costs: ``python -m benchmarks.scale``.

* One process of the active participant, which decides and learns, with two passive participants.
* A trainer, which leads, and one ranker, with two passive participants of the same kind.

Applications keep 64 requests in flight over HTTP.  PostgreSQL keeps both journals, and syncs them.
Turns alternate, and the first does not count.  A turn ends when the leader has everything in its
journal: what it still has to take in is its work too.  CPU is what the operating system has counted
for each process during the turn; figures are medians of turns, and the fraction of one process's
CPU is the median of the fractions of each turn.  The exit code is 1 if a bar is missed.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks.bars import Bar
from benchmarks.http_line import LineProcess, Turn
from benchmarks.http_load import Load
from benchmarks.losslessness import OUT
from benchmarks.postgres_server import postgres_url
from benchmarks.scale_federation import LEADER, ONE, TWO, Scaled, database, scaled

WIDTHS = {"shop": 34, "bank": 33, "news": 33}
N_ARMS = 10
IN_FLIGHT = 64
MIN_PER_ROUND = 10.0
MAX_SHARE = 1.0
ALONE, APART = "one process", "trainer and ranker"
RANK, NAMED, REWARDED = "rank", "rank with ids", "rank and reward"


@dataclass(frozen=True, slots=True)
class Plan:
    """How long everything is played."""

    turns: int = 5
    seconds: float = 3.0
    in_flight: int = IN_FLIGHT
    loads: tuple[str, ...] = (RANK, NAMED, REWARDED)


@dataclass(frozen=True, slots=True)
class Cost:
    """One turn: how many decisions were made how fast, in how many rounds, by whose CPU."""

    decisions: int
    per_s: float
    rounds: int
    cpu_s: Mapping[str, float]
    p50_s: float

    @property
    def per_round(self) -> float:
        """Decisions that were gathered together."""
        return self.decisions / max(self.rounds, 1)

    def each_us(self, name: str) -> float:
        """CPU of one process for a decision, in microseconds."""
        return 1e6 * self.cpu_s[name] / self.decisions


@dataclass(frozen=True, slots=True)
class Seen:
    """The turns of one contestant."""

    costs: list[Cost]

    @property
    def per_round(self) -> float:
        """Decisions in a round, the median turn's."""
        return median(cost.per_round for cost in self.costs)

    @property
    def cpu_us(self) -> dict[str, float]:
        """CPU of each process for a decision, the median turn's."""
        return {
            name: median(cost.each_us(name) for cost in self.costs) for name in self.costs[0].cpu_s
        }

    def share_of(self, other: "Seen") -> float:
        """Our leader's CPU for a decision over that of the other's, the median turn's."""
        return median(
            ours.each_us(LEADER) / its.each_us(LEADER)
            for ours, its in zip(self.costs, other.costs, strict=True)
        )

    def figures(self) -> dict[str, object]:
        """As they are written; times in microseconds."""
        rates = [cost.per_s for cost in self.costs]
        return {
            "per_s": median(rates),
            "slowest_turn_per_s": min(rates),
            "fastest_turn_per_s": max(rates),
            "p50_us": 1e6 * median(cost.p50_s for cost in self.costs),
            "per_round": self.per_round,
            "cpu_us": self.cpu_us,
        }


def main() -> None:
    """Measure, write, print, and exit by the bars."""
    argparse.ArgumentParser(prog="python -m benchmarks.scale").parse_args()
    console = Console()
    OUT.mkdir(parents=True, exist_ok=True)
    load = os.getloadavg()
    with tempfile.TemporaryDirectory(dir=OUT) as folder, console.status("one and two processes"):
        seen = race(Path(folder), Plan())
    bars = bars_of(seen)
    figures = {
        f"{what}, {who}": each.figures()
        for what, both in seen.items()
        for who, each in both.items()
    }
    verdicts = [{**asdict(bar), "verdict": bar.verdict} for bar in bars]
    document = {"load at the start": load, "bars": verdicts, "figures": figures}
    path = OUT / "scale.json"
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    show(console, bars, seen)
    console.print(str(path), soft_wrap=True)
    sys.exit(any(bar.verdict != "pass" for bar in bars))


def bars_of(seen: Mapping[str, Mapping[str, Seen]]) -> list[Bar]:
    """Of plain calls of rank."""
    alone, apart = seen[RANK][ALONE], seen[RANK][APART]
    return [
        Bar(
            f"{APART}: decisions in a round at {IN_FLIGHT} in flight",
            "≥",
            MIN_PER_ROUND,
            apart.per_round,
            f"{ALONE} {alone.per_round:.1f}",
        ),
        Bar(
            f"{APART}: the leader's CPU for a decision, fraction of {ALONE}'s",
            "≤",
            MAX_SHARE,
            apart.share_of(alone),
        ),
    ]


def race(folder: Path, plan: Plan) -> dict[str, dict[str, Seen]]:
    """Let both play in turns, one kind of load after the other; the first turn does not count."""
    with ExitStack() as stack:
        url = stack.enter_context(postgres_url())
        line = stack.enter_context(LineProcess("benchmarks.http_load"))
        sides: dict[str, Scaled] = {}
        for number, (name, roles) in enumerate({ALONE: ONE, APART: TWO}.items()):
            home = folder / f"side-{number}"
            home.mkdir()
            target = stack.enter_context(database(url, f"side_{number}"))
            running = scaled(home, WIDTHS, n_arms=N_ARMS, roles=roles, target=target)
            sides[name] = stack.enter_context(running)
        seen: dict[str, dict[str, Seen]] = {
            what: {name: Seen([]) for name in sides} for what in plan.loads
        }
        for turn in range(1 + plan.turns):
            for what in plan.loads:
                for name, side in sides.items():
                    cost = _play(line, side, _load(side.load, what), plan)
                    if turn:
                        seen[what][name].costs.append(cost)
    return seen


def show(console: Console, bars: list[Bar], seen: Mapping[str, Mapping[str, Seen]]) -> None:
    """Bars, then what they are made of."""
    table = Table("bar", "bound", "measured", "", "")
    for bar in bars:
        measured = "" if bar.measured is None else f"{bar.measured:.2f}"
        table.add_row(bar.name, f"{bar.sense} {bar.bound:g}", measured, bar.verdict, bar.detail)
    console.print(table)
    names = list(
        dict.fromkeys(n for both in seen.values() for s in both.values() for n in s.cpu_us)
    )
    rates = Table("load", "contestant", "a second", "turns", "p50 ms", "in a round")
    spent = Table("CPU µs a decision", "contestant", *names)
    for what, both in seen.items():
        for who, each in both.items():
            facts = each.figures()
            turns = f"{facts['slowest_turn_per_s']:,.0f} to {facts['fastest_turn_per_s']:,.0f}"
            p50_ms = f"{median(cost.p50_s for cost in each.costs) * 1e3:.1f}"
            rates.add_row(
                what, who, f"{facts['per_s']:,.0f}", turns, p50_ms, f"{each.per_round:.1f}"
            )
            costs = each.cpu_us
            spent.add_row(what, who, *(f"{costs[n]:,.0f}" if n in costs else "" for n in names))
    console.print(rates)
    console.print(spent)


def _load(load: Load, what: str) -> Load:
    return replace(load, named=what == NAMED, rewards=what == REWARDED)


def _play(line: LineProcess, side: Scaled, load: Load, plan: Plan) -> Cost:
    rounds, before = side.n_rounds(), side.usage()
    asked = {"load": asdict(load), "in_flight": plan.in_flight, "seconds": plan.seconds}
    turn: Turn = line.play(asked)
    side.wait_until_taken()
    after = side.usage()
    # A visit with a reward is two requests.
    decisions = turn.count // 2 if load.rewards else turn.count
    spent = {name: after[name] - before[name] for name in after}
    return Cost(decisions, decisions / turn.elapsed_s, side.n_rounds() - rounds, spent, turn.p50_s)


if __name__ == "__main__":
    main()
