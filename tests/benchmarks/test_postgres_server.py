"""The server of the benchmarks starts where pytest has not set a path."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import psycopg
from benchmarks.postgres_server import postgres_url

with postgres_url() as url, psycopg.connect(url) as connection:
    print(connection.execute("show synchronous_commit").fetchone()[0])
"""


def test_the_server_of_the_benchmarks_starts_outside_of_pytest():
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "on\n"
