"""Count what a reader of the code walks through: ``python -m benchmarks.journey``.

Five journeys, each traced in a real run: ``Federation.decide`` and ``reward`` in this process, and
in the process of an active participant with HTTP, two passive participants and a journal in SQLite,
``POST /v1/rank``, the reward of an event, the start, and ``vfb masks rotate``.  All but the start
are warm.  Only functions in ``src/vfbandits`` count, on the active participant's side.

* functions: distinct functions and methods that were called; imports do not count.
* files: distinct files that these functions are in.
* changes of package: how often a call is in another package directly below ``vfbandits`` than the
  call before it in the same thread.  A coroutine that goes on after an ``await`` is no new call.
* shapes: distinct classes of ``vfbandits`` of which an instance was made during the journey and was
  an argument or a result of one of these functions, alone or in a list, tuple, set or dict.
  "Between packages" are those that functions of at least two packages took or returned.

A request is traced from before it is sent until ``SETTLE_S`` after its answer.  Background work
that falls into that time only adds calls, so each journey but the start is traced ``REPEATS``
times, and the one with the fewest calls counts.  The exit code is 1 if a bar is missed.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Column, Table

import vfbandits as vfb
from benchmarks.bars import Bar
from benchmarks.http_federation import ACTIVE, KEYS, free_ports, wait_until_all_contribute
from benchmarks.journey_trace import Call, Journey, Tracer
from benchmarks.loopback_tls import HOST
from benchmarks.losslessness import OUT
from benchmarks.process import ONE_THREAD, ROOT, WorkerDiedError
from vfbandits.admin.mask_change import rotate
from vfbandits.admin.session import connect
from vfbandits.demo.local import LocalFederation, Plan
from vfbandits.demo.rehearsal import Town
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key
from vfbandits.protocol.roster import OPERATOR, Terms

WIDTHS = {ACTIVE: 4, "bank": 3, "news": 3}
N_ARMS, N_USERS = 5, 16
WARM_UPS, REPEATS = 20, 5
SETTLE_S = 0.05
ANSWER_S, STOP_S = 120.0, 30.0
DECIDE, REWARD = "Federation.decide", "Federation.reward"
RANK, HTTP_REWARD = "POST /v1/rank", "HTTP reward"
START, ROTATE = "start with HTTP", "masks rotate"
MAX_FILES, MAX_CHANGES = 55, 45


def main() -> None:
    """Trace, write, print, and exit by the bars."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.journey")
    parser.add_argument("--files", action="store_true", help="Rank the files of each journey.")
    asked = parser.parse_args()
    console = Console()
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUT) as folder, console.status("tracing five journeys"):
        journeys = in_this_process() | of_a_federation(Path(folder))
    bars = bars_of(journeys)
    verdicts = [{**asdict(bar), "verdict": bar.verdict} for bar in bars]
    figures = {name: journey.figures() for name, journey in journeys.items()}
    path = OUT / "journey.json"
    document = {"bars": verdicts, "figures": figures}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    show(console, bars, journeys, files=asked.files)
    console.print(str(path), soft_wrap=True)
    sys.exit(any(bar.verdict != "pass" for bar in bars))


def bars_of(journeys: Mapping[str, Journey]) -> list[Bar]:
    """Aims for a rank request, not limits (docs/decisions.md)."""
    rank = journeys[RANK]
    return [
        Bar(f"{RANK}: files", "≤", MAX_FILES, rank.files),
        Bar(f"{RANK}: changes of package", "≤", MAX_CHANGES, rank.changes_of_package),
    ]


def in_this_process() -> dict[str, Journey]:
    """A decision and its reward with all participants in one process."""
    federation = vfb.Federation(vfb.LinUCB(beta=0.5), widths=WIDTHS)
    rng = np.random.default_rng(0)
    contexts = {name: rng.standard_normal((N_ARMS, width)) for name, width in WIDTHS.items()}
    for _ in range(WARM_UPS):
        federation.reward(federation.decide(contexts), 1.0)
    decision = federation.decide(contexts)
    return {
        DECIDE: _traced_here(lambda: federation.decide(contexts)),
        REWARD: _traced_here(lambda: federation.reward(decision, 1.0)),
    }


def _traced_here(deed: Callable[[], object]) -> Journey:
    tracer = Tracer()
    tracer.begin()
    sys.setprofile(tracer)
    try:
        deed()
    finally:
        sys.setprofile(None)
    return tracer.end()


def of_a_federation(folder: Path) -> dict[str, Journey]:
    """The four journeys through the process of an active participant."""
    with running(folder) as federation:
        for number in range(WARM_UPS):
            federation.reward(federation.rank(number))
        users = range(REPEATS)
        events = [federation.rank(user) for user in users]
        return {
            RANK: fewest_calls(
                [federation.traced(partial(federation.rank, user)) for user in users]
            ),
            HTTP_REWARD: fewest_calls(
                [federation.traced(partial(federation.reward, event)) for event in events]
            ),
            START: federation.start,
            ROTATE: fewest_calls([federation.traced(federation.rotate) for _ in users]),
        }


def fewest_calls(journeys: list[Journey]) -> Journey:
    """The journey that background work disturbed least."""
    return min(journeys, key=lambda journey: len(journey.calls))


class TracedActive:
    """The process of the active participant, started by ``benchmarks.journey_active``."""

    def __init__(self, config: Path, log: Path, folder: Path) -> None:
        self._path = folder / "calls.json"
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.journey_active", "active", "--config", config],
                cwd=ROOT,
                env={**os.environ, **ONE_THREAD},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._log = log

    def started(self) -> Journey:
        """Wait until it is ready; returns the journey of its start."""
        self._hear("ready")
        return self.end()

    def begin(self) -> None:
        """Begin a journey."""
        self._tell("begin")

    def end(self) -> Journey:
        """End a journey."""
        self._tell("end")
        document = json.loads(self._path.read_text(encoding="utf-8"))
        return Journey([Call(*call) for call in document["calls"]], document["rooms_by_class"])

    def stop(self) -> None:
        """Ask the process to end, and wait."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def _tell(self, word: str) -> None:
        if self._process.stdin is None:
            raise WorkerDiedError("the process has no standard input")
        self._process.stdin.write(f"{word} {self._path}\n")
        self._process.stdin.flush()
        self._hear(word)

    def _hear(self, word: str) -> None:
        line = "" if self._process.stdout is None else self._process.stdout.readline()
        if not line.startswith(word):
            end = self._log.read_text(encoding="utf-8", errors="replace")[-2_000:]
            raise WorkerDiedError(f"wanted a line that begins with {word!r}, got {line!r}:\n{end}")


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """A federation whose active participant is traced, and an application of it."""

    active: TracedActive
    start: Journey
    operator: Path
    town: Town
    key: str = field(repr=False)
    connection: HTTPConnection = field(repr=False)

    def traced(self, deed: Callable[[], object]) -> Journey:
        """What the active participant does for ``deed``."""
        time.sleep(SETTLE_S)
        self.active.begin()
        deed()
        time.sleep(SETTLE_S)
        return self.active.end()

    def rank(self, number: int) -> str:
        """Rank the arms for one of the users; returns the event's id."""
        user = self.town.users[number % N_USERS]
        answer = self._post("/v1/rank", {"user": user, "arms": list(self.town.arms)})
        return str(answer["event_id"])

    def reward(self, event_id: str) -> None:
        """Give an event its reward."""
        self._post(f"/v1/events/{event_id}/reward", {"value": 1.0})

    def rotate(self) -> None:
        """Change the masks, as ``vfb masks rotate`` does once it has read its file."""

        async def change() -> None:
            async with connect(self.operator, roles=(OPERATOR,)) as session:
                await rotate(session, envelopes=None)

        asyncio.run(change())

    def _post(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        headers = {"authorization": f"Bearer {self.key}", "content-type": "application/json"}
        self.connection.request("POST", path, json.dumps(body), headers)
        response = self.connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise ConnectionError(
                f"POST {path}: wanted status 200, got {response.status}: {text!r}"
            )
        answer: dict[str, object] = json.loads(text)
        return answer


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    """A federation of three processes, all of them connected."""
    http_port, port = free_ports()
    town = Town.invent(WIDTHS, n_users=N_USERS, n_arms=N_ARMS, seed=0)
    features = {name: town.write_features(name, folder / f"{name}.parquet") for name in WIDTHS}
    plan = Plan(
        WIDTHS,
        Terms("blockwise", "plain", "per_arm"),
        features,
        patience="deadline_s = 10.0\n",
        tables=f'[http]\naddress = "{HOST}:{http_port}"\nkeys = "{KEYS}"\n',
    )
    local = LocalFederation(folder, plan, port=port)
    key = make_key("application", scopes=["rank", "reward", "read"])
    add_key(folder / ACTIVE / KEYS, key.record)
    active = TracedActive(local.config(ACTIVE), local.log_path(ACTIVE), folder)
    try:
        start = active.started()
        local.start(*(name for name in WIDTHS if name != ACTIVE))
        wait_until_all_contribute(http_port, key.text)
        connection = HTTPConnection(HOST, http_port, timeout=ANSWER_S)
        yield Running(active, start, local.config("operator"), town, key.text, connection)
        connection.close()
    finally:
        local.stop_all()
        active.stop()


def show(
    console: Console, bars: list[Bar], journeys: Mapping[str, Journey], *, files: bool
) -> None:
    """Bars, then the table, then the files if they are asked for."""
    verdicts = Table("bar", "bound", "measured", "")
    for bar in bars:
        verdicts.add_row(bar.name, f"{bar.sense} {bar.bound:g}", f"{bar.measured:g}", bar.verdict)
    console.print(verdicts)
    heads = ("functions", "files", "changes of package", "shapes", "between packages")
    table = Table(Column("journey", no_wrap=True), *heads)
    for name, journey in journeys.items():
        counts = (journey.functions, journey.files, journey.changes_of_package)
        shapes = (len(journey.shapes), len(journey.shapes_between_packages))
        table.add_row(name, *map(str, counts + shapes))
    console.print(table)
    for name, journey in journeys.items() if files else ():
        calls = journey.calls_by_file()
        ranked = Table("file", "entries", "calls", title=name, title_justify="left")
        for file, entries in journey.entries_by_file().most_common():
            ranked.add_row(file, str(entries), str(calls[file]))
        console.print(ranked)
        console.print(f"shapes: {', '.join(journey.shapes) or 'none'}", soft_wrap=True)


if __name__ == "__main__":
    main()
