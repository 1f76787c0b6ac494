"""``vfb federation init``: from approved members to a folder for each of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from vfbandits.cli.choices import AggregationName, LayoutName, MaskName
from vfbandits.cli.passphrase import PassphraseVariable, passphrase_in
from vfbandits.cli.say import say
from vfbandits.errors import ConfigError
from vfbandits.protocol.identity import GENERATOR
from vfbandits.protocol.roster import Roster, Terms
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.service.address import split_address
from vfbandits.service.federation_files import ROSTER, find_approved, make_roster, write_folders
from vfbandits.service.pki_authority import Authority

AuthorityFolder = Annotated[
    Path, typer.Option("--authority", metavar="DIR", help="The organiser's folder (vfb pki init).")
]


def init(  # noqa: PLR0913  (one argument for each flag)
    *,
    authority: AuthorityFolder,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where others reach the active participant.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Gets a folder for each member.")],
    federation: Annotated[
        str | None,
        typer.Option("--federation", "--name", help="Its name.", show_default="the authority's"),
    ] = None,
    member: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="An approved member, NAME.member.json. May come more than once.",
            show_default="all that the authority approved",
        ),
    ] = None,
    mask: Annotated[
        MaskName, typer.Option(help="dense needs a mask generator among the members.")
    ] = MaskName.blockwise,
    aggregation: Annotated[
        AggregationName, typer.Option(help="secure needs dense masks and 3 participants.")
    ] = AggregationName.plain,
    layout: Annotated[LayoutName, typer.Option(help="Where the arm enters.")] = LayoutName.per_arm,
    arm_dim: Annotated[int, typer.Option(help="Features of an arm, layout outer.")] = 0,
    intercept: Annotated[
        bool, typer.Option("--intercept", help="A 1 before the features, outer and disjoint.")
    ] = False,
    bound: Annotated[float, typer.Option(help="No masked number may be larger.")] = 64.0,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where the active participant listens, as 0.0.0.0:7443.",
            show_default="--address",
        ),
    ] = None,
    passphrase_env: PassphraseVariable = None,
) -> None:
    """Sign the first roster, and write a folder with roster and commented TOML for each member.

    Send each folder to its member, who puts the identity folder of `vfb pki request` into it.
    Nothing in it is secret.
    """
    for place in filter(None, (address, listen)):
        split_address(place)
    terms = Terms(mask.value, aggregation.value, layout.value, arm_dim, intercept, bound)
    organiser = Authority.load(authority, passphrase=passphrase_in(passphrase_env))
    if federation not in (None, organiser.federation):
        raise ConfigError(f"the authority is of {organiser.federation!r}, got {federation!r}")
    approved = find_approved(organiser, member or ())
    roster = make_roster(approved, terms, federation=organiser.federation)
    generators = [item.claim.name for item in approved if item.claim.generator_key]
    write_folders(
        roster,
        sign_roster(roster, organiser.private_key),
        out,
        address=address,
        listen=listen or "",
        more=generators,
    )
    say(_title(roster))
    Console().print(_members(roster, generators, out))
    _say_what_next(roster, organiser)


def _title(roster: Roster) -> str:
    terms = roster.terms
    return (
        f"{roster.federation}: {terms.mask} masks, {terms.aggregation} sums, layout "
        f"{terms.layout}, {roster.split.dim} features; protection {terms.protection!r}"
    )


def _members(roster: Roster, generators: Sequence[str], out: Path) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column("member")
    table.add_column("role")
    table.add_column("width", justify="right")
    table.add_column("folder", overflow="fold")
    for member in roster:
        width = str(member.width) if member.width else "–"
        table.add_row(member.name, member.role, width, str(out / member.name))
    for name in generators:
        table.add_row(name, GENERATOR, "–", str(out / name))
    return table


def _say_what_next(roster: Roster, organiser: Authority) -> None:
    active = roster.active.name
    say("next:")
    say("  send each folder to its member, who puts its identity folder into it")
    say("  participants say where their features are, under [features]")
    if roster.terms.mask == "dense":
        say(
            f"  vfb masks deal --roster {ROSTER} --authority {organiser.certificate_path.name} "
            f"--key-dir … --epoch 1 --out envelopes, by the generator; {active} gets envelopes"
        )
    say("  vfb preflight --config NAME.toml, each")
    say(f"  vfb serve active --config {active}.toml, then vfb serve passive by the others")
