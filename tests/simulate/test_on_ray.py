"""A real cluster of two nodes on this machine, with a worker killed under way."""

import json
import os
import subprocess
import sys

import pytest

from vfbandits.errors import SettingError
from vfbandits.simulate.on_ray import RayEngine

SCRIPT = """
import json, os, signal, sys, time
from pathlib import Path

import numpy as np
from ray.cluster_utils import Cluster

from vfbandits.simulate.contestant import line_up
from vfbandits.core.policy import LinTS, LinUCB
from vfbandits.simulate.on_ray import RayEngine
from vfbandits.simulate.pool import run_study
from vfbandits.simulate.study import Study
from vfbandits.simulate.world import WorldSettings, even_widths


def busy_workers():
    '''Processes of the cluster that are inside one of our tasks just now.'''
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title = (folder / "cmdline").read_text()
        except OSError:
            continue
        if title.startswith("ray::in_one_thread"):
            found.append(int(folder.name))
    return found


killed = []


def on_run(done, total):
    if not killed and done >= 1:
        for _ in range(200):
            workers = busy_workers()
            if workers:
                os.kill(workers[0], signal.SIGKILL)
                killed.append(workers[0])
                return
            time.sleep(0.01)


if __name__ == "__main__":
    study = Study(
        contestants=tuple(
            c for policy in (LinUCB(beta=0.5), LinTS(posterior_scale=0.01)) for c in line_up(policy)
        ),
        world=WorldSettings(even_widths(30, 3), n_arms=10),
        horizon=1500,
        n_seeds=2,
    )
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    nodes = len(cluster.list_all_nodes())
    on_ray = run_study(study, engine=RayEngine(cluster.address), on_run=on_run)
    cluster.shutdown()
    here = run_study(study, processes=2)
    same = all(
        a.tobytes() == b.tobytes() for a, b in zip(on_ray.curves, here.curves, strict=True)
    )
    print(json.dumps({"nodes": nodes, "killed": len(killed), "same": same,
                      "table": [str(row) for row in on_ray.table()] ==
                               [str(row) for row in here.table()]}))
"""


@pytest.mark.long
def test_a_cluster_of_two_nodes_that_loses_a_worker_gives_the_same_table_bit_for_bit(tmp_path):
    script = tmp_path / "on_ray.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer == {"nodes": 2, "killed": 1, "same": True, "table": True}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at '127.0.0.1:1'"),
        ("somewhere", "'auto' or host:port, got 'somewhere'"),
    ],
)
def test_an_address_where_no_cluster_answers_is_one_clear_error(address, message):
    with pytest.raises(SettingError, match=message):
        list(RayEngine(address).run(abs, [1]))
