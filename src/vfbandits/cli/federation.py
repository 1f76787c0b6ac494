"""``vfb federation``: the files of a new federation, its members and its status."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.federation_init import AuthorityFolder, init
from vfbandits.cli.output import AsJson, Output, say
from vfbandits.cli.passphrase import PassphraseVariable, passphrase_in
from vfbandits.cli.pki import refuse_unless_confirmed
from vfbandits.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from vfbandits.admin.mask_change import Outcome
    from vfbandits.pki.authority import Authority
    from vfbandits.protocol.roster import Roster

federation_app = typer.Typer(
    name="federation",
    help="Create a federation, change its members while it runs, and show its status.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)

OperatorConfig = Annotated[Path, typer.Option("--config", help="The operator's TOML file.")]
Envelopes = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Dense masks and secret shares: the output of vfb masks deal for the new roster.",
    ),
]
RosterOut = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Only write the next signed roster; change nothing."),
]


def add(
    member: Annotated[
        Path, typer.Argument(metavar="FILE", help="The .member.json of the new participant.")
    ],
    *,
    config: OperatorConfig,
    authority: AuthorityFolder,
    envelopes: Envelopes = None,
    roster_out: RosterOut = None,
    accept_leak: Annotated[
        bool,
        typer.Option(
            "--accept-leak",
            help="Protection shares, layouts disjoint and outer: accept that rows of the new "
            "participant can be read from what is released.",
        ),
    ] = False,
    passphrase_env: PassphraseVariable = None,
) -> None:
    """Add a passive participant to a running federation; the model keeps what it has learnt.

    With **blockwise** masks this is one step.

    With **dense** masks and protection **shares** it takes three steps, since the mask generator
    deals for the new roster:

    1. `vfb federation add … --roster-out next.signed` writes the new roster and prints its epoch.

    2. `vfb masks deal --roster next.signed --epoch EPOCH --out DIR …`, on the generator's machine;
    on secret shares with `--from`, the roster in force.

    3. `vfb federation add … --envelopes DIR` puts both into force.
    """
    from vfbandits.extras import require

    require("grpc", extra="rpc", to="connecting to a federation")
    from vfbandits.admin.federation_files import (
        find_approved,
        put_roster,
        with_member,
        write_folder,
    )
    from vfbandits.admin.kit import ROSTER, pack
    from vfbandits.pki.authority import Authority
    from vfbandits.protocol.dealt import secrets_name
    from vfbandits.settings.services import load_client
    from vfbandits.settings.template import config_text

    organiser = Authority.load(authority, passphrase=passphrase_in(passphrase_env))
    newcomer = find_approved(organiser, [member])[0].member
    outcome = _change(
        config,
        lambda roster: with_member(roster, newcomer, accept_leak=accept_leak),
        organiser,
        envelopes=envelopes,
        roster_out=roster_out,
    )
    if roster_out is not None:
        return
    place = load_client(config)
    out = place.roster.parent
    text = config_text(newcomer, outcome.roster, address=place.address, roster_file=ROSTER)
    if (out / newcomer.name).exists():  # from an earlier try
        put_roster(outcome.signed, out / newcomer.name / ROSTER)
        kit = pack(newcomer.name, out)
    else:
        kit = write_folder(newcomer.name, text, outcome.signed, organiser, out)
    say(f"send {kit} to {newcomer.name}, who runs vfb federation join")
    if outcome.roster.terms.shares is not None:
        secrets = secrets_name(newcomer.name, outcome.epoch)
        say(f"send it {secrets} too, for the folder dealt next to its configuration")


def join(
    kit: Annotated[Path, typer.Argument(metavar="FILE", help="The kit that the organiser sent.")],
    *,
    folder: Annotated[
        Path, typer.Option("--dir", help="Your folder, with identity and features.toml.")
    ] = Path(),
    fingerprint: Annotated[
        str | None,
        typer.Option(
            help="Fingerprint of the authority, as the organiser read it out.",
            show_default="ask for it",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Unpack the organiser's kit next to your keys: roster, certificates and your configuration.

    Checks that the authority signed the roster and your certificate, and that both are for your
    keys.  If you have fitted a scaling, [features] is filled in.  Nothing is overwritten.
    """
    from vfbandits.admin.kit import Kit
    from vfbandits.protocol.identity import spell_digest
    from vfbandits.protocol.roster import SEALING_ROLES

    received = Kit.read(kit)
    refuse_unless_confirmed(received.fingerprint, fingerprint, who=received.subject.federation)
    joined = received.take_in(folder)
    role, name = received.subject.role, received.subject.name
    document = {
        "federation": received.subject.federation,
        "name": name,
        "role": role,
        "config": joined.config,
        "features": joined.has_features,
        "authority": received.fingerprint,
    }
    output = Output(as_json=as_json)
    output.show(document, list)
    output.say(f"{role} {name!r} of {received.subject.federation}: wrote {joined.config}")
    output.say(f"authority {spell_digest(received.fingerprint)}")
    if joined.has_features:
        output.say("[features] is filled in from features.toml")
    elif role == "passive":
        output.say(f"next: fill in [features] of {joined.config}: where your features are stored")
    if role in SEALING_ROLES:
        output.say(f"check: vfb preflight --config {joined.config}")
        output.say(f"start: vfb serve {role} --config {joined.config}")


def remove(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A passive participant.")],
    *,
    config: OperatorConfig,
    authority: AuthorityFolder,
    envelopes: Envelopes = None,
    roster_out: RosterOut = None,
    passphrase_env: PassphraseVariable = None,
) -> None:
    """Remove a passive participant from a running federation, and its features from the model.

    All other participants must be connected.  With **dense** masks and protection **shares** this
    takes the same three steps as `vfb federation add`.
    """
    from vfbandits.extras import require

    require("grpc", extra="rpc", to="connecting to a federation")
    from vfbandits.admin.federation_files import without_member
    from vfbandits.pki.authority import Authority

    organiser = Authority.load(authority, passphrase=passphrase_in(passphrase_env))
    _change(
        config,
        lambda roster: without_member(roster, name),
        organiser,
        envelopes=envelopes,
        roster_out=roster_out,
    )


def status(
    *,
    config: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="TOML file of any member.")
    ],
    as_json: AsJson = False,
) -> None:
    """Show the status of the federation, as the active participant reports it.

    Every role may ask.  A passive participant sees all links but only its own counts; the mask
    generator sees links only.
    """
    import asyncio

    from vfbandits.cli.status_table import status_table
    from vfbandits.extras import require
    from vfbandits.protocol.identity import CERTIFIED_ROLES

    require("grpc", extra="rpc", to="connecting to a federation")
    from vfbandits.admin.session import connect

    async def ask() -> dict[str, object]:
        async with connect(config, roles=CERTIFIED_ROLES) as session:
            return await session.status()

    document = asyncio.run(ask())
    Output(as_json=as_json).show(document, lambda: [status_table(document)])


for command in (init, join, add, remove, status):
    federation_app.command()(in_one_line(command))


def _change(
    config: Path,
    change: "Callable[[Roster], Roster]",
    organiser: "Authority",
    *,
    envelopes: Path | None,
    roster_out: Path | None,
) -> "Outcome":
    import asyncio

    from vfbandits.admin.federation_files import put_roster
    from vfbandits.admin.mask_change import change_members, next_roster
    from vfbandits.admin.session import connect
    from vfbandits.protocol.roster import OPERATOR
    from vfbandits.settings.services import load_client

    if envelopes is not None and roster_out is not None:
        raise ConfigError(
            "wanted --roster-out (before masks are dealt) or --envelopes (after), got both"
        )

    async def run() -> "Outcome":
        async with connect(config, roles=(OPERATOR,)) as session:
            if roster_out is None:
                return await change_members(session, change, organiser, envelopes=envelopes)
            return await next_roster(session, change, organiser)

    outcome = asyncio.run(run())
    if roster_out is not None:
        put_roster(outcome.signed, roster_out)
        _say_how_to_deal(outcome, roster_out, organiser, in_force=load_client(config).roster)
    else:
        had = "was already in force" if outcome.was_done else "is in force"
        say(f"roster number {outcome.roster.number} {had}, mask epoch {outcome.epoch}")
    return outcome


def _say_how_to_deal(
    outcome: "Outcome", roster_out: Path, organiser: "Authority", *, in_force: Path
) -> None:
    say(f"wrote {roster_out}: roster number {outcome.roster.number}, not yet in force")
    is_shared = outcome.roster.terms.shares is not None
    if outcome.roster.terms.mask != "dense" and not is_shared:
        say("blockwise masks are not dealt: run this command again without --roster-out")
        return
    say("next, on the mask generator's machine:")
    say(
        f"  vfb masks deal --roster {roster_out} --authority {organiser.certificate_path} "
        f"--key-dir … --epoch {outcome.epoch} --out envelopes"
        + (f" --from {in_force}" if is_shared else "")
    )
    if is_shared:
        say(f"copy its windows to {outcome.roster.active.name!r}, into its folder dealt")
    say("then run this command again with --envelopes envelopes instead of --roster-out")
