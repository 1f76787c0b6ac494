"""The same federation served by one process, and by a trainer with a ranker; processes of both.

PostgreSQL keeps the journal of either, mutual TLS is between participants, and applications have
API keys.  ``usage`` is what the operating system counts for each process, so that a machine that
others share does not change it.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path

import psycopg

from benchmarks.http_federation import (
    ACTIVE,
    BURST,
    CONNECT_S,
    KEYS,
    N_USERS,
    RATE,
    free_ports,
    wait_until_all_contribute,
)
from benchmarks.http_load import Load
from benchmarks.loopback_tls import HOST
from benchmarks.process import ONE_THREAD
from vfbandits.demo.local import LocalFederation, Plan
from vfbandits.demo.rehearsal import Town
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key
from vfbandits.pki.member import server_name, tls_files
from vfbandits.protocol.application import StatusRequest
from vfbandits.protocol.roster import APPLICATION, Terms
from vfbandits.transport.rpc.application import ApplicationClient

JOURNAL = "VFB_BENCHMARK_JOURNAL"
LEADER, RANKER, DATABASE = "leader", "ranker", "postgresql"
ONE = {LEADER: "both"}
TWO = {LEADER: "trainer", RANKER: "ranker"}
STOP_S = 30.0
_TICKS = os.sysconf("SC_CLK_TCK")
_UTIME, _STIME = 11, 12  # in /proc/pid/stat, behind the name of the program


@dataclass(frozen=True, slots=True)
class Scaled:
    """A running federation: how it is called, and the processes that serve it by name."""

    load: Load
    pids: Mapping[str, int]
    target: str = field(repr=False)
    local: LocalFederation = field(repr=False)

    def usage(self) -> dict[str, float]:
        """CPU seconds of each process since it began; the database's are those of its backends."""
        seconds = {name: cpu_s(pid) for name, pid in self.pids.items()}
        sql = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> %s"
        with psycopg.connect(self.target, autocommit=True) as connection:
            own = connection.info.backend_pid
            backends = connection.execute(sql, (own,)).fetchall()
        return {**seconds, DATABASE: sum(cpu_s(int(pid)) for (pid,) in backends)}

    def n_rounds(self) -> int:
        """How often the passive participants were asked so far."""
        document = asyncio.run(self._status())
        facts = [facts for name, facts in document["participants"].items() if name != ACTIVE]
        return max(int(one.get("asks", 0)) for one in facts)

    def wait_until_taken(self) -> None:
        """Until the leader has taken everything from the inbox."""
        limit = time.monotonic() + CONNECT_S
        sql = "SELECT EXISTS (SELECT FROM vfb_inbox WHERE taken IS NULL)"
        with psycopg.connect(self.target, autocommit=True) as connection:
            while connection.execute(sql).fetchall() == [(True,)]:
                if time.monotonic() > limit:
                    raise TimeoutError("the inbox was not taken in")
                time.sleep(0.02)

    async def _status(self) -> dict[str, dict[str, dict[str, float]]]:
        client = ApplicationClient(
            self.local.address,
            tls=tls_files(self.local.identity("app")),
            name="app",
            role=APPLICATION,
            server_name=server_name(self.local.roster),
        )
        try:
            reply = await client.status(StatusRequest(), timeout_s=CONNECT_S)
        finally:
            await client.close()
        found: dict[str, dict[str, dict[str, float]]] = json.loads(reply.document)
        return found


def cpu_s(pid: int) -> float:
    """User and system time of a process with all its threads, those that have ended included.

    >>> before = cpu_s(os.getpid())
    >>> _ = sum(range(3_000_000))
    >>> cpu_s(os.getpid()) > before
    True
    """
    facts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(facts[_UTIME]) + int(facts[_STIME])) / _TICKS


@contextmanager
def scaled(
    folder: Path, widths: Mapping[str, int], *, n_arms: int, roles: Mapping[str, str], target: str
) -> Iterator[Scaled]:
    """A running federation; ``roles`` are those of the active participant's processes.

    Applications call the last of them.
    """
    port, _ = free_ports()
    town = Town.invent(widths, n_users=N_USERS, n_arms=n_arms, seed=0)
    features = {name: town.write_features(name, folder / f"{name}.parquet") for name in widths}
    limits = f"rate = {RATE}\nburst = {BURST}\n"
    plan = Plan(
        widths,
        Terms("dense", "plain", "per_arm"),
        features,
        patience="deadline_s = 10.0\n",
        tables=f'[http]\naddress = "{HOST}:0"\nkeys = "{KEYS}"\n{limits}',
    )
    home = folder / "federation"
    home.mkdir()
    local = LocalFederation(home, plan, port=port)
    key = make_key("application", scopes=["rank", "reward", "read"])
    add_key(home / ACTIVE / KEYS, key.record)
    with ExitStack() as stack:
        pids: dict[str, int] = {}
        for name, role in roles.items():
            http_port, _ = free_ports()
            config = _config(local, name, http_port)
            process = stack.enter_context(_serving(config, role, target, home / f"{name}.log"))
            _wait_until_ready(http_port, process)
            pids[name] = process.pid
        stack.callback(local.stop_all)
        passive = [name for name in widths if name != ACTIVE]
        for name in passive:  # one by one: a busy machine has each ready in time
            local.start(name)
        wait_until_all_contribute(http_port, key.text)
        pids |= {name: local.processes[name].pid for name in passive}
        load = Load(http_port, town.users, town.arms, key.text)
        yield Scaled(load, pids, target, local)


@contextmanager
def database(url: str, name: str) -> Iterator[str]:
    """The URL of a new database on this server."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    yield f"{url.rsplit('/', 1)[0]}/{name}"


def _config(local: LocalFederation, name: str, http_port: int) -> Path:
    """A file for one process of the active participant, with an HTTP port of its own."""
    path = local.config(ACTIVE).with_name(f"{name}.toml")
    text = local.config(ACTIVE).read_text(encoding="utf-8")
    text = text.replace(f'"{HOST}:0"', f'"{HOST}:{http_port}"')
    path.write_text(f'journal_target = "env:{JOURNAL}"\n{text}', encoding="utf-8")
    return path


@contextmanager
def _serving(
    config: Path, role: str, target: str, log: Path
) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "vfbandits.cli.serve", "active", "--role", role,
               "--config", str(config)]  # fmt: skip
    with log.open("ab") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, env={**os.environ, **ONE_THREAD, JOURNAL: target}
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(port: int, process: "subprocess.Popen[bytes]") -> None:
    limit = time.monotonic() + CONNECT_S
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise ChildProcessError(f"a process ended with code {process.returncode}")
        connection = HTTPConnection(HOST, port, timeout=CONNECT_S)
        try:
            connection.request("GET", "/readyz")
            if connection.getresponse().status == 200:
                return
        except ConnectionError:
            pass  # it does not listen yet
        finally:
            connection.close()
        time.sleep(0.05)
    raise TimeoutError("a process was not ready in time")
