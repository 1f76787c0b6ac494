"""Half an hour of mixed load: the server's memory and file descriptors stay where they are.

``VFBANDITS_SOAK_MINUTES`` says how long: some minutes go by until all that is bounded is full,
such as the last decisions and the names that wait for their place in the log.  What was measured
stands in ``soak.csv`` of the test's folder, a line each two seconds.
"""

import json
import os
import random
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from http_load import SECOND_CAMPAIGN, SUMS, LostError, Wire, prefix
from http_world import HttpWorld

MINUTES = float(os.environ.get("VFBANDITS_SOAK_MINUTES", "30"))
EVERY_S = 2.0
WARM_UP = 0.4  # fraction of the time
# Bytes per call: a fast machine makes many more calls a minute.  A call makes two decisions on
# average; if each left 50 bytes, that would be 100.
MAX_GROWTH = 25.0
CALLS_A_CONNECTION = 500
# All of it is rewarded soon, so nothing may stay, however long a reward would be waited for.
PATIENT = "[campaigns.default]\nreward_wait_s = 86400.0\n"


class Shopper(threading.Thread):
    """Ranks, rewards, repeats, looks, and now and then asks for nonsense."""

    def __init__(self, number, world, stop, wrong):
        super().__init__(name=f"shopper-{number}", daemon=True)
        self._world, self._stopped, self._wrong = world, stop, wrong
        self._rng = random.Random(number)  # noqa: S311  (which call comes next)
        self._n = 0
        self.calls = Counter()

    def run(self):
        while not self._stopped.is_set():
            with closing(Wire(self._world.http_port)) as wire:
                try:
                    self.visit_often(wire)
                except LostError as error:
                    self._wrong.append(f"no answer: {error}")
                    return

    def visit_often(self, wire):
        for _ in range(CALLS_A_CONNECTION):
            self.visit(wire)
            if self._stopped.is_set():
                return

    def visit(self, wire):
        campaign = self._rng.choice(("default", SUMS))
        where = prefix(campaign)
        self._n += 1
        body = {
            "user": self._rng.choice(self._world.town.users),
            "arms": list(self._world.town.arms),
        }
        if self._rng.random() < 0.5:
            body["event_id"] = f"{self.name}-{self._n}"
        answer = self.expect(200, wire.post(f"{where}/rank", body))
        event_id = json.loads(answer)["event_id"]
        if campaign == "default" or self._rng.random() < 0.7:
            reward = {"value": self._rng.random()}
            self.expect(200, wire.post(f"{where}/events/{event_id}/reward", reward))
            if self._rng.random() < 0.2:
                self.expect(200, wire.post(f"{where}/events/{event_id}/reward", reward))
        self.sometimes(wire, where, body)

    def sometimes(self, wire, where, body):
        """Many at once, in one visit of five, and the rest of the interface, in one of fifty."""
        if self._rng.random() < 0.2:
            self.visit_together(wire, where, body)
        match self._rng.randrange(50):
            case 0:
                self.expect(200, wire.get("/metrics"))
            case 1:
                self.expect(200, wire.get(f"{where}/model"))
            case 2:
                self.expect(200, wire.get("/v1/dashboard"))
            case 3:
                self.expect(404, wire.get(f"{where}/events/never-{self._n}"))
            case 4:
                self.expect(400, wire.post(f"{where}/rank", b"{"))
            case 5:
                self.expect(422, wire.post(f"{where}/rank", {"user": f"u-{self._n}"}))
            case 6:
                self.expect(404, wire.get(f"/nothing/{self._n}"))
            case 7:
                self.expect(200, wire.get("/"))
            case 8 if "event_id" in body:
                self.expect(200, wire.get(f"{where}/events/{body['event_id']}"))

    def visit_together(self, wire, where, body):
        asked = {"user": body["user"], "arms": body["arms"]}
        answer = self.expect(200, wire.post(f"{where}/rank/batch", {"requests": [asked] * 20}))
        ranked = [result["answer"]["event_id"] for result in json.loads(answer)["results"]]
        rewards = [{"event_id": event_id, "value": 0.5} for event_id in ranked]
        self.expect(200, wire.post(f"{where}/rewards/batch", {"rewards": rewards}))

    def expect(self, wanted, came):
        status, answer = came
        self.calls[status] += 1
        if status != wanted and len(self._wrong) < 20:
            self._wrong.append(f"wanted {wanted}, got {status}: {answer[:300]!r}")
        return answer


def measure(pid):
    """Megabytes in memory, and open files."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    n_files = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, n_files


def soak(world, path):
    """Rows of minutes, megabytes, open files and calls so far."""
    stop, wrong = threading.Event(), []
    shoppers = [Shopper(number, world, stop, wrong) for number in range(4)]
    for shopper in shoppers:
        shopper.start()
    pid, started, rows = world.local.processes["shop"].pid, time.monotonic(), []
    with path.open("w") as file:
        while (minutes := (time.monotonic() - started) / 60.0) < MINUTES:
            calls = sum(sum(shopper.calls.values()) for shopper in shoppers)
            rows.append((minutes, *measure(pid), calls))
            file.write(",".join(f"{value:.4f}" for value in rows[-1]) + "\n")
            file.flush()
            time.sleep(EVERY_S)
    stop.set()
    for shopper in shoppers:
        shopper.join(30.0)
        assert not shopper.is_alive()
    assert wrong == []
    return np.array(rows)


@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60.0 + 300.0)
def test_memory_and_open_files_stay_flat_under_mixed_load(tmp_path):
    """Statistical: a line through the memory after a warm-up must be all but level."""
    with HttpWorld(
        tmp_path, tables=PATIENT + SECOND_CAMPAIGN, top="snapshot_every = 5000\n"
    ) as world:
        rows = soak(world, tmp_path / "soak.csv")
    steady = rows[rows[:, 0] > WARM_UP * MINUTES]
    growth = 1e6 * np.polyfit(steady[:, 3], steady[:, 1], 1)[0]
    print(f"{rows[-1, 3]:.0f} calls, {growth:+.1f} bytes per call, {rows[0, 1]:.0f} MB at first, "
          f"{steady[0, 1]:.0f} when warm, {steady[-1, 1]:.0f} at last")  # fmt: skip
    assert growth < MAX_GROWTH
    n_files = steady[:, 2]
    assert (
        abs(np.median(n_files[: len(n_files) // 2]) - np.median(n_files[len(n_files) // 2 :])) <= 2
    )
