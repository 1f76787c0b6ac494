"""``vfb masks``: the generator deals masks, and the operator puts new ones into force."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.output import AsJson, Output, say
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.participant.generator import Deal
    from vfbandits.protocol.roster import Roster

masks_app = typer.Typer(name="masks", no_args_is_help=True, rich_markup_mode="markdown")


@masks_app.callback()
def masks() -> None:
    """Draw masks, seal each participant's share, and put new masks into force."""


def deal(
    *,
    roster: Annotated[Path, typer.Option(help="The signed roster.")],
    authority: Annotated[Path, typer.Option(help="Certificate of the federation's authority.")],
    key_dir: Annotated[Path, typer.Option(help="The generator's identity folder.")],
    epoch: Annotated[int, typer.Option(min=0, help="Mask epoch; each epoch is dealt once.")],
    out: Annotated[Path, typer.Option(help="Folder for the envelopes.")],
    as_json: AsJson = False,
) -> None:
    """Draw a dense mask and write one sealed envelope for each participant.

    Run this on a machine that the active participant has no access to.  Envelopes need no secure
    channel: only the addressed participant can open one.
    """
    from vfbandits.participant.generator import deal_files
    from vfbandits.pki import load_roster

    current = load_roster(roster, authority)
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


def rotate(
    *,
    config: Annotated[Path, typer.Option(help="The operator's TOML file.")],
    envelopes: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Dense masks: the output of `deal` for the next epoch."),
    ] = None,
) -> None:
    """Change the masks of a running federation; the model keeps what it has learnt.

    All participants must be connected.  For **dense** masks the generator deals first, with the
    roster in force and the next epoch: the one that `vfb federation status` shows, plus one.
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
