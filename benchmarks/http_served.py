"""A federation of the checkout that this is started in, until its input ends.

``python -P .../http_served.py FOLDER``, with a checkout as the current folder and on the path of
modules: ``benchmarks.http`` lets an older version play beside this one.  It prints a line of JSON,
how the active participant is called and which process that is.
"""

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.http import N_ARMS, NARROW
from benchmarks.http_federation import served


def children() -> list[int]:
    """The processes that this one has started."""
    threads = Path(f"/proc/{os.getpid()}/task").iterdir()
    return [int(pid) for thread in threads for pid in (thread / "children").read_text().split()]


def main() -> None:
    """Serve, and say how to call."""
    folder = Path(sys.argv[1])
    with served(folder, NARROW, n_arms=N_ARMS, mask="dense", connected=False) as running:
        (pid,) = children()
        print(json.dumps({"load": asdict(running.load), "pid": pid}), flush=True)  # noqa: T201
        sys.stdin.read()


if __name__ == "__main__":
    main()
