"""``vfb access``: the record of what a passive participant answered."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.output import AsJson, Output
from vfbandits.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import IO

    from rich.table import Table

    from vfbandits.participant.access.report import Day, Tally

access_app = typer.Typer(
    name="access",
    help="What a passive participant answered, and about whom: verify, report, export, forget.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
Config = Annotated[
    Path, typer.Option("--config", metavar="FILE", help="The passive participant's file.")
]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Only this user.")]


@access_app.callback()
def access() -> None:
    """What a passive participant answered, and about whom: verify, report, export, forget."""


def verify(
    config: Config,
    *,
    head: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="A head recorded earlier, which must be in the chain."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read every entry and follow the chain of hashes.

    The participant may be running.  The exit code is 1 if anything is wrong.
    """
    from vfbandits.participant.access.chain import verify as verify_chain

    with progress("entries verified") as tell:
        found = verify_chain(_folder(config), head=head, on_step=tell)
    output = Output(as_json=as_json)
    document = {
        "entries": found.entries,
        "erased": found.erased,
        "first": found.first,
        "head": found.head,
        "has_head": found.has_head,
        "problems": found.problems,
        "is_whole": not found.problems,
    }
    output.show(document, list)
    last = found.first + found.entries - 1
    erased = f", {found.erased} of them erased" if found.erased else ""
    output.say(f"{found.entries} entries, {found.first} to {last}{erased}")
    output.say(f"head {found.head}")
    for problem in found.problems:
        output.say(f"problem: {problem}")
    if found.problems:
        raise typer.Exit(1)


def report(config: Config, *, user: User = None, as_json: AsJson = False) -> None:
    """Show for each day and campaign how much was answered, and what was declined.

    Campaigns are as the active participant names them.  The noise on vectors is shown with all its
    terms so far and the unit of ε.
    """
    from vfbandits.core.noise import describe_noise
    from vfbandits.participant.access.chain import entries_in
    from vfbandits.participant.access.report import by_day
    from vfbandits.participant.noise import FOLDER, read_terms

    folder = _folder(config)
    days = by_day(entries_in(folder), users=None if user is None else _names(config, [user]))
    known = read_terms(folder.parent / FOLDER)
    terms = () if known is None else known.terms
    noise = [{"since": one.since, **describe_noise(one.noise.terms)} for one in terms]
    document = {"days": [day.document() for day in days], "noise": noise}
    output = Output(as_json=as_json)
    output.show(document, lambda: [_table(days)])
    for one in terms:
        output.say(f"noise since {one.since}: {one.noise.terms}")


def export(
    config: Config,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The CSV file to write.")],
    user: User = None,
) -> None:
    """Write all entries to a CSV file for its owner; users are named by their keyed hashes."""
    import csv
    from datetime import UTC, datetime
    from io import TextIOWrapper

    import msgspec

    from vfbandits.errors import ConfigError
    from vfbandits.files import write_whole
    from vfbandits.participant.access.chain import Content, entries_in

    folder = _folder(config)
    wanted = None if user is None else _names(config, [user])
    count = 0

    def write(file: "IO[bytes]") -> None:
        nonlocal count
        text = TextIOWrapper(file, encoding="utf-8", newline="")
        writer = csv.writer(text)
        writer.writerow(["at", *(field for field in Content.__struct_fields__ if field != "at")])
        for one in entries_in(folder):
            if wanted is None or one.user in wanted:
                at = datetime.fromtimestamp(one.at, UTC).isoformat()
                writer.writerow([at, *msgspec.structs.astuple(one)[1:]])
                count += 1
        text.detach()  # the caller syncs and closes the file

    if out.exists():
        raise ConfigError(f"wanted no file at {out} yet, got one: move it away first")
    write_whole(out, write, mode=0o600)
    Output(as_json=False).say(f"{count} entries in {out}")


def forget(
    config: Config,
    *,
    user: Annotated[
        list[str], typer.Option("--user", metavar="ID", help="User to erase. Can be repeated.")
    ],
    as_json: AsJson = False,
) -> None:
    """Erase what the record holds about users; the chain still verifies.

    Salt and content of each entry are overwritten, and so are rows that are kept for changed_after.
    Entries from before the user was known are found by its pseudonym.
    The participant may be running.
    """
    from vfbandits.participant.access.chain import forget as forget_users
    from vfbandits.participant.access.held_rows import FILE, forget_rows

    folder = _folder(config)
    names = _names(config, user)
    erased, rows = forget_users(folder, names), forget_rows(folder / FILE, names)
    output = Output(as_json=as_json)
    output.show({"erased": erased, "rows": rows}, list)
    also = f", {rows} rows" if rows else ""
    output.say(f"{erased} entries{also} erased")


def _folder(config: Path) -> Path:
    from vfbandits.errors import ConfigError
    from vfbandits.participant.access.record import FOLDER
    from vfbandits.settings.services import load_passive

    folder = load_passive(config).state / FOLDER
    if not folder.is_dir():
        raise ConfigError(f"{folder} must hold an access record, got none: nothing was served yet")
    return folder


def _names(config: Path, users: "Iterable[str]") -> frozenset[str]:
    from vfbandits.participant.access.names import recorded_names
    from vfbandits.settings.services import load_passive

    return recorded_names(load_passive(config), _folder(config), users)


def _table(days: "list[Day]") -> "Table":
    from rich.table import Table

    table = Table("day (UTC)", "campaign", "answered", "users", "rows", "not answered")
    for day in days:
        _add_row(table, day.date, "all", day.total)
        for name in sorted(day.campaigns):
            _add_row(table, "", name, day.campaigns[name])
    return table


def _add_row(table: "Table", date: str, campaign: str, tally: "Tally") -> None:
    others = ", ".join(f"{name}: {count}" for name, count in tally.others.most_common())
    counts = (f"{count:,}" for count in (tally.answered, tally.users, tally.rows))
    table.add_row(date, campaign, *counts, others)


access_app.command()(in_one_line(verify))
access_app.command()(in_one_line(report))
access_app.command()(in_one_line(export))
access_app.command()(in_one_line(forget))
