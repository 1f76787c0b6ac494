"""A PostgreSQL server of our own, which syncs its commits to the disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location

from benchmarks.process import ROOT


@contextmanager
def postgres_url() -> Iterator[str]:
    """The URL of a new server; it is the one that the tests use, and ends with this block."""
    spec = spec_from_file_location("servers", ROOT / "tests" / "servers.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError("tests/servers.py")
    servers = module_from_spec(spec)
    spec.loader.exec_module(servers)
    server = servers.Postgres(is_durable=True)
    try:
        yield str(server.url).replace("+psycopg", "")
    finally:
        server.discard()
