"""``vfb model``: export the model of a campaign from its journal, and restore one."""

import time
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
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
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.who import who
from vfbandits.errors import SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from vfbandits.campaign.exported import ExportedModel
    from vfbandits.journal.base import JournalReader

model_app = typer.Typer(
    name="model",
    help="The model of a campaign: export it from its journal, restore an earlier one.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

At = Annotated[
    str | None,
    typer.Option(
        metavar="POSITION|TIME",
        help="Position of the journal, or time, such as 2026-11-17T18:00 (UTC).",
        show_default="the end",
    ),
]


@model_app.callback()
def model() -> None:
    """The model of a campaign: export it from its journal, restore an earlier one."""


def export(
    journal: Target,
    *,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write, mode 0600.")],
    at: At = None,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """Write the model as of a position of a journal, without any decisions.

    `vfb.load` reads the file as a bandit.  A server may be running.  The file is not encrypted, and
    only its owner can read it.
    """
    from vfbandits.journal.models import write_model
    from vfbandits.journal.open import open_reader

    with closing(open_reader(journal, name=name, key=key_of(key_file, key_env))) as reader:
        found = _model_of(reader, at)
    write_model(out, found)
    output = Output(as_json=as_json)
    output.show({"position": found.position, "epoch": found.epoch, "file": str(out)}, list)
    output.say(f"wrote the model of position {found.position} (mask epoch {found.epoch}) to {out}")


def restore(  # noqa: PLR0913  (one argument for each flag)
    journal: Target,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A model that was exported; or give --at."),
    ] = None,
    *,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; it stays in the journal.")],
    at: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION|TIME",
            help="Position of this journal, or time, such as 2026-11-17T18:00 (UTC).",
        ),
    ] = None,
    same_masks: Annotated[
        bool,
        typer.Option(
            "--same-masks",
            help="The model is of another journal, and was learnt behind the masks in force here.",
        ),
    ] = False,
    name: LogName = DEFAULT_NAME,
    key_file: KeyFile = None,
    key_env: KeyVariable = None,
    as_json: AsJson = False,
) -> None:
    """Restore an earlier model, by a new record of the journal.

    Pending decisions and settings stay.  A model of an earlier mask epoch is mapped to the masks
    in force.  Rewards that were retracted since stay retracted.  No server may have the journal
    open; replicas follow.  After a kill, run the same command again.
    """
    from vfbandits.journal.models import read_model, restore_model
    from vfbandits.journal.open import open_journal, open_reader

    if (file is None) == (at is None):
        came = "neither" if file is None else "both"
        raise SettingError(f"wanted either a FILE or --at, got {came}")
    key = key_of(key_file, key_env)
    chosen = None if file is None else read_model(file)
    open_reader(journal, name=name, key=key).close()  # a missing journal must not be created
    with closing(open_journal(journal, name=name, key=key)) as opened:
        found = _model_of(opened, at) if chosen is None else chosen
        done = restore_model(
            opened, found, by=who(), reason=reason, now=time.time(), same_masks=same_masks
        )
    output = Output(as_json=as_json)
    output.show({"restored": None if done is None else asdict(done)}, list)
    if done is None:
        output.say("nothing to restore: the journal has this model already")
    else:
        source = "another journal" if done.of is None else f"position {done.of}"
        output.say(f"restored the model of {source}, by record {done.position} of the journal")


def _model_of(reader: "JournalReader", at: str | None) -> "ExportedModel":
    from vfbandits.journal.models import export_model

    position = reader.last_position if at is None else _position(reader, at)
    with progress("records read", total=reader.last_position) as tell:
        return export_model(reader, position, on_step=tell)


def _position(reader: "JournalReader", at: str) -> int:
    from vfbandits.journal.models import position_at

    if at.isdecimal():
        return int(at)
    try:
        time_of_day = datetime.fromisoformat(at)
    except ValueError:
        raise SettingError(
            f"--at must be a position or a time such as 2026-11-17T18:00, got {at!r}"
        ) from None
    if time_of_day.tzinfo is None:
        time_of_day = time_of_day.replace(tzinfo=UTC)
    return position_at(reader, time_of_day.timestamp())


for command in (export, restore):
    model_app.command()(in_one_line(command))
