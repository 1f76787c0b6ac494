"""Time decisions on secret shares beside masked ones: ``python -m benchmarks.shares_services``.

Two federations of real processes over mutual TLS on loopback, one at protection level "mask" and
one at "shares", decide in turns, one decision at a time, as an application sees it.  Rewards are
learnt before the next decision is timed.  ``--delay-ms`` puts a proxy that delays bytes both ways
between each passive participant and the active one.  ``--case`` chooses policy and release.  The
exit code is 1 if a bar is missed.
"""

import argparse
import asyncio
import itertools
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from benchmarks.bars import Bar
from vfbandits.demo.local import LocalFederation, Plan
from vfbandits.demo.processes import free_ports
from vfbandits.demo.rehearsal import Town
from vfbandits.pki.member import server_name, tls_files
from vfbandits.protocol.application import DecideRequest, RewardRequest, StatusRequest
from vfbandits.protocol.roster import SharesRules, Terms
from vfbandits.transport.rpc.application import ApplicationClient

TIMEOUT_S = 30.0
LEVELS = ("mask", "shares")


class Case(NamedTuple):
    """A policy in the words of a settings file, the rules for it, and most of the mask's p50."""

    model: str
    rules: SharesRules
    max_ratio: float


_LINUCB = 'policy = "linucb"\nbeta = 0.5\n'
CASES = {
    "lints-arm": Case(
        'policy = "lints"\nposterior_scale = 0.1\n',
        SharesRules("bank", posterior_scale=0.1),
        6.0,
    ),
    "linucb-arm": Case(_LINUCB, SharesRules("bank", reads="widths", beta=0.5), 6.0),
    "linucb-statistics": Case(
        _LINUCB, SharesRules("bank", reads="widths", release="statistics"), 4.0
    ),
}


class Delay:
    """A port that passes bytes on to another one, each ``seconds`` later."""

    def __init__(self, target: int, seconds: float) -> None:
        self._target, self._seconds = target, seconds
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> "Delay":
        """Listens from the start."""
        return self

    def __exit__(self, *_: object) -> None:
        """Take no more connections; those that are open end with their processes."""
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target))
                except OSError:  # it does not listen yet; the participant tries again
                    near.close()
                    continue
                for one, other in ((near, far), (far, near)):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._pass_on(one, other)

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        """Two threads: one reads and notes when, the other writes when it is time."""
        waiting: deque[tuple[float, bytes]] = deque()
        there = threading.Semaphore(0)

        def read() -> None:
            data = b"-"
            while data:
                try:
                    data = one.recv(1 << 16)
                except OSError:
                    data = b""
                waiting.append((time.monotonic() + self._seconds, data))
                there.release()

        def write() -> None:
            with suppress(OSError):
                while there.acquire():
                    due, data = waiting.popleft()
                    time.sleep(max(0.0, due - time.monotonic()))
                    if not data:
                        other.shutdown(socket.SHUT_WR)
                        return
                    other.sendall(data)

        for work in (read, write):
            threading.Thread(target=work, daemon=True).start()


class Contestant:
    """One federation, and an application that times its decisions."""

    def __init__(self, folder: Path, level: str, case: Case, town: Town, *, windows: int) -> None:
        self.level, self.town = level, town
        rules = replace(case.rules, max_arms=len(town.arms))
        terms = Terms(bound=1.0, shares=rules if level == "shares" else None)
        features = {n: town.write_features(n, folder / f"{n}.parquet") for n in town.widths}
        plan = Plan(
            town.widths,
            terms,
            features,
            model=f"{case.model}seed = 0\n",
            patience="deadline_s = 2.0\n",
            windows=windows,
        )
        self.federation = LocalFederation(folder, plan, port=free_ports(1)[0])
        self.seconds: list[float] = []
        self._number = 0

    def delay(self, stack: ExitStack, seconds: float) -> None:
        """Put a delay between the active participant and each of the others."""
        address = self.federation.address
        for name in [*self.town.widths][1:]:
            port = stack.enter_context(Delay(int(address.rsplit(":", 1)[1]), seconds)).port
            config = self.federation.config(name)
            text = config.read_text(encoding="utf-8").replace(address, f"127.0.0.1:{port}")
            config.write_text(text, encoding="utf-8")

    async def open(self) -> None:
        """Wait until all participants are there."""
        self.client = ApplicationClient(
            self.federation.address,
            tls=tls_files(self.federation.identity("app")),
            name="app",
            role="application",
            server_name=server_name(self.federation.roster),
        )
        while not await self._is_complete():  # noqa: ASYNC110  (in other processes)
            await asyncio.sleep(0.05)

    async def _is_complete(self) -> bool:
        participants = (await self._status())["participants"].values()
        return all(one["connected"] for one in participants)

    async def play(self, rounds: int, *, is_timed: bool) -> None:
        """Decide and reward; a decision is timed when all rewards before it are learnt."""
        for _ in range(rounds):
            user = self.town.users[self._number % len(self.town.users)]
            self._number += 1
            started = time.perf_counter()
            reply = await self.client.decide(
                DecideRequest(user, self.town.arms), timeout_s=TIMEOUT_S
            )
            if is_timed:
                self.seconds.append(time.perf_counter() - started)
                if len(reply.contributors) < len(self.town.widths):
                    raise SystemExit(f"a decision had only {', '.join(reply.contributors)}")
            await self.client.reward(RewardRequest(reply.event_id, 0.3), timeout_s=TIMEOUT_S)
            while (await self._status()).get("shares", {}).get("queued"):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def _status(self) -> dict:  # type: ignore[type-arg]  # a document
        reply = await self.client.status(StatusRequest(), timeout_s=TIMEOUT_S)
        return json.loads(reply.document)  # type: ignore[no-any-return]


async def race(contestants: list[Contestant], *, turns: int, rounds: int) -> None:
    """Play in turns, after one turn to warm up."""
    for one in contestants:
        await one.open()
        await one.play(rounds, is_timed=False)
    for turn in range(turns):
        for one in contestants if turn % 2 else reversed(contestants):  # nobody always first
            await one.play(rounds, is_timed=True)
    for one in contestants:
        await one.client.close()


def measure(
    case: Case, *, dim: int, arms: int, turns: int, rounds: int, delay_s: float
) -> dict[str, float]:
    """The p50 of a decision in seconds, by level."""
    widths = {"shop": dim - dim // 2, "bank": dim // 2}
    town = Town.invent(widths, n_users=50, n_arms=arms, seed=0)
    windows = (turns + 2) * rounds // 16 + 8
    with ExitStack() as stack:
        contestants = []
        for level in LEVELS:
            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="vfb-"))
            contestants.append(Contestant(Path(home), level, case, town, windows=windows))
            if delay_s:
                contestants[-1].delay(stack, delay_s)
            stack.enter_context(contestants[-1].federation)
        asyncio.run(race(contestants, turns=turns, rounds=rounds))
    return {one.level: float(np.median(one.seconds)) for one in contestants}


def main() -> None:
    """Measure, print, and exit by the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--arms", type=int, default=10)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--delay-ms", type=float, nargs="*", default=[0.0])
    parser.add_argument("--case", choices=CASES, nargs="*", default=[*CASES])
    asked = parser.parse_args()
    is_missed, console = False, Console()
    for delay_ms, name in itertools.product(asked.delay_ms, asked.case):
        case = CASES[name]
        seen = measure(
            case,
            dim=asked.dim,
            arms=asked.arms,
            turns=asked.turns,
            rounds=asked.rounds,
            delay_s=delay_ms / 1e3,
        )
        ratio = seen["shares"] / seen["mask"]
        where = f"{name}, d={asked.dim}, K={asked.arms}, {delay_ms:g} ms each way"
        times = ", ".join(f"{level} {1e3 * seen[level]:.2f} ms" for level in LEVELS)
        load = os.getloadavg()[0]
        console.print(f"{where}: {times}, ratio {ratio:.2f}, load {load:.1f}", soft_wrap=True)
        if not delay_ms:
            bar = Bar("p50 of a decision, shares over mask", "≤", case.max_ratio, ratio)
            console.print(f"{bar.name}: {bar.sense} {bar.bound:g}, {ratio:.2f}: {bar.verdict}")
            is_missed = is_missed or bar.verdict == "FAIL"
    sys.exit(is_missed)


if __name__ == "__main__":
    main()
