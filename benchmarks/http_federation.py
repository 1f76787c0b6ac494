"""A federation whose active participant serves HTTP, as its users would run it.

Processes of their own over mutual TLS, API keys, and a log in SQLite on a real disk.
"""

import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

from benchmarks.http_load import Load
from benchmarks.loopback_tls import HOST
from vfbandits.demo.local import LocalFederation, Plan
from vfbandits.demo.rehearsal import Town
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key
from vfbandits.protocol.roster import Terms

N_USERS = 64
CONNECT_S = 60.0
ACTIVE = "shop"
KEYS = "keys.jsonl"
PROXY = "127.0.0.2"  # an address of this machine that is trusted
CAMPAIGN = "news"
# One caller sends all of the load, which is more than a caller is let send by default.
RATE = BURST = 1e6


class Served(NamedTuple):
    """A running federation: how it is called, its keys, and the process that is called."""

    load: Load
    keys: Path
    pid: int

    @property
    def by_proxy(self) -> Load:
        """Calls that a proxy passes on."""
        headers = "x-forwarded-for: 192.0.2.7\r\nx-forwarded-proto: https\r\n"
        return replace(self.load, headers=headers, source=PROXY)

    @property
    def in_campaign(self) -> Load:
        """Calls for a campaign that is named in the path."""
        return replace(self.load, base=f"/v1/campaigns/{CAMPAIGN}")


@contextmanager
def served(
    folder: Path, widths: Mapping[str, int], *, n_arms: int, mask: str, connected: bool
) -> Iterator[Served]:
    """A running federation; unless ``connected`` nobody else comes."""
    http_port, port = free_ports()
    town = Town.invent(widths, n_users=N_USERS, n_arms=n_arms, seed=0)
    features = {name: town.write_features(name, folder / f"{name}.parquet") for name in widths}
    limits = f"rate = {RATE}\nburst = {BURST}\n"
    tables = (
        f'[http]\naddress = "{HOST}:{http_port}"\nkeys = "{KEYS}"\n{limits}'
        f'trusted_proxies = ["{PROXY}/32"]\n[campaigns.{CAMPAIGN}]\n'
    )
    plan = Plan(
        widths,
        Terms(mask, "plain", "per_arm"),
        features,
        patience="deadline_s = 10.0\n",
        tables=tables,
    )
    home = folder / "federation"
    home.mkdir()
    local = LocalFederation(home, plan, port=port)
    key = make_key("application", scopes=["rank", "reward", "read"])
    add_key(home / ACTIVE / KEYS, key.record)
    try:
        local.start(*(widths if connected else (ACTIVE,)))
        if connected:
            wait_until_all_contribute(http_port, key.text)
        load = Load(http_port, town.users, town.arms, key.text)
        yield Served(load, home / ACTIVE / KEYS, local.processes[ACTIVE].pid)
    finally:
        local.stop_all()


def wait_until_all_contribute(port: int, key: str) -> None:
    """Wait until every participant is connected."""
    limit = time.monotonic() + CONNECT_S
    connection = HTTPConnection(HOST, port, timeout=CONNECT_S)
    while time.monotonic() < limit:
        connection.request("GET", "/v1/model", headers={"authorization": f"Bearer {key}"})
        seen = json.loads(connection.getresponse().read())
        if all(one["connected"] for one in seen["participants"]):
            connection.close()
            return
        time.sleep(0.02)
    raise TimeoutError("not all participants connected")


def free_ports() -> tuple[int, int]:
    """Two ports that no process listens on now."""
    with socket.create_server((HOST, 0)) as one, socket.create_server((HOST, 0)) as other:
        return int(one.getsockname()[1]), int(other.getsockname()[1])
