"""Opens a journal by its address: a file, or a database whose URL may be in the environment.

::

    state/journal.db            an SQLite file
    sqlite:///state/journal.db  the same; four slashes for an absolute path
    postgresql://host/database  a journal in PostgreSQL, by its name there
    env:VFB_JOURNAL             one of these, in an environment variable

Put a password into that variable, a ``.pgpass`` file or ``PGPASSWORD``; no error shows it.
"""

import os
import re
from pathlib import Path

from vfbandits.errors import JournalError
from vfbandits.extras import require
from vfbandits.journal.base import Journal, JournalReader
from vfbandits.journal.contents import JournalContents
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.migration import Migrated, Migration
from vfbandits.journal.sqlite.fill import fill_sqlite
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.sqlite.migrate import migrate_sqlite, migrations_of_sqlite, plan_sqlite
from vfbandits.journal.sqlite.reader import SqliteReader
from vfbandits.settings.address import describe_url

DEFAULT_NAME = "default"
_ENVIRONMENT, _SQLITE = "env:", "sqlite:///"
_POSTGRES = re.compile(r"postgres(ql)?(\+psycopg)?://")


def open_journal(
    target: str | os.PathLike[str],
    *,
    name: str = DEFAULT_NAME,
    key: JournalKey | None = None,
    wait_s: float | None = None,
    witness: Path | None = None,
    accept_loss: str | None = None,
) -> Journal:
    """Open the journal at ``target`` for its one writer; it is created if there is none.

    Three parameters are for databases: ``name``, since a database holds several journals;
    ``wait_s``, how long to wait for the lock of another writer; and ``witness``, the file that
    records how far the journal was acknowledged (a journal in a file has its own).
    ``accept_loss`` is who accepts that acknowledged records are lost.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = open_journal(f"sqlite:///{folder}/log.db")
    ...     print(journal.last_position)
    ...     journal.close()
    0
    """
    place = _resolve(target)
    if isinstance(place, Path):
        _refuse_name(name)
        return SqliteJournal(place, key=key, accept_loss=accept_loss)
    _require_psycopg()
    from vfbandits.journal.postgres.journal import WAIT_S, PostgresJournal  # noqa: PLC0415  (an extra)

    patience = WAIT_S if wait_s is None else wait_s
    return PostgresJournal(
        place, name=name, key=key, wait_s=patience, witness=witness, accept_loss=accept_loss
    )


def open_reader(
    target: str | os.PathLike[str], *, name: str = DEFAULT_NAME, key: JournalKey | None = None
) -> JournalReader:
    """Open the journal at ``target`` for reading; it must exist, and its writer may be running."""
    place = _resolve(target)
    if isinstance(place, Path):
        _refuse_name(name)
        return SqliteReader(place, key=key)
    _require_psycopg()
    from vfbandits.journal.postgres.reader import PostgresReader  # noqa: PLC0415  (an extra)

    return PostgresReader(place, name=name, key=key)


def fill_journal(
    target: str | os.PathLike[str],
    source: JournalContents,
    *,
    name: str = DEFAULT_NAME,
    key: JournalKey | None = None,
) -> None:
    """Create a journal at ``target``, where there must be none, with the contents of another one.

    All or nothing: the remains of an interrupted call cannot be opened, and the next call deletes
    them.  A journal in a file has no inbox.
    """
    place = _resolve(target)
    if isinstance(place, Path):
        _refuse_name(name)
        fill_sqlite(place, source, key=key)
        return
    _require_psycopg()
    from vfbandits.journal.postgres.fill import fill_postgres  # noqa: PLC0415  (an extra)

    fill_postgres(place, source, name=name, key=key)


def place_of(target: str | os.PathLike[str], *, name: str = DEFAULT_NAME) -> str:
    """The place of a journal, for messages: it has no password.

    >>> place_of("postgresql://ann:secret@db.internal/vfb")
    "'default' at db.internal:5432/vfb"
    """
    place = _resolve(target)
    if isinstance(place, Path):
        return str(place.resolve())
    _require_psycopg()
    from vfbandits.journal.postgres.address import PostgresAddress  # noqa: PLC0415  (an extra)

    return f"{name!r} at {PostgresAddress.of(place).place}"


def plan_migration(target: str | os.PathLike[str]) -> list[Migration]:
    """What ``migrate`` would do to the tables of the journal at ``target``."""
    place = _resolve(target)
    if isinstance(place, Path):
        return plan_sqlite(place)
    _require_psycopg()
    from vfbandits.journal.postgres.migrate import plan_postgres  # noqa: PLC0415  (an extra)

    return plan_postgres(place)


def migrate(target: str | os.PathLike[str], *, by: str = "", now: float = 0.0) -> list[Migration]:
    """Bring the tables of the journal at ``target`` to the newest version.

    In a database these are the tables of all its journals.  ``by`` and ``now`` are recorded.
    """
    place = _resolve(target)
    if isinstance(place, Path):
        return migrate_sqlite(place, by=by, now=now)
    _require_psycopg()
    from vfbandits.journal.postgres.migrate import migrate_postgres  # noqa: PLC0415  (an extra)

    return migrate_postgres(place, by=by, now=now)


def migrations_of(target: str | os.PathLike[str]) -> list[Migrated]:
    """The migrations that the tables of the journal at ``target`` have been through."""
    place = _resolve(target)
    if isinstance(place, Path):
        return migrations_of_sqlite(place)
    _require_psycopg()
    from vfbandits.journal.postgres.migrate import migrations_of_postgres  # noqa: PLC0415  (an extra)

    return migrations_of_postgres(place)


def is_database(target: str | os.PathLike[str]) -> bool:
    """Whether the address is that of a database, which holds several journals by name.

    >>> is_database("postgresql://db.internal/vfb"), is_database("state/journal.db")
    (True, False)
    """
    return not isinstance(_resolve(target), Path)


def _resolve(target: str | os.PathLike[str]) -> str | Path:
    """A path, or the URL of a database."""
    if not isinstance(target, str):
        return Path(target)
    if target.startswith(_ENVIRONMENT):
        variable = target.removeprefix(_ENVIRONMENT)
        target = os.environ.get(variable, "")
        if not target:
            raise JournalError(f"wanted the address of a journal in {variable}, got none")
    if _POSTGRES.match(target):
        return target
    if target.startswith(_SQLITE) and len(target) > len(_SQLITE):
        return Path(target.removeprefix(_SQLITE))
    if "://" in target or not target or target.startswith(_ENVIRONMENT):
        # Not quoted: it may hold a password.
        raise JournalError(
            "the address of a journal must be a path, sqlite:///path or postgresql://host/name, "
            f"got {describe_url(target)}"
        )
    return Path(target)


def _refuse_name(name: str) -> None:
    if name != DEFAULT_NAME:
        raise JournalError(f"a file holds one journal, which has no name, got the name {name!r}")


def _require_psycopg() -> None:
    require("psycopg", extra="sql", to="a journal in PostgreSQL", error=JournalError)
