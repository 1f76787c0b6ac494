"""What deciding and learning on secret shares costs, beside a plain bandit, in one process.

Run as ``python -m benchmarks.shares --dim 100 --arms 10``.  Prints for each policy and release the
processor time of each role for one decision and its reward, the two servers' as a multiple of
``vfb.Bandit``'s, bytes, and which bars are met.  Blocks of rounds alternate, each server's and the
plain bandit's (``shares_rounds``), so that all run with warm caches and under the same load.
"""

import argparse
import os
import sys
from collections import Counter, defaultdict
from typing import NamedTuple

import numpy as np

import vfbandits as vfb
from benchmarks.shares_rounds import REWARD, Clock, RecordedRounds, timed_rounds
from vfbandits.core.arrays import Matrix
from vfbandits.core.mask import deal_blockwise
from vfbandits.core.policy.base import Policy
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.offer import Offer
from vfbandits.core.shares.released import plan
from vfbandits.core.shares.terms import ShareTerms, default_window
from vfbandits.simulate.world import even_widths

BLOCK = 64


class Case(NamedTuple):
    """A policy, what is released, and the bars for it, by features and arms."""

    name: str
    policy: Policy
    release: str
    max_ratio: dict[tuple[int, int], float]
    layout: str = "per_arm"


CASES = (
    Case("LinTS, arm", vfb.LinTS(0.1, space="parameter"), "arm", {(100, 10): 10.0}),
    Case("LinGreedy, arm", vfb.LinGreedy(), "arm", {}),
    Case("LinUCB, arm", vfb.LinUCB(0.5), "arm", {(100, 10): 25.0}),
    Case("LinGreedy, statistics", vfb.LinGreedy(), "statistics", {}),
    Case("LinUCB, statistics", vfb.LinUCB(0.5), "statistics", {(100, 10): 20.0, (20, 10): 12.0}),
    Case("LinTS, statistics", vfb.LinTS(0.1, space="arm"), "statistics", {(100, 10): 20.0}),
    Case("disjoint, LinTS, arm", vfb.LinTS(0.1), "arm", {}, "disjoint"),
    Case("disjoint, LinUCB, statistics", vfb.LinUCB(0.5), "statistics", {}, "disjoint"),
    Case("outer, LinTS, arm", vfb.LinTS(0.1), "arm", {}, "outer"),
    Case("outer, LinUCB, statistics", vfb.LinUCB(0.5), "statistics", {}, "outer"),
)
ARM_DIM = 4
MAX_KB = {"decision": 60.0, "reward": 12.0, "fold": 130.0, "offline": 48.0}
MAX_OFFLINE_KB_ARM = 60.0


class Figures(NamedTuple):
    """Of one case: processor time by role in µs, A + B over plain, block by block, and bytes.

    Bytes and round trips are those of ``n_rounds``, which are a window.
    """

    spent: dict[str, list[float]]
    ratios: list[float]
    sizes: Counter[str]
    trips: Counter[str]
    n_rounds: int


def main() -> None:
    """Measure one size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shares", description=__doc__)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--participants", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=8, help=f"of {BLOCK} rounds each")
    parser.add_argument("--only", help="cases whose name has this in it")
    given = parser.parse_args()
    _say(f"d = {given.dim}, K = {given.arms}, {given.participants} participants, one process")
    _say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {given.blocks} blocks of {BLOCK}")
    _say("processor time in µs for a decision and its reward; KB = 1,000 bytes")
    for case in CASES:
        if given.only is None or given.only.lower() in case.name.lower():
            _report(case, given.dim, given.arms, _measured(case, given))


class Federation(NamedTuple):
    """The roles of one case, and the arms that it offers in layouts that need them."""

    local: LocalShares
    offer: Offer | None

    @classmethod
    def of(cls, case: Case, *, dim: int, n_arms: int, n_participants: int) -> "Federation":
        """Untaught."""
        widths = tuple(even_widths(dim, n_participants).values())
        shared = plan(case.policy, case.release, case.layout)
        is_outer = case.layout == "outer"
        terms = ShareTerms(
            widths=widths,
            layout=case.layout,
            arm_dim=ARM_DIM if is_outer else 0,
            max_arms=n_arms,
            ridge=1.0,
            posterior_scale=shared.posterior_scale,
            release=case.release,
            reads=shared.reads,
            beta=shared.beta,
            window=default_window(shared.reads),
            decisions=default_window(shared.reads),
        )
        offer = None
        if case.layout == "disjoint":
            offer = Offer(tuple(range(n_arms)), n_arms)
        elif is_outer:
            offer = Offer(features=sample_contexts(ARM_DIM, n_arms)[0])
        return cls(LocalShares(terms, rotations=deal_blockwise(widths)), offer)

    def play(self, rounds: list[Matrix]) -> tuple[dict[str, float], RecordedRounds]:
        """Processor time of these rounds by role, in seconds, and what the servers were given."""
        return timed_rounds(self.local, self.offer, rounds)


def _measured(case: Case, given: argparse.Namespace) -> Figures:
    dim, n_arms = given.dim, given.arms
    shared = Federation.of(case, dim=dim, n_arms=n_arms, n_participants=given.participants)
    arm_dim = ARM_DIM if case.layout == "outer" else None
    plain = vfb.Bandit(case.policy, dim=dim, layout=case.layout, arm_dim=arm_dim)
    rounds = sample_contexts(dim, n_arms if case.layout == "per_arm" else 1)
    _block(shared, plain, rounds)  # compiles what is compiled
    ratios: list[float] = []
    spent: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(given.blocks):
        for role, seconds in _block(shared, plain, rounds).items():
            spent[role].append(1e6 * seconds / BLOCK)
        ratios.append((spent["A"][-1] + spent["B"][-1]) / spent["plain"][-1])
    window = shared.local.terms.window
    sizes, trips = _counted(_whole_window(shared, rounds))
    return Figures(dict(spent), ratios, sizes, trips, window)


def _report(case: Case, dim: int, n_arms: int, found: Figures) -> None:
    roles = ("plain", "A", "B", "participants", "dealer")
    times = ", ".join(f"{role} {np.median(found.spent[role]):.0f}" for role in roles)
    ratio, low, high = np.median(found.ratios), min(found.ratios), max(found.ratios)
    _say(f"{case.name}: {ratio:.1f} times plain ({low:.1f} to {high:.1f}); {times}")
    sizes = {
        what: size / 1_000.0 / found.n_rounds * (16 if what == "fold" else 1)
        for what, size in found.sizes.items()
    }
    trips = {
        "decision": 1 + found.trips["decision"] // found.n_rounds,  # one to the participants
        "reward": found.trips["reward"] // found.n_rounds,
    }
    kilobytes = ", ".join(f"{what} {size:.1f}" for what, size in sorted(sizes.items()))
    _say(f"    KB: {kilobytes}; round trips: {trips['decision']} and {trips['reward']}")
    if (dim, n_arms) in case.max_ratio:
        _judge("times plain", float(ratio), case.max_ratio[dim, n_arms])
    if (dim, n_arms) == (100, 10) and case.layout == "per_arm":
        is_arm = case.release == "arm"
        limits = MAX_KB | ({"offline": MAX_OFFLINE_KB_ARM} if is_arm else {})
        for what, limit in limits.items():
            names = {"offline": "KB offline", "fold": "KB of folds for 16 rewards"}
            _judge(names.get(what, f"KB of a {what}"), sizes[what], limit)
        _judge("round trips of a decision", trips["decision"], 4 if is_arm else 2)
        _judge("round trips of a reward", trips["reward"], 3)


def _judge(what: str, value: float, limit: float) -> None:
    _say(f"    {'met' if value <= limit else 'MISSED'}: {what}, {value:.1f} of at most {limit:g}")


def _block(shared: Federation, plain: vfb.Bandit, rounds: list[Matrix]) -> dict[str, float]:
    spent, _ = shared.play(rounds)
    offer = shared.offer

    def decide(contexts: Matrix) -> vfb.Decision:
        if offer is None:
            return plain.decide(contexts)
        arms = [*map(str, offer.blocks)] or None
        return plain.decide(contexts[0], arms=arms, arm_features=offer.features)

    def play() -> None:
        for contexts in rounds:
            plain.reward(decide(contexts), REWARD)

    clock = Clock()
    clock.run("plain", play)
    return spent | clock.spent


def _whole_window(shared: Federation, rounds: list[Matrix]) -> RecordedRounds:
    """The record of a window from its first decision to its fold."""
    active, window = shared.local.active, shared.local.terms.window
    left = 0 if active.needs_deal else window - active.n_rows
    shared.play((rounds * (1 + window // BLOCK))[:left])
    return shared.play((rounds * (1 + window // BLOCK))[:window])[1]


def _counted(record: RecordedRounds) -> tuple[Counter[str], Counter[str]]:
    """Bytes and round trips."""
    rewards = ("Recall", "Whiten", "Learn", "Settle", "Project", "Scale")
    replies = ("Recalled", "Whitened", "Learnt", "Settled", "Projected", "Scaled")
    names = {
        **dict.fromkeys(("Fold", "Folded", "Shrink", "Shrunk"), "fold"),
        **dict.fromkeys(rewards + replies, "reward"),
    }
    sizes: Counter[str] = Counter()
    trips: Counter[str] = Counter()
    for message in (*record.sent, *record.answers, *(m for each in record.shared for m in each)):
        sizes[names.get(type(message).__name__, "decision")] += message.size_bytes
    for deal in record.dealt:
        sizes["offline"] += sum(message.size_bytes for message in deal.deals)
    for message in record.sent:
        name = type(message).__name__
        # Nobody waits for the answer to the last message of either, and Ask is sent while
        # participants are asked.
        trips[names.get(name, "decision")] += name not in ("Ask", "Pick", "Settle")
    return sizes, trips


def sample_contexts(dim: int, n_arms: int) -> list[Matrix]:
    """The contexts of one block of rounds."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((BLOCK, n_arms, dim))
    return list(rows / np.linalg.norm(rows, axis=2, keepdims=True))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
