"""What ``vfb align`` costs: two real processes over mutual TLS, half of the users in common.

Run as ``python -m benchmarks.align --users 1000000``.  Prints seconds from the start of the
processes to their end, their processor time, and the largest memory of each.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vfbandits.demo.local import LocalFederation, Plan
from vfbandits.protocol.roster import PSEUDONYMS, Terms

AIM_S, AIM_BYTES = 600.0, 4 << 30
AIM_USERS = 1_000_000


def main() -> None:
    """Measure one alignment, and compare it with the aim if it has the aim's size."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.align", description=__doc__)
    parser.add_argument("--users", type=int, default=50_000, help="users of each participant")
    n_users = parser.parse_args().users
    with tempfile.TemporaryDirectory() as folder:
        federation = _federation(Path(folder))
        for name, first in (("shop", 0), ("bank", n_users // 2)):
            users = (f"customer-{number:012d}" for number in range(first, first + n_users))
            (Path(folder) / f"{name}.txt").write_text("\n".join(users))
        started = time.perf_counter()
        load = os.getloadavg()[0]
        processes = [_start(federation, name) for name in ("shop", "bank")]
        peaks = [_peak_bytes(process) for process in processes]
        seconds = time.perf_counter() - started
        common = _common(processes)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = spent.ru_utime + spent.ru_stime
    if common != [n_users - n_users // 2] * 2:
        raise SystemExit(f"wanted {n_users - n_users // 2} common users, got {common}")
    _say(f"{n_users:,} by {n_users:,} users, {common[0]:,} in common")
    _say(f"{os.cpu_count()} cores, load {load:.2f} at the start")
    _say(f"{seconds:.1f} s, of which {cpu_s:.1f} s of processor time in both processes")
    _say(f"{1e6 * cpu_s / (2 * n_users):.0f} µs of processor time for each user")
    for name, peak in zip(("active", "passive"), peaks, strict=True):
        _say(f"{name}: at most {peak / 2**20:,.0f} MiB")
    if n_users >= AIM_USERS:
        is_met = seconds <= AIM_S and max(peaks) <= AIM_BYTES
        _say(f"aim of {AIM_S:.0f} s and {AIM_BYTES >> 30} GiB: {'met' if is_met else 'not met'}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _federation(folder: Path) -> LocalFederation:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    widths = {"shop": 1, "bank": 1}
    plan = Plan(widths, Terms(users=PSEUDONYMS), features={})
    return LocalFederation(folder, plan, port=port)


def _start(federation: LocalFederation, name: str) -> "subprocess.Popen[bytes]":
    users = federation.folder / f"{name}.txt"
    words = [
        "align", "--config", federation.config(name), "--users", users,
        "--out", federation.folder / "out" / name, "--json",
    ]  # fmt: skip
    command = [sys.executable, "-m", "vfbandits.cli.main", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


def _peak_bytes(process: "subprocess.Popen[bytes]") -> int:
    """Wait for the end of a process; returns the most memory that it had."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_maxrss * 1024


def _common(processes: "list[subprocess.Popen[bytes]]") -> list[int]:
    found = []
    for process in processes:
        if process.stdout is None or process.returncode:
            raise SystemExit(f"vfb align ended with code {process.returncode}")
        (peer,) = json.loads(process.stdout.read())["with"].values()
        process.stdout.close()
        found.append(peer["common"])
    return found


if __name__ == "__main__":
    main()
