"""``vfb keys``: API keys for the HTTP interface."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.output import AsJson, Output, say
from vfbandits.cli.who import who
from vfbandits.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from vfbandits.http.access.key_file import KeyRecord

MAX_DAYS = 36_500

keys_app = typer.Typer(
    name="keys",
    help="Create, list and revoke API keys for the HTTP interface.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

KeyFile = Annotated[Path, typer.Option("--file", help="The key file (mode 0600).")]


class ScopeName(StrEnum):
    """What a key permits."""

    rank = "rank"
    reward = "reward"
    figures = "figures"
    read = "read"
    admin = "admin"


def create(
    *,
    file: KeyFile,
    name: Annotated[str, typer.Option(help="Name of the caller, for logs and rate limits.")],
    scope: Annotated[
        list[ScopeName], typer.Option(help="Permission; admin includes all. Can be repeated.")
    ],
    campaign: Annotated[
        list[str] | None,
        typer.Option(help="A campaign the key is valid for. Can be repeated.", show_default="all"),
    ] = None,
    days: Annotated[
        int | None, typer.Option(help="Validity in days.", show_default="until revoked")
    ] = None,
) -> None:
    """Create a key and print it.  It is printed only once: the file stores only its hash.

    Standard output contains only the key.  A running server accepts it within a second.
    """
    from vfbandits.http.access.key_file import add_key
    from vfbandits.http.access.keys import make_key

    key = make_key(name, scopes=scope, campaigns=campaign or (), expires=_end(days), by=who())
    add_key(file, key.record)
    say(key.text)
    note = f"created key {key.record.id} in {file}; save the printed key, it is not shown again"
    typer.echo(note, err=True)


def show_all(*, file: KeyFile, as_json: AsJson = False) -> None:
    """List the keys in a file, without the secrets, which the file does not contain."""
    from vfbandits.http.access.key_file import now, read_keys

    records, moment = read_keys(file), now()
    document = {"keys": [_object(record, moment) for record in records]}
    Output(as_json=as_json).show(document, lambda: [_table(records, moment)])


def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="ID", help="Key id, as vfb keys list prints it.")
    ],
    *,
    file: KeyFile,
) -> None:
    """Revoke a key.  A running server refuses it within a second."""
    from vfbandits.http.access.key_file import revoke_key

    revoke_key(file, key_id, by=who())
    say(f"revoked key {key_id}")


keys_app.command()(in_one_line(create))
keys_app.command("list")(in_one_line(show_all))
keys_app.command()(in_one_line(revoke))


def _end(days: int | None) -> datetime | None:
    if days is None:
        return None
    if not 1 <= days <= MAX_DAYS:
        raise SettingError(f"--days must be between 1 and {MAX_DAYS}, got {days}")
    return datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)


def _object(record: "KeyRecord", moment: datetime) -> dict[str, object]:
    """The fields of a key, without its hash."""
    return {
        "id": record.id,
        "name": record.name,
        "scopes": record.scopes,
        "campaigns": record.campaigns,
        "created": record.created,
        "expires": record.expires,
        "expired": record.has_expired(moment),
    }


def _table(records: "Sequence[KeyRecord]", moment: datetime) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    table.add_column("id", no_wrap=True)
    for heading in ("name", "scopes", "campaigns", "created", "expires"):
        table.add_column(heading, overflow="fold")
    for record in records:
        table.add_row(*map(Text, _row(record, moment)))
    return table


def _row(record: "KeyRecord", moment: datetime) -> tuple[str, ...]:
    campaigns = "all" if record.campaigns is None else ", ".join(record.campaigns)
    expires = "never" if record.expires is None else _minute(record.expires)
    if record.has_expired(moment):
        expires = f"expired {expires}"
    scopes = ", ".join(record.scopes)
    return (record.id, record.name, scopes, campaigns, _minute(record.created), expires)


def _minute(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M}Z"
