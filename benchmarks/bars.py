"""The bars, as the issue states them, and whether they are met."""

from dataclasses import dataclass
from typing import Literal

from benchmarks.race import AGREEMENT_FACTOR, Race, speedup
from benchmarks.roster import OURS, TEXTBOOK

Sense = Literal["≥", ">", "≤"]
OVER_TEXTBOOK = {
    ("LinUCB", 20, 10): 2.0,
    ("LinUCB", 100, 10): 8.0,
    ("LinUCB", 100, 1000): 1.6,
    ("LinTS", 100, 10): 35.0,
    ("LinTS", 100, 1000): 15.0,
}
OVER_FASTEST_PEER = {(100, 10): 3.0}


@dataclass(frozen=True, slots=True)
class Bar:
    """A bound and what was measured against it; ``None`` is "not measured", and not a pass."""

    name: str
    sense: Sense
    bound: float
    measured: float | None
    detail: str = ""

    @property
    def verdict(self) -> Literal["pass", "FAIL", "not measured"]:
        """Whether the bar is met."""
        if self.measured is None:
            return "not measured"
        met = {
            "≥": self.measured >= self.bound,
            ">": self.measured > self.bound,
            "≤": self.measured <= self.bound,
        }
        return "pass" if met[self.sense] else "FAIL"


def bars_of_race(race: Race) -> list[Bar]:
    """Ours against the textbook and against the fastest peer, for one cell of the grid."""
    task, ours = race.task, race.result(OURS)
    where = f"{task.algorithm} at ({task.dim}, {task.n_arms})"
    bars = []
    bound = OVER_TEXTBOOK.get((task.algorithm, task.dim, task.n_arms))
    if bound is not None:
        gain = speedup(of=ours, over=race.result(TEXTBOOK))
        bars.append(Bar(f"{where}: times the textbook", "≥", bound, gain, ours.failure))
    peer = race.fastest_peer
    if peer is not None:
        bound = OVER_FASTEST_PEER.get((task.dim, task.n_arms))
        gain = speedup(of=ours, over=peer)
        name = f"{where}: times the fastest peer"
        bars.append(Bar(name, "≥" if bound else ">", bound or 1.0, gain, peer.entry.name))
    factor = race.regret_factor(ours)
    if factor is not None:
        name = f"{where}: regret and the textbook's, larger over smaller"
        bars.append(Bar(name, "≤", AGREEMENT_FACTOR, max(factor, 1 / factor)))
    return bars
