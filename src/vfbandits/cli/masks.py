"""``vfb masks``: the generator deals masks, and the operator puts new ones into force."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.output import AsJson, Output, say
from vfbandits.errors import SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.participant.dealing import DealtWindows
    from vfbandits.participant.generator import Deal
    from vfbandits.protocol.roster import Roster

masks_app = typer.Typer(name="masks", no_args_is_help=True, rich_markup_mode="markdown")


@masks_app.callback()
def masks() -> None:
    """Draw masks, seal each participant's share, and put new masks into force."""


def deal(  # noqa: PLR0913  (options of a command)
    *,
    roster: Annotated[Path, typer.Option(help="The signed roster.")],
    authority: Annotated[Path, typer.Option(help="Certificate of the federation's authority.")],
    key_dir: Annotated[Path, typer.Option(help="The generator's identity folder.")],
    epoch: Annotated[
        int,
        typer.Option(
            min=0, help="Mask epoch; each is dealt once, or gets more windows of secret shares."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the envelopes.")],
    windows: Annotated[
        int | None,
        typer.Option(min=0, help="Secret shares: number of windows to deal now, by default 64."),
    ] = None,
    before: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="ROSTER",
            help="Secret shares: the signed roster in force, if members change with this epoch.",
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Secret shares: the dealer's state, by default `dealer.epoch-N.state` in "
            "--key-dir.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Deal a dense mask, or words for secret shares, in sealed files.

    With dense masks each participant gets an envelope with its share.  With protection **shares**
    each gets an envelope with its secrets, once, and the active participant gets a file for each
    window of decisions; the same command with the same epoch deals more windows.  Each epoch after
    the first begins with a hand-over of what was learnt: if members join or leave with it, `--from`
    is the previous roster.

    Run this on a machine that the active participant has no access to.  Envelopes need no secure
    channel: only the addressed participant can open one.
    """
    from vfbandits.participant.generator import deal_files
    from vfbandits.pki import load_roster

    current = load_roster(roster, authority)
    if current.terms.shares is not None:
        _deal_shares(
            current,
            key_dir=key_dir,
            epoch=epoch,
            out=out,
            windows=windows,
            state=state,
            before=None if before is None else load_roster(before, authority),
            output=Output(as_json=as_json),
        )
        return
    for flag, value in (("--windows", windows), ("--state", state), ("--from", before)):
        if value is not None:
            raise SettingError(
                f"{flag} goes with protection 'shares', got a roster with "
                f"{current.terms.protection!r}"
            )
    with progress("steps", total=1 + len(current.split.names)) as tell:
        dealt = deal_files(current, key_dir=key_dir, epoch=epoch, out=out, on_step=tell)
    document = {
        "federation": current.federation,
        "roster": current.number,
        "digest": current.digest,
        "epoch": epoch,
        "deal": dealt.name,
        "envelopes": [asdict(file) for file in dealt.files],
    }
    Output(as_json=as_json).show(document, lambda: [as_table(current, dealt, epoch=epoch)])


def _deal_shares(  # noqa: PLR0913  (options of a command)
    roster: "Roster",
    *,
    key_dir: Path,
    epoch: int,
    out: Path,
    windows: int | None,
    state: Path | None,
    before: "Roster | None",
    output: Output,
) -> None:
    from vfbandits.participant.dealing import WINDOWS, deal_windows

    count = WINDOWS if windows is None else windows
    with progress("windows", total=count) as tell:
        dealt = deal_windows(
            roster,
            key_dir=key_dir,
            epoch=epoch,
            out=out,
            windows=count,
            state=state,
            before=before,
            on_step=tell,
        )
    document = {
        "federation": roster.federation,
        "roster": roster.number,
        "epoch": epoch,
        "deal": dealt.deal,
        "secrets": [str(path) for path in dealt.secrets],
        "windows": {"first": dealt.first, "next": dealt.next_window},
        "decisions": dealt.decisions,
        "size_bytes": dealt.size_bytes,
        "out": str(out),
        "state": str(dealt.state),
    }
    output.show(document, lambda: [windows_table(roster, dealt, epoch=epoch, out=out)])


def rotate(
    *,
    config: Annotated[Path, typer.Option(help="The operator's TOML file.")],
    envelopes: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Dense masks and secret shares: the output of `deal` for the next epoch.",
        ),
    ] = None,
) -> None:
    """Change the masks of a running federation; the model keeps what it has learnt.

    All participants, and a helper without features, must be connected.  For **dense** masks and
    protection **shares** the generator deals first, with the roster in force and the next epoch:
    the one that `vfb federation status` shows, plus one.  On secret shares the windows must be in
    the active participant's folder first.
    """
    import asyncio

    from vfbandits.extras import require
    from vfbandits.protocol.roster import OPERATOR

    require("grpc", extra="rpc", to="connecting to a federation")
    from vfbandits.admin.mask_change import rotate as rotate_masks
    from vfbandits.admin.session import connect

    async def run() -> int:
        async with connect(config, roles=(OPERATOR,)) as session:
            return await rotate_masks(session, envelopes=envelopes)

    say(f"mask epoch {asyncio.run(run())} is in force")


masks_app.command()(in_one_line(deal))
masks_app.command()(in_one_line(rotate))


def as_table(roster: "Roster", deal: "Deal", *, epoch: int) -> "Table":
    """What was dealt, for the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"epoch {epoch} of {roster.federation}, roster {roster.number} "
        f"({roster.digest[:12]}…), deal {deal.name[:12]}…",
        title_justify="left",
        caption="Each envelope is sealed: send it to its participant over any channel. "
        "The mask itself was not saved.",
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("participant")
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("bytes", justify="right")
    table.add_column("envelope", overflow="fold")
    for file in deal.files:
        shape = f"{file.dim} × {file.width}"
        table.add_row(file.participant, shape, f"{file.size_bytes:,}", str(file.path))
    return table


def windows_table(roster: "Roster", dealt: "DealtWindows", *, epoch: int, out: Path) -> "Table":
    """What was dealt for secret shares, for the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        title=f"epoch {epoch} of {roster.federation}, roster {roster.number}, deal "
        f"{dealt.deal[:12]}…",
        title_justify="left",
        caption=f"Copy windows to {roster.active.name!r} whole, in any order and over any channel. "
        f"{dealt.state} has all secrets of the epoch: keep it, and keep it secret.",
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("for")
    table.add_column("what")
    table.add_column("bytes", justify="right")
    table.add_column("file", overflow="fold")
    for path in dealt.secrets:
        size = f"{path.stat().st_size:,}"
        name = path.name.removesuffix(f".epoch-{epoch}.secrets")
        table.add_row(name, "secrets", size, str(path))
    count = dealt.next_window - dealt.first
    numbers = f", {dealt.first} to {dealt.next_window - 1}" if count else ""
    table.add_row(
        roster.active.name,
        f"{count:,} windows{numbers}: {dealt.decisions:,} decisions",
        f"{dealt.size_bytes:,}",
        str(out),
    )
    return table
