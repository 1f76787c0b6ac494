"""The engine of a feature table: read-only for SQLite, and with a limit on every wait."""

import math
from pathlib import Path
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from vfbandits.errors import FeatureError
from vfbandits.settings.address import describe_url

PSYCOPG = ("psycopg", "psycopg2")


def build_engine(url: str, *, timeout_s: float) -> sa.Engine:
    """An engine that has not connected yet; its errors and its repr hold no password."""
    try:
        parsed = _read_only(sa.make_url(url))
        return sa.create_engine(
            parsed,
            connect_args=_connect_args(parsed, timeout_s),
            poolclass=sa.QueuePool,
            pool_timeout=timeout_s,
            # A lookup is one statement: without a transaction it is one round trip.
            isolation_level="AUTOCOMMIT",
            pool_reset_on_return=None,
            hide_parameters=True,
        )
    except ImportError as error:
        raise FeatureError(
            f"the driver of the database's url must be installed, got none called {error.name!r}"
        ) from error
    except (SQLAlchemyError, ValueError):
        # Its message may quote the url, and that the password.
        raise FeatureError(
            f"the url of a database must be like postgresql://host/name, got {describe_url(url)}"
        ) from None


def _read_only(url: sa.URL) -> sa.URL:
    """A read-only url for SQLite, which would otherwise create a missing file."""
    name = url.database
    if url.get_backend_name() != "sqlite" or not name or name.startswith((":", "file:")):
        return url
    path = quote(str(Path(name).absolute()))
    return url.set(database=f"file:{path}").update_query_dict({"mode": "ro", "uri": "true"})


def _connect_args(url: sa.URL, timeout_s: float) -> dict[str, str | float]:
    if url.get_backend_name() == "sqlite":
        return {"timeout": timeout_s}
    if url.get_driver_name() not in PSYCOPG:
        return {}
    limits: dict[str, str | float] = {"connect_timeout": max(2, math.ceil(timeout_s))}
    if "options" not in url.query:
        limits["options"] = f"-c statement_timeout={max(1, round(timeout_s * 1_000))}"
    return limits
