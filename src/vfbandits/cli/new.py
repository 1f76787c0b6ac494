"""``vfb new``: the folder of a rank/reward server for one company."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import LayoutName
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import FEATURES, LEARNING, NETWORK, OUTPUT
from vfbandits.cli.poc import notes
from vfbandits.cli.who import who
from vfbandits.errors import SettingError

if TYPE_CHECKING:
    from vfbandits.demo.kits import Block
    from vfbandits.protocol.roster import Terms

LOCALHOST = "127.0.0.1"


def new(  # noqa: PLR0913  (one argument for each flag)
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the server.")],
    *,
    width: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of features that come with each request.",
            show_default="from --table",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="CSV or Parquet with the features of users, which need not come with requests.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    key: Annotated[
        str, typer.Option(help="Column of --table with the user.", rich_help_panel=FEATURES)
    ] = "user",
    exclude: Annotated[
        list[str] | None,
        typer.Option(
            help="A column of --table that is no feature. Can be repeated.",
            rich_help_panel=FEATURES,
        ),
    ] = None,
    layout: Annotated[
        LayoutName, typer.Option(help="How contexts depend on the arm.", rich_help_panel=LEARNING)
    ] = LayoutName.disjoint,
    arm_dim: Annotated[
        int, typer.Option(help="Layout outer: number of arm features.", rich_help_panel=LEARNING)
    ] = 0,
    port: Annotated[
        int,
        typer.Option(min=1, max=65_535, help="Port of HTTP, on loopback.", rich_help_panel=NETWORK),
    ] = 8080,
    address: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where passive participants and rankers would connect.",
            rich_help_panel=NETWORK,
        ),
    ] = f"{LOCALHOST}:7443",
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder.", show_default="NAME", rich_help_panel=OUTPUT),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write the folder of a rank/reward server for one company: file, keys and an API key.

    There is no other participant, and none is needed.  `vfb federation add` adds one later, and the
    model keeps what it has learnt.
    """
    from vfbandits.extras import require_extras

    require_extras("rpc", "http", to="a server")
    from vfbandits.demo.kits import Block, Site, flatten, staged, write_kits
    from vfbandits.demo.tables import Question, name_sources, read_owners
    from vfbandits.protocol.identity import refuse_unless_label
    from vfbandits.protocol.roster import PSEUDONYMS, Terms
    from vfbandits.settings.address import split_address

    refuse_unless_label(name, "NAME")
    split_address(address)
    if (width is None) == (table is None):
        came = "neither" if width is None else "both"
        raise SettingError(f"wanted --width or --table, got {came}")
    site = Site(name, address, f"{LOCALHOST}:{port}", who())
    terms = Terms(
        layout=layout.value,
        arm_dim=arm_dim,
        intercept=layout is not LayoutName.per_arm,
        users=PSEUDONYMS,
    )
    with staged(out or Path(name)) as folder:
        parts = folder / "parts"
        remarks: list[str] = []
        if table is None:
            block = Block(name, width or 0)
            example = _example(block, terms)
        else:
            question = Question(key, layout=layout.value, exclude=tuple(exclude or ()))
            owners = read_owners(name_sources([f"{name}={table}"]), question, parts)
            block, example = Block.of(owners.owners[0]), owners.example
            terms = replace(terms, bound=owners.bound)
            remarks = notes(owners)
        made = write_kits(parts, [block], terms, site, example=example)
        flatten(parts, name, folder)
    made = replace(made, folder=out or Path(name))
    config = made.folder / f"{name}.toml"
    document = {
        "folder": made.folder,
        "config": config,
        "url": made.url,
        "key": made.key,
        "rank": made.rank_command,
    }
    output = Output(as_json=as_json)
    output.show(document, list)
    output.say(f"wrote {made.folder}: {config.name}, an identity, and an API key in app")
    for line in remarks:
        output.say(line)
    output.say("start:")
    output.say(f"  vfb serve active --config {config}")
    output.say("try:")
    output.say(f"  {made.rank_command}")
    output.say(f"dashboard: {made.url}/#key={made.key}")


def _example(block: "Block", terms: "Terms") -> dict[str, object]:
    """A rank request with features."""
    features, arms = _some(block.width), ["tea", "coffee"]
    if terms.layout == LayoutName.disjoint.value:
        return {"user": "ann", "arms": arms, "features": features}
    if terms.layout == LayoutName.per_arm.value:
        return {"user": "ann", "arms": [{"id": arm, "features": features} for arm in arms]}
    of_arms = [{"id": arm, "features": _some(terms.arm_dim)} for arm in arms]
    return {"user": "ann", "arms": of_arms, "features": features}


def _some(count: int) -> list[float]:
    """Numbers as features may be: 0.1, 0.2 and so on, below 1."""
    return [round(0.1 * (1 + place % 9), 1) for place in range(count)]
