"""Where a PostgreSQL database is, from a URL that may hold a password; no error shows it."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from vfbandits.errors import JournalError
from vfbandits.settings.address import describe_url

_SCHEME = re.compile(r"^postgres(ql)?(\+psycopg)?://")
# With these a connection notices within seconds that the other machine is gone.
_DEFAULTS = {
    "application_name": "vfbandits",
    "connect_timeout": "10",
    "keepalives_idle": "5",
    "keepalives_interval": "3",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """A database; make it with ``of``.

    >>> PostgresAddress.of("postgresql://ann:secret@db.local:5433/shop")
    PostgresAddress(place='db.local:5433/shop')
    """

    place: str
    parameters: dict[str, str] = field(repr=False)

    @classmethod
    def of(cls, url: str) -> "PostgresAddress":
        """The database that a URL names."""
        given = _parse(url)
        host, port = given.get("host", "localhost"), given.get("port", "5432")
        # An unescaped / or @ in a password makes libpq take a part of it for host, port or name; an
        # @ in a query makes it take all before that for the user.
        head, _, tail = _SCHEME.sub("", url).partition("/")
        is_plain = head.count("@") <= 1 and "@" not in tail and "?" not in given.get("user", "")
        if not is_plain or not all(part.isdigit() for part in port.split(",")):
            raise _refusal(url)
        name = given.get("dbname", given.get("user", ""))
        return cls(f"{host}:{port}/{name}", {**_DEFAULTS, **given})

    @property
    def conninfo(self) -> str:
        """All that the driver needs to connect."""
        return make_conninfo(**self.parameters)

    def describe(self, error: Exception) -> str:
        """The message of an error, in one line and without the password."""
        primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
        lines = (primary or str(error)).strip().splitlines() or [type(error).__name__]
        password = self.parameters.get("password")
        return lines[0].replace(password, "…") if password else lines[0]


def _parse(url: str) -> dict[str, str]:
    try:
        found = conninfo_to_dict(_SCHEME.sub("postgresql://", url))
        unquote(url, errors="strict")
    except (psycopg.Error, UnicodeDecodeError):
        # Its message may quote a piece of the password.
        raise _refusal(url) from None
    return {name: str(value) for name, value in found.items() if value is not None}


def _refusal(url: str) -> JournalError:
    return JournalError(
        "the url of a journal must be like postgresql://user:password@host:port/name, got "
        f"{describe_url(url)}; write special characters of the password and the name as %XX"
    )
