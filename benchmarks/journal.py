"""Time the journals: ``python -m benchmarks.journal``.

* Decisions and rewards of a bandit behind SQLite, masked contexts of 0.8 KB, group commit: plain
  and encrypted.
* ``append`` into PostgreSQL beside a bare COPY and executemany of the same rows, in batches of two
  sizes; the bar is against the fastest of them.
* A restart from the last snapshot of a journal of a million records, on both.
* Encoding and decoding one decision, and one reward: figures without a bar.

The server syncs its commits to the disk, as SQLite does.  The exit code is 1 if a bar is missed.
"""

import argparse
import json
import os
import sys
import tempfile
import time
import timeit
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.bare_postgres import OURS, compare
from benchmarks.bars import Bar
from benchmarks.durable_load import DIM, events_per_second
from benchmarks.long_log import make_bandit, write_long_log
from benchmarks.postgres_server import postgres_url
from benchmarks.process import ROOT
from vfbandits.campaign.events import Decided, Rewarded
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.open import open_journal
from vfbandits.journal.record import decode, encode
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.serving.durable import DurableBandit
from vfbandits.simulate.threads import one_thread

OUT = ROOT / "out" / "benchmarks"
MIN_EVENTS = 5_000.0
MIN_SHARE = 0.5
MAX_RESTART_S = 5.0
LONG = 1_000_000
BATCHES = {32: 150, 500: 20}


def main() -> None:
    """Measure, write, print, and exit by the bars."""
    argparse.ArgumentParser(prog="python -m benchmarks.journal").parse_args()
    console = Console()
    OUT.mkdir(parents=True, exist_ok=True)
    figures: dict[str, object] = {"load at the start": os.getloadavg()}
    bars: list[Bar] = []
    with (
        one_thread(),
        tempfile.TemporaryDirectory(dir=OUT) as folder,
        postgres_url() as url,
        console.status("") as status,
    ):
        status.update("records")
        figures["records, µs"] = record_times()
        status.update("a bandit behind SQLite")
        bars += sqlite_bars(Path(folder), figures)
        status.update("PostgreSQL beside a bare COPY")
        bars += postgres_bars(url, figures)
        status.update(f"a journal of {LONG:,} records")
        bars += restart_bars(Path(folder), url, figures)
    figures["bars"] = [{**asdict(bar), "verdict": bar.verdict} for bar in bars]
    path = OUT / "journal.json"
    path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for bar in bars:
        console.print(
            f"{bar.name}: {bar.measured:,.2f} (bound {bar.sense} {bar.bound:,g}): {bar.verdict}"
            + (f"  [{bar.detail}]" if bar.detail else ""),
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    console.print(f"records, µs: {figures['records, µs']}", soft_wrap=True)
    console.print(str(path), soft_wrap=True)
    sys.exit(any(bar.verdict != "pass" for bar in bars))


def record_times(*, number: int = 20_000, repetitions: int = 5) -> dict[str, float]:
    """Microseconds for one record without encryption; the fastest of several runs."""
    decided = Decided(
        "6b1f3c7a-0001", "arm-3", 3, np.linspace(-1.0, 1.0, DIM), probability=0.25,
        contributors=("shop", "bank", "news"), epoch=1, user="u-17", at=1.7e9, due=1.7e9 + 60.0,
        answer=bytes(70), seconds=0.001,
    )  # fmt: skip
    times: dict[str, float] = {}
    for event in (decided, Rewarded(decided.event_id, 1.0, 1.7e9, "r-1")):
        record, kind = encode(event), type(event).__name__
        for deed, call in (
            ("encode", partial(encode, event)),
            ("decode", partial(decode, record, 1)),
        ):
            fastest = min(timeit.repeat(call, number=number, repeat=repetitions))
            times[f"{deed} {kind}"] = round(fastest / number * 1e6, 2)
    return times


def sqlite_bars(folder: Path, figures: dict[str, object], *, seconds: float = 5.0) -> list[Bar]:
    """Events per second through the whole durable bandit."""
    bars = []
    for name, key in (("plain", None), ("encrypted", JournalKey.generate())):
        journal = SqliteJournal(folder / f"{name}.db", key=key)
        rate, per_commit = events_per_second(journal, seconds=seconds)
        figures[f"sqlite, {name}"] = {"events_per_s": rate, "events_per_commit": per_commit}
        detail = f"{per_commit:.0f} events a commit"
        bars.append(Bar(f"SQLite, {name}: records a second", "≥", MIN_EVENTS, rate, detail))
    return bars


def postgres_bars(url: str, figures: dict[str, object], *, repetitions: int = 5) -> list[Bar]:
    """Ours over the fastest bare way."""
    bars = []
    for batch, n_batches in BATCHES.items():
        rates = compare(url, batch=batch, n_batches=n_batches, repetitions=repetitions)
        figures[f"postgres, batches of {batch}"] = rates
        rivals = {name: rate for name, rate in rates.items() if name != OURS}
        best = max(rivals, key=lambda name: rivals[name])
        detail = ", ".join(f"{name} {rate:,.0f}/s" for name, rate in rates.items())
        share = rates[OURS] / rates[best]
        name = f"PostgreSQL, batches of {batch}: fraction of a bare {best}"
        bars.append(Bar(name, "≥", MIN_SHARE, share, detail))
    return bars


def restart_bars(
    folder: Path, url: str, figures: dict[str, object], *, n_events: int = LONG
) -> list[Bar]:
    """Seconds from nothing to a bandit that can decide."""
    targets = {"SQLite": str(folder / "long.db"), "PostgreSQL": url}
    journals = [open_journal(target) for target in targets.values()]
    model = write_long_log(journals, n_events=n_events, dim=DIM)
    for journal in journals:
        journal.close()
    wanted = model.bandit.states[None]
    bars = []
    for name, target in targets.items():
        start = time.perf_counter()
        bandit = DurableBandit.open(open_journal(target), lambda: make_bandit(DIM))
        seconds = time.perf_counter() - start
        state = bandit.bandit.states[None]
        if state.Lambda.tobytes() != wanted.Lambda.tobytes() or bandit.recovery.start is None:
            raise ValueError(f"{name} came back with another model")
        figures[f"restart, {name}"] = {"s": seconds, "replayed": bandit.recovery.replayed}
        detail = f"{bandit.recovery.replayed} events replayed"
        label = f"{name}: seconds to open a journal of {n_events:,} records"
        bars.append(Bar(label, "≤", MAX_RESTART_S, seconds, detail))
    return bars


if __name__ == "__main__":
    main()
