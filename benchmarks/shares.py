"""What deciding and learning on secret shares costs, beside a plain bandit, in one process.

Run as ``python -m benchmarks.shares --dim 100 --arms 10``.  Prints processor time of each role for
one decision and its reward, the two servers' as a multiple of ``vfb.Bandit``'s, and bytes.  Blocks
of rounds alternate, shared and plain, so that both run with warm caches and under the same load.
"""

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TypeVar

import numpy as np

import vfbandits as vfb
from vfbandits.core.arrays import Matrix
from vfbandits.core.mask import deal_blockwise
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.messages import Exchange, Message
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.simulate.world import even_widths

BLOCK = 64
REWARD = 0.5
_Result = TypeVar("_Result")


class Clock:
    """Processor time by role, in seconds."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)

    def run(self, role: str, call: Callable[[], _Result]) -> _Result:
        """Call, and put the time down to ``role``."""
        started = time.process_time()
        try:
            return call()
        finally:
            self.spent[role] += time.process_time() - started


class TimedShares(LocalShares):
    """Roles in one process, each under the clock."""

    clock: Clock

    def _run(self, exchange: Exchange[_Result]) -> _Result:
        clock, helper = self.clock, self.helper
        try:
            message = clock.run("A", lambda: next(exchange))
            while True:
                sent = message
                self._record("active", "helper", sent)
                reply = clock.run("B", lambda sent=sent: helper.answer(sent))  # type: ignore[misc]
                self._record("helper", "active", reply)
                message = clock.run("A", lambda reply=reply: exchange.send(reply))  # type: ignore[misc]
        except StopIteration as end:
            result: _Result = end.value
            return result

    def round(self, blocks: list[Matrix]) -> None:
        """One decision and its reward."""
        clock = self.clock
        if self.active.needs_deal:
            clock.run("dealer", self._ensure_deal)
        place = self.active.next_place()
        shared = clock.run(
            "participants",
            lambda: [
                participant.share(place, block)  # type: ignore[arg-type]
                for participant, block in zip(self.participants, blocks, strict=True)
            ],
        )
        for message in shared:
            self._record("participant", "active", message)
        opened = self._run(self.active.decide(place, shared))
        self.learn(self.pick(opened, opened.arm), REWARD)


def main() -> None:
    """Measure one size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shares", description=__doc__)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--participants", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=8, help=f"of {BLOCK} rounds each")
    given = parser.parse_args()
    widths = tuple(even_widths(given.dim, given.participants).values())
    terms = ShareTerms(widths=widths, max_arms=given.arms, ridge=1.0, posterior_scale=0.1)
    local = TimedShares(terms, rotations=deal_blockwise(widths))
    local.clock = Clock()
    plain = vfb.Bandit(vfb.LinTS(0.1, space="parameter"), dim=given.dim)
    sizes: Counter[str] = Counter()
    rounds = _contexts(given.dim, given.arms)
    _block(local, plain, rounds)  # compiles what is compiled
    ratios, spent = [], defaultdict(list)
    for _ in range(given.blocks):
        for role, seconds in _block(local, plain, rounds).items():
            spent[role].append(1e6 * seconds / BLOCK)
        ratios.append((spent["A"][-1] + spent["B"][-1]) / spent["plain"][-1])
    local.on_message = _counter(sizes)
    for contexts in rounds[: terms.window]:
        local.round(np.split(contexts, np.cumsum(widths)[:-1], axis=1))
    _say(f"d = {given.dim}, K = {given.arms}, {given.participants} participants; LinTS, one arm")
    _say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {given.blocks} blocks of {BLOCK}")
    for role in ("plain", "A", "B", "participants", "dealer"):
        _say(f"{role:>12}: {np.median(spent[role]):8.0f} µs of processor time, median of blocks")
    low, high = min(ratios), max(ratios)
    _say(f"A + B over plain: {np.median(ratios):.1f} ({low:.1f} to {high:.1f})")
    for way, size in sizes.items():
        _say(f"{way:>12}: {size / terms.window / 1024:8.1f} KiB for each decision and reward")


def _block(local: TimedShares, plain: vfb.Bandit, rounds: list[Matrix]) -> dict[str, float]:
    clock = local.clock = Clock()
    cuts = np.cumsum(local.terms.widths)[:-1]
    for contexts in rounds:
        local.round(np.split(contexts, cuts, axis=1))

    def play() -> None:
        for contexts in rounds:
            plain.reward(plain.decide(contexts), REWARD)

    clock.run("plain", play)
    return dict(clock.spent)


def _counter(sizes: Counter[str]) -> Callable[[str, str, Message], None]:
    names = {
        "Contribution": "to A",
        "Fold": "fold",
        "Folded": "fold",
        **dict.fromkeys(("Recall", "Recalled", "Whiten", "Whitened"), "reward"),
        **dict.fromkeys(("Learn", "Learnt", "Settle", "Settled"), "reward"),
        **dict.fromkeys(("DecisionDeal", "RewardDeal", "FoldDeal"), "offline"),
    }

    def count(sender: str, receiver: str, message: Message) -> None:
        del sender, receiver
        sizes[names.get(type(message).__name__, "decision")] += message.size_bytes

    return count


def _contexts(dim: int, n_arms: int) -> list[Matrix]:
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((BLOCK, n_arms, dim))
    return list(rows / np.linalg.norm(rows, axis=2, keepdims=True))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main()
