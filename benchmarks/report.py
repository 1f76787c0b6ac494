"""The two files that a run leaves: all numbers as JSON, and a page to read."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.bars import Bar
from benchmarks.probes import Probe
from benchmarks.race import AGREEMENT_FACTOR, AGREEMENT_SEEDS, Race, Result, speedup
from benchmarks.roster import PEERS, TEXTBOOK


@dataclass(slots=True)
class Report:
    """What a run has found so far."""

    machine: dict[str, str]
    races: list[Race] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        """No bar failed, and nothing of ours broke; a bar not asked for does not count."""
        return not self.failures and all(bar.verdict != "FAIL" for bar in self.bars)

    def write(self, directory: Path) -> tuple[Path, Path]:
        """Write ``speed.json`` and ``speed.md``; say where."""
        directory.mkdir(parents=True, exist_ok=True)
        as_json, as_page = directory / "speed.json", directory / "speed.md"
        verdicts = [{**asdict(bar), "verdict": bar.verdict} for bar in self.bars]
        everything = {**asdict(self), "bars": verdicts}
        as_json.write_text(json.dumps(everything, indent=1, ensure_ascii=False) + "\n")
        as_page.write_text("\n".join(self._page()) + "\n")
        return as_json, as_page

    def _page(self) -> Iterable[str]:
        yield "# Speed\n"
        yield (
            "CPU per round (choose and learn), one thread, median of interleaved repetitions; ± is"
            " half the interquartile range. Regret is over a fixed run, mean of"
            f" {AGREEMENT_SEEDS} seeds, in units of the textbook's; ⚠ marks a contestant outside a"
            f" factor of {AGREEMENT_FACTOR}, which does not learn the same thing.\n"
        )
        yield from table(("machine", ""), self.machine.items())
        yield "\n## Bars\n"
        yield from table(("bar", "bound", "measured", "", ""), map(_bar_row, self.bars))
        for race in self.races:
            task = race.task
            yield f"\n## {task.algorithm}, d = {task.dim}, K = {task.n_arms}\n"
            heads = ("", "µs a round", "±", "× textbook", "regret", "")
            yield from table(heads, (_result_row(race, result) for result in race.results))
        if self.probes:
            yield "\n## Other figures\n"
            yield from table(("probe", "figures"), map(_probe_row, self.probes))
        if "peers" in self.machine:
            yield "\n## Peers\n"
            yield from table(("peer", "what runs"), ((peer.name, peer.note) for peer in PEERS))
        for name, reason in self.failures.items():
            yield f"\n**{name} broke:** {reason}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    """Lines of a Markdown table."""
    yield "| " + " | ".join(heads) + " |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _bar_row(bar: Bar) -> tuple[str, ...]:
    measured = "" if bar.measured is None else f"{bar.measured:.2f}"
    return (bar.name, f"{bar.sense} {bar.bound:g}", measured, bar.verdict, bar.detail)


def _result_row(race: Race, result: Result) -> tuple[str, ...]:
    factor, timing = race.regret_factor(result), result.timing
    if timing is None or factor is None:
        return (result.entry.name, "", "", "", "", result.failure)
    gain = speedup(of=result, over=race.result(TEXTBOOK)) or 1.0
    regret = f"{factor:.2f}" if race.agrees(result) else f"⚠ {factor:.2f}"
    mark = "" if result.entry.is_same_algorithm else "different algorithm"
    cost, spread = f"{1e6 * timing.median_s:.1f}", f"{timing.spread:.1%}"
    return (result.entry.name, cost, spread, f"{gain:.2f}", regret, mark)


def _probe_row(probe: Probe) -> tuple[str, ...]:
    return (probe.bar.name, ", ".join(f"{name} {x:.3g}" for name, x in probe.figures.items()))
