"""``vfb journal``: inspect and maintain the journal of a model."""

import os
import re
import time
from contextlib import ExitStack, closing
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.journal_flags import (
    DEFAULT_NAME,
    KeyFile,
    KeyVariable,
    LogName,
    Target,
    key_of,
)
from vfbandits.cli.output import AsJson, Output, say
from vfbandits.cli.who import who
from vfbandits.errors import SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from vfbandits.evaluate.export import Export
    from vfbandits.journal.audit import Change
    from vfbandits.journal.base import Journal
    from vfbandits.journal.migration import Migration
    from vfbandits.journal.repair import Fault
    from vfbandits.journal.verify import Verification

journal_app = typer.Typer(
    name="journal",
    help="The journal of a model: verify, export, import, compact, repair, copy, migrate, erase.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@journal_app.callback()
def journal() -> None:
    """The journal of a model: verify, export, import, compact, repair, copy, migrate, erase."""


def verify(
    journal: Target,
    *,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """Read every record, apply every event again, and compare the snapshots bit for bit.

    A server may be running.  The exit code is 1 if anything is wrong.
    """
    from vfbandits.journal.open import open_reader
    from vfbandits.journal.verify import verify as verify_log

    with (
        closing(open_reader(journal, name=name, key=key_of(key_file, key_env))) as reader,
        progress("records verified", total=reader.last_position) as tell,
    ):
        found = verify_log(reader, on_step=tell)
    output = Output(as_json=as_json)
    output.show({**asdict(found), "is_whole": not found.problems}, list)
    for line in _lines(found):
        output.say(line)
    if found.problems:
        raise typer.Exit(1)


def export(
    journal: Target,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The Parquet file to write.")],
    contexts: Annotated[
        bool | None,
        typer.Option(
            "--contexts/--no-contexts",
            help="Write the masked contexts, even where only the chosen arm's was kept.",
            show_default="those that vfb evaluate can use",
        ),
    ] = None,
    unrewarded: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="Reward of decisions that have none.",
            show_default="they are left out",
        ),
    ] = None,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
) -> None:
    """Write one row for each decision with its reward, as `vfb evaluate` reads it.

    Masked contexts are among the columns, in layouts outer and per_arm only for events whose
    contexts the campaign kept (log_contexts).  A server may be running.  The file is not encrypted,
    and only its owner can read it.
    """
    from vfbandits.evaluate.export import export_log
    from vfbandits.extras import require
    from vfbandits.journal.open import open_reader

    require("polars", extra="experiments", to="writing Parquet")
    with closing(open_reader(journal, name=name, key=key_of(key_file, key_env))) as reader:
        made = export_log(reader, out, contexts=contexts, unrewarded=unrewarded)
    say(f"wrote {made.rows} decisions to {out}")
    for line in _remarks(made, is_filled=unrewarded is not None):
        say(line)


class LogFormatName(StrEnum):
    """Formats of other services' logs."""

    dsjson = "dsjson"


def import_log(  # noqa: PLR0913  (one argument for each flag)
    log: Annotated[Path, typer.Argument(metavar="LOG", help="The log to read; may end in .gz.")],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The Parquet file to write.")],
    log_format: Annotated[
        LogFormatName,
        typer.Option("--format", help="dsjson: Azure Personalizer and Vowpal Wabbit."),
    ] = LogFormatName.dsjson,
    scaling: Annotated[
        Path | None,
        typer.Option(help="Scaling of contexts, as the server has it.", show_default="--width"),
    ] = None,
    arm_scaling: Annotated[
        Path | None,
        typer.Option(help="Layout outer: scaling of actions.", show_default="--arm-width"),
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Hash contexts to this many columns.")] = 64,
    arm_width: Annotated[
        int,
        typer.Option(min=0, help="Layout outer: hash actions to this many columns."),
    ] = 0,
    unrewarded: Annotated[
        float | None,
        typer.Option(
            metavar="VALUE",
            help="Reward of events that have none.",
            show_default="they are left out",
        ),
    ] = None,
) -> None:
    """Convert another service's log of events to a table that `vfb evaluate` reads.

    The table has the columns of `vfb journal export`.  Features are flattened and hashed as in
    `[http.personalizer]`: with the server's own scalings a policy is evaluated on the same numbers
    that it would see.  No journal is changed.
    """
    from vfbandits.evaluate.dsjson import import_dsjson
    from vfbandits.extras import require
    from vfbandits.features.fit import hash_scaling
    from vfbandits.features.named import NamedRows
    from vfbandits.features.scaling import Scaling

    del log_format  # there is one
    require("polars", extra="experiments", to="writing Parquet")
    own = hash_scaling(rest=width) if scaling is None else Scaling.load(scaling)
    arms = hash_scaling(rest=arm_width) if arm_width else None
    arms = arms if arm_scaling is None else Scaling.load(arm_scaling)
    with progress("lines read") as tell:
        made = import_dsjson(
            log,
            out,
            own=NamedRows(own),
            arms=None if arms is None else NamedRows(arms),
            unrewarded=unrewarded,
            on_line=tell,
        )
    say(f"wrote {made.rows} decisions to {out}")
    left_out = {
        "events that were not activated were left out": made.inactive,
        "events have no reward and were left out; --unrewarded 0 writes them": made.without_reward,
        "rewards without their event were left out": made.without_event,
        "lines came before and were left out": made.repeated,
        "events were thinned out, since the log dropped others more often": made.thinned,
    }
    for what, count in left_out.items():
        if count:
            say(f"{count} {what}")


def compact(
    journal: Target,
    *,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
) -> None:
    """Verify a journal and drop the records that its older snapshot covers.

    Pending decisions stay.  No server may have it open.
    """
    from vfbandits.journal.compact import compact as compact_log
    from vfbandits.journal.open import open_journal, open_reader

    reader = open_reader(journal, name=name, key=key_of(key_file, key_env))
    reader.close()  # compacting a missing journal must not create one
    with (
        closing(open_journal(journal, name=name, key=key_of(key_file, key_env))) as opened,
        progress("records verified", total=opened.last_position) as tell,
    ):
        done = compact_log(opened, by=who(), now=time.time(), on_step=tell)
    if done is None:
        say("nothing to delete: that needs two snapshots after the last compaction")
    else:
        say(
            f"compacted up to position {done.position}: deleted {done.dropped} records, kept "
            f"{done.kept} records of pending decisions"
        )


def repair(
    journal: Target,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the changes; without it they are only listed.")
    ] = False,
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Also set aside records that no snapshot covers: what they taught is lost.",
        ),
    ] = False,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """Set damaged and missing records aside, so that the journal opens and verifies again.

    The damaged bytes are kept in a separate table.  Without --apply nothing is changed and a server
    may be running; the exit code is 1 if there is something to repair.
    """
    from vfbandits.journal.open import open_journal, open_reader
    from vfbandits.journal.repair import repair as repair_log
    from vfbandits.journal.repair import survey
    from vfbandits.journal.verify import verify as verify_log

    key = key_of(key_file, key_env)
    with closing(open_reader(journal, name=name, key=key)) as reader:
        faults, is_whole = survey(reader), True
    if apply and faults:
        accepted = who() if accept_loss else None
        opened = open_journal(journal, name=name, key=key, accept_loss=accepted)
        with closing(opened):
            # Faults at the end are not found again: opening has set them aside.
            found = survey(opened)
            inner = repair_log(opened, found, by=who(), accept_loss=accept_loss)
            known = {fault.position for fault in inner}
            faults = [*inner, *(fault for fault in faults if fault.position not in known)]
        with closing(open_reader(journal, name=name, key=key)) as reader:
            is_whole = not verify_log(reader).problems
    _show_repair(sorted(faults, key=lambda fault: fault.position), done=apply, as_json=as_json)
    if faults and not (apply and is_whole):
        raise typer.Exit(1)


def retract(  # noqa: PLR0913  (one argument for each flag)
    event: Annotated[str, typer.Argument(metavar="EVENT", help="Id of the event.")],
    *,
    url: Annotated[
        str,
        typer.Option(metavar="URL", help="URL of the running server, such as https://host:8443."),
    ] = "",
    key_env: Annotated[
        str,
        typer.Option(metavar="NAME", help="Environment variable with an API key of scope admin."),
    ] = "",
    campaign: Annotated[str, typer.Option(help="Campaign of the running server.")] = DEFAULT_NAME,
    ca: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Authority of the server's certificate.")
    ] = None,
    journal: Annotated[
        str, typer.Option(metavar="JOURNAL", help="Without a server: the journal, as for verify.")
    ] = "",
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    journal_key_env: KeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """Retract a learnt reward: the model is then as if the reward had never arrived.

    Use --url for a running server, whose journal is locked, and --journal otherwise.  Refused for
    an event without a learnt reward, a second time, and for models with forgetting.
    """
    import asyncio

    from vfbandits.journal.open import open_journal, open_reader

    if bool(url) == bool(journal):
        came = "both" if url else "neither"
        raise SettingError(f"wanted either --url or --journal, got {came}")
    if url:
        value = _retract_at(url, event, campaign=campaign, key_env=key_env, ca=ca)
    else:
        key = key_of(key_file, journal_key_env)
        open_reader(journal, name=name, key=key).close()  # a missing journal must not be created
        value = asyncio.run(retract_offline(open_journal(journal, name=name, key=key), event))
    output = Output(as_json=as_json)
    output.show({"event_id": event, "reward": value}, list)
    output.say(f"retracted the reward {value:g} of event {event}")


def _retract_at(url: str, event: str, *, campaign: str, key_env: str, ca: Path | None) -> float:
    from vfbandits.extras import require

    require("httpx2", extra="http", to="talking to a server")
    from vfbandits.client.client import Client

    key = os.environ.get(key_env) if key_env else None
    if key_env and not key:
        raise SettingError(f"wanted an API key in the environment variable {key_env}, got none")
    verify = None if ca is None else str(ca)
    with Client(url, key=key, campaign=campaign, verify=verify) as client:
        return client.retract(event).reward


async def retract_offline(journal: "Journal", event: str) -> float:
    """Retract a reward in a journal that no server has open; closes the journal."""
    from vfbandits.journal.recover import own_model
    from vfbandits.serving.durable import DurableBandit

    try:
        model = own_model(journal)
        bandit = DurableBandit.open(journal, lambda: model.bandit)
    except BaseException:
        journal.close()
        raise
    try:
        return (await bandit.retract(event, by=who())).value
    finally:
        await bandit.close()


def forget(  # noqa: PLR0913  (one argument for each flag)
    journal: Target,
    *,
    user: Annotated[str, typer.Option(metavar="ID", help="User to erase.")],
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="Why; it stays in the journal, so name no user.")
    ],
    unlearn: Annotated[
        bool,
        typer.Option(
            "--unlearn", help="Also subtract the contexts that were rewarded from the model."
        ),
    ] = False,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """Erase a user: remove id, answers and contexts from the journal, its snapshots and its inbox.

    What was learnt stays as statistics, unless --unlearn.  The journal is verified first.  No
    server may have it open.  After a kill, run the same command again.
    """
    from vfbandits.journal.erase import ErasureRequest, erase_user
    from vfbandits.journal.inbox.open import open_inbox
    from vfbandits.journal.open import is_database, open_journal, open_reader

    request = ErasureRequest(user, reason, who(), time.time())
    key = key_of(key_file, key_env)
    open_reader(journal, name=name, key=key).close()  # a missing journal must not be created
    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_journal(journal, name=name, key=key)))
        inbox = None
        if is_database(journal):
            inbox = stack.enter_context(closing(open_inbox(journal, name=name, key=key)))
        tell = stack.enter_context(progress("records verified", total=opened.last_position))
        done = erase_user(opened, request, unlearn=unlearn, inbox=inbox, on_step=tell)
    output = Output(as_json=as_json)
    output.show(asdict(done), list)
    output.say(
        f"erased {done.decisions} decisions of the user ({done.records} records), unlearnt "
        f"{done.unlearnt} rewards"
    )
    if done.naming:
        output.say(f"{done.naming} event ids contain the id of the user, and stay")


def audit(
    journal: Target,
    *,
    keys: Annotated[
        Path | None, typer.Option("--keys", metavar="FILE", help="A key file to list as well.")
    ] = None,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """List who changed what, and when: settings, masks, members, erasures, repairs, migrations.

    A server may be running.
    """
    from vfbandits.journal.audit import Change, changes_in
    from vfbandits.journal.open import migrations_of, open_reader

    with closing(open_reader(journal, name=name, key=key_of(key_file, key_env))) as reader:
        found = [*changes_in(reader), *(() if keys is None else _key_changes(keys))]
    found += [
        Change(0, one.at, one.by, "migration", f"{one.tables}, version {one.found} to {one.newest}")
        for one in migrations_of(journal)
    ]
    found.sort(key=lambda change: change.at)  # stable: equal times keep their order
    Output(as_json=as_json).show({"changes": found}, lambda: [_audit_table(found)])


def copy(  # noqa: PLR0913  (one argument for each flag)
    journal: Target,
    to: Annotated[
        str,
        typer.Argument(metavar="TO", help="Target of the copy, as JOURNAL; none may exist there."),
    ],
    *,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
    to_name: Annotated[
        str, typer.Option(help="Name of the copy in a database.", show_default="as --name")
    ] = "",
    to_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Key of the copy, mode 0600.", show_default="that of JOURNAL"
        ),
    ] = None,
    to_key_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the key of the copy."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Copy a journal to another store, with all that was learnt, and compare both.

    From SQLite to PostgreSQL, the other way, or to another store of the same kind.  No server and
    no ranker may use either of them.  After an interruption, run the same command again.
    """
    from vfbandits.journal.copy import copy_journal
    from vfbandits.journal.inbox.open import open_inbox
    from vfbandits.journal.open import is_database, open_journal, open_reader, place_of

    key = key_of(key_file, key_env)
    new_key = key_of(to_key_file, to_key_env) or key
    new_name = to_name or (name if is_database(to) else DEFAULT_NAME)
    open_reader(journal, name=name, key=key).close()  # a missing journal must not be created
    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_journal(journal, name=name, key=key)))
        inbox = None
        if is_database(journal):
            inbox = stack.enter_context(closing(open_inbox(journal, name=name, key=key)))
        tell = stack.enter_context(progress("records copied", total=opened.last_position))
        done = copy_journal(
            opened,
            to,
            name=new_name,
            key=new_key,
            inbox=inbox,
            described=place_of(journal, name=name),
            by=who(),
            now=time.time(),
            on_step=tell,
        )
    output = Output(as_json=as_json)
    output.show(asdict(done), list)
    place = place_of(to, name=new_name)
    said = f"{done.records} records up to position {done.last}, {done.snapshots} snapshots"
    if done.was_there:
        output.say(f"nothing to copy: {place} is a copy already, with {said}")
    else:
        output.say(f"copied {said} and {done.arrivals} events of the inbox to {place}")
    if done.left_out:
        output.say(f"{done.left_out} events of the inbox that were refused are not in the copy")
    output.say(f"both have the digest {done.digest}")


def migrate(
    journal: Target,
    *,
    apply: Annotated[
        bool, typer.Option("--apply", help="Make the changes; without it they are only listed.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Migrate the tables of a journal to the version that this release writes.

    Records are not changed: older ones stay readable.  In a database the tables of all
    journals are migrated.  Without --apply nothing is changed and a server may be running; the exit
    code is 1 if there is something to migrate.  With it all steps are done, or none; no server may
    have a journal open.  Earlier versions of vfbandits cannot open a migrated journal: back it up.
    """
    from vfbandits.journal.open import migrate as migrate_tables
    from vfbandits.journal.open import plan_migration

    by, now = who(), time.time()
    found = migrate_tables(journal, by=by, now=now) if apply else plan_migration(journal)
    output = Output(as_json=as_json)
    output.show({"migrated": apply, "tables": found}, list)
    for migration in found:
        output.say(_migration_line(migration, done=apply))
        for step in migration.steps:
            output.say(f"  {step}")
    if any(migration.steps for migration in found) and not apply:
        output.say("nothing was changed: use --apply")
        raise typer.Exit(1)


def _migration_line(migration: "Migration", *, done: bool) -> str:
    now = f"tables of the {migration.tables}: version {migration.found}"
    if not migration.steps:
        return f"{now}, the newest: nothing to migrate"
    return f"{now} {'was' if done else 'would be'} migrated to {migration.newest}:"


def keygen(
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The new file, mode 0600.")],
) -> None:
    """Create a key that encrypts a journal.  If the key is lost, the journal is lost."""
    from vfbandits.journal.crypto import JournalKey, write_key

    write_key(out, JournalKey.generate())
    say(f"wrote a key to {out}: keep a copy of it, away from the journal")


for command in (verify, export, compact, repair, copy, migrate, retract, forget, audit, keygen):
    journal_app.command()(in_one_line(command))
journal_app.command("import")(in_one_line(import_log))


def _key_changes(path: Path) -> "Iterator[Change]":
    from vfbandits.http.access.key_file import read_history
    from vfbandits.journal.audit import Change

    for record in read_history(path):
        key, scopes = f"key {record.id} of {record.name!r}", ", ".join(record.scopes)
        made = record.created.timestamp()
        yield Change(0, made, record.by, "keys", f"{key} created, for {scopes}")
        if record.revoked is not None:
            ended = record.revoked.timestamp()
            yield Change(0, ended, record.revoked_by, "keys", f"{key} revoked")


def _audit_table(changes: "list[Change]") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for heading in ("at", "by", "what", "detail"):
        table.add_column(heading, overflow="fold")
    for change in changes:
        table.add_row(*map(Text, (_time(change.at), change.by, change.what, change.detail)))
    return table


def _lines(found: "Verification") -> list[str]:
    total = sum(found.counts.values())
    kinds = ", ".join(f"{count} {_spaced(kind)}" for kind, count in sorted(found.counts.items()))
    lines = [f"{total} records up to position {found.last}" + (f": {kinds}" if kinds else "")]
    if found.compacted_to:
        lines.append(f"compacted up to position {found.compacted_to}")
    if found.first_at is not None and found.last_at is not None:
        lines.append(f"from {_time(found.first_at)} to {_time(found.last_at)}")
    if found.folded_from is None:
        lines.append("no snapshot to start from: records were read, but not replayed")
    else:
        places = ", ".join(map(str, found.snapshots))
        lines.append(f"replayed from position {found.folded_from}; snapshots that match: {places}")
    if found.n_open is not None:
        lines.append(f"{found.n_open} pending decisions")
    lines += [f"problem: {problem}" for problem in found.problems]
    n_problems = len(found.problems)
    return [
        *lines,
        f"{n_problems} problem{'s' * (n_problems > 1)}" if n_problems else "no problems",
    ]


def _spaced(kind: str) -> str:
    """The name of a kind of records in words.

    >>> _spaced("MasksChanged")
    'masks changed'
    """
    return re.sub("(?<!^)(?=[A-Z])", " ", kind).lower()


def _show_repair(faults: "list[Fault]", *, done: bool, as_json: bool) -> None:
    output = Output(as_json=as_json)
    output.show({"set_aside": done, "faults": faults}, list)
    for fault in faults:
        cover = "no snapshot covers it: what it taught the model is lost"
        if fault.covered_by is not None:
            cover = f"the snapshot of position {fault.covered_by} covers it"
        output.say(f"record {fault.position}: {cover} ({fault.why})")
    count = f"{len(faults)} record{'s' * (len(faults) != 1)}"
    if not faults:
        output.say("no problems: nothing to repair")
    elif done:
        output.say(f"{count} set aside")
    else:
        output.say(f"{count} would be set aside; nothing was changed: use --apply")


def _remarks(made: "Export", *, is_filled: bool) -> list[str]:
    lines = []
    if made.without_reward and not is_filled:
        lines.append(
            f"{made.without_reward} decisions have no reward and were left out; "
            "--unrewarded 0 writes them"
        )
    if made.retracted:
        lines.append(f"{made.retracted} decisions with a retracted reward were left out")
    if made.without_probability:
        lines.append(f"{made.without_probability} rows have no probability: vfb evaluate needs it")
    if made.layout is None:
        lines.append(
            "there are no contexts in it: vfb evaluate needs them, or --table with features of "
            "your own"
        )
    elif made.evaluable < made.rows:
        lines.append(
            f"{made.evaluable} of {made.rows} rows have the contexts of all arms, which vfb "
            f'evaluate and vfb tune need in layout {made.layout}; log_contexts = "all" in the '
            "campaign keeps them"
        )
    return lines


def _time(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
    except (OverflowError, OSError, ValueError):  # a clock of the application's own
        return f"{seconds:g} s"
