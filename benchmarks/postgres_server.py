"""A PostgreSQL server of our own, which syncs its commits to the disk."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from benchmarks.process import ROOT

TESTS = str(ROOT / "tests")


@contextmanager
def postgres_url() -> Iterator[str]:
    """The URL of a new server; it is the one that the tests use, and ends with this block."""
    if TESTS not in sys.path:  # where its module finds those that it needs
        sys.path.append(TESTS)
    server = import_module("servers").Postgres(is_durable=True)
    try:
        yield str(server.url).replace("+psycopg", "")
    finally:
        server.discard()
