"""Ports for servers that tests start: no other process is given them meanwhile.

The system gives a port to each connection that is made, from a range that begins at 32768 on Linux.
A port of that range that was free a moment ago can be in use when a server wants to have it.
"""

import itertools
import os
import random
import socket

FIRST, LAST = 10_000, 32_000
MAX_WORKERS = 16


def _own():
    """Ports of this worker, again and again; another run on the same machine starts elsewhere."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    own = range(FIRST + int(name.removeprefix("gw")) % MAX_WORKERS, LAST, MAX_WORKERS)
    start = random.SystemRandom().randrange(len(own))
    return itertools.islice(itertools.cycle(own), start, None)


_ports = _own()


def free_port():
    """A loopback port that no process listens on, and that no connection is given."""
    return next(port for port in _ports if _is_free(port))


def _is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
