"""``vfb federation init``: from approved members to a folder for each of them."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import (
    AggregationName,
    LayoutName,
    MaskName,
    ProtectionName,
    ReleaseName,
    SharedPolicyName,
    UsersName,
)
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import FEDERATION, LEARNING
from vfbandits.cli.passphrase import PassphraseVariable, passphrase_in
from vfbandits.cli.who import who
from vfbandits.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.protocol.roster import Roster, SharesRules, Terms

AuthorityFolder = Annotated[
    Path, typer.Option("--authority", metavar="DIR", help="The organiser's folder (vfb pki init).")
]


def init(  # noqa: PLR0913  (one argument for each flag)
    *,
    authority: AuthorityFolder,
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Public address of the active participant.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Output folder; each member gets a subfolder.")
    ],
    federation: Annotated[
        str | None,
        typer.Option(
            "--federation", "--name", help="Name of the federation.", show_default="the authority's"
        ),
    ] = None,
    member: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="An approved member, NAME.member.json. Can be repeated.",
            show_default="all approved members",
        ),
    ] = None,
    mask: Annotated[
        MaskName,
        typer.Option(
            help="dense needs a mask generator among the members.", rich_help_panel=FEDERATION
        ),
    ] = MaskName.blockwise,
    aggregation: Annotated[
        AggregationName,
        typer.Option(
            help="secure needs dense masks and 3 participants.", rich_help_panel=FEDERATION
        ),
    ] = AggregationName.plain,
    protection: Annotated[
        ProtectionName | None,
        typer.Option(
            help="shares (experimental): secret shares between the active participant and "
            "--helper; needs a mask generator among the members.",
            show_default="what --aggregation says",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    helper: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Protection shares: the second server, a passive participant or a member with "
            "the role helper.",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    max_arms: Annotated[
        int | None,
        typer.Option(
            help="Protection shares: maximum number of arms in a decision.",
            show_default="16",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    release: Annotated[
        ReleaseName | None,
        typer.Option(
            help="Protection shares: what the active participant learns of a decision.",
            show_default="arm",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    policy: Annotated[
        SharedPolicyName | None,
        typer.Option(
            help="Protection shares: the policy for which words are dealt.",
            show_default="lints",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    posterior_scale: Annotated[
        float | None,
        typer.Option(
            help="Protection shares: posterior_scale of lints.",
            show_default="0.1",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    beta: Annotated[
        float | None,
        typer.Option(
            help="Protection shares: beta of linucb.",
            show_default="0.5",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    arm_bound: Annotated[
        float | None,
        typer.Option(
            help="Protection shares, layout outer: upper limit for the norm of arm features.",
            show_default="1",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    accept_leak: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Protection shares, layouts disjoint and outer: accept that rows of this passive "
            "participant can be read from what is released. Can be repeated.",
            show_default="none",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    ridge: Annotated[
        float | None,
        typer.Option(
            help="Protection shares: ridge, for which words are dealt.",
            show_default="1",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    bound: Annotated[
        float | None,
        typer.Option(
            help="Upper limit for masked values; with shares, for the norm of a row.",
            show_default="64, or 1 with shares",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    users: Annotated[
        UsersName,
        typer.Option(
            help="How passive participants are asked for users: by pairwise pseudonyms, or by ids "
            "in the clear.",
            rich_help_panel=FEDERATION,
        ),
    ] = UsersName.pseudonyms,
    layout: Annotated[
        LayoutName, typer.Option(help="How contexts depend on the arm.", rich_help_panel=LEARNING)
    ] = LayoutName.per_arm,
    arm_dim: Annotated[
        int, typer.Option(help="Layout outer: number of arm features.", rich_help_panel=LEARNING)
    ] = 0,
    intercept: Annotated[
        bool,
        typer.Option(
            "--intercept",
            help="Layouts outer and disjoint: add an intercept.",
            rich_help_panel=LEARNING,
        ),
    ] = False,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Listening address of the active participant, such as 0.0.0.0:7443.",
            show_default="--address",
        ),
    ] = None,
    operator: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Create the keys of your own operator too, in its folder.",
            show_default="no operator, or an approved one",
        ),
    ] = None,
    passphrase_env: PassphraseVariable = None,
    as_json: AsJson = False,
) -> None:
    """Sign the first roster, and write a folder and a kit for each member.

    A folder has the roster, a commented TOML file and the certificates; NAME.zip is the same as one
    file.  Send each kit to its member, who runs `vfb federation join`.  It contains no secrets.
    """
    from vfbandits.admin.federation_files import (
        admit_operator,
        find_approved,
        make_roster,
        refuse_existing_folders,
        write_folders,
    )
    from vfbandits.pki.authority import Authority
    from vfbandits.protocol.roster import Terms
    from vfbandits.settings.address import split_address

    for place in filter(None, (address, listen)):
        split_address(place)
    given = {
        "helper": helper,
        "release": None if release is None else release.value,
        "policy": None if policy is None else policy.value,
        "posterior_scale": posterior_scale,
        "beta": beta,
        "max_arms": max_arms,
        "ridge": ridge,
        "arm_bound": arm_bound,
        "accept_leak": tuple(accept_leak) if accept_leak else None,
    }
    shares = _shares(
        protection,
        layout.value,
        {key: value for key, value in given.items() if value is not None},
    )
    if bound is None:
        bound = 64.0 if shares is None else 1.0
    terms = Terms(
        mask.value,
        aggregation.value,
        layout=layout.value,
        arm_dim=arm_dim,
        intercept=intercept,
        bound=bound,
        users=users.value,
        shares=shares,
    )
    if protection is not None and terms.protection != protection.value:
        raise ConfigError(
            f"--aggregation {aggregation.value} is protection {terms.protection!r}, got "
            f"--protection {protection.value}"
        )
    organiser = Authority.load(authority, passphrase=passphrase_in(passphrase_env))
    if federation not in (None, organiser.federation):
        raise ConfigError(
            f"--federation must be the authority's, {organiser.federation!r}, got {federation!r}"
        )
    approved = find_approved(organiser, member or ())
    roster = make_roster(approved, terms, federation=organiser.federation)
    generators = [item.claim.name for item in approved if item.claim.generator_key]
    names = [*(member.name for member in roster), *generators]
    refuse_existing_folders([*names, *filter(None, [operator])], out)
    if operator is not None:
        approved.append(admit_operator(organiser, operator, out, by=who()))
        roster = make_roster(approved, terms, federation=organiser.federation)
    write_folders(
        roster,
        organiser,
        out,
        address=address,
        listen=listen or "",
        generators=generators,
    )
    output = Output(as_json=as_json)
    members = _members(roster, generators, out, operator)
    output.say(_title(roster))
    output.show(_document(roster, members), lambda: [_table(members)])
    for line in _what_next(roster):
        output.say(line)


def _shares(
    protection: ProtectionName | None, layout: str, given: dict[str, str | float | tuple[str, ...]]
) -> "SharesRules | None":
    """The rules of protection "shares"; its flags are refused without it."""
    from vfbandits.core.policy.registry import make_policy
    from vfbandits.core.shares.released import plan
    from vfbandits.protocol.roster import SharesRules

    if protection is not ProtectionName.shares:
        for key in given:
            came = "no --protection" if protection is None else f"--protection {protection.value}"
            flag = f"--{key.replace('_', '-')}"
            raise ConfigError(f"{flag} goes with --protection shares, got {came}")
        return None
    if "helper" not in given:
        raise ConfigError(
            "--protection shares needs --helper, a passive participant or a member with the role "
            "helper, got none"
        )
    name = str(given.pop("policy", "lints"))
    owners = {"posterior_scale": "lints", "beta": "linucb"}
    parameters: dict[str, object] = {key: given.pop(key) for key in owners if key in given}
    for key in parameters:
        if owners[key] != name:
            flag = f"--{key.replace('_', '-')}"
            raise ConfigError(f"{flag} goes with --policy {owners[key]}, got --policy {name}")
    if "arm_bound" in given and layout != "outer":
        raise ConfigError(f"--arm-bound goes with --layout outer, got --layout {layout}")
    if "accept_leak" in given and layout == "per_arm":
        raise ConfigError("--accept-leak goes with --layout disjoint and outer, got per_arm")
    if "beta" in parameters and given.get("release") == "statistics":
        raise ConfigError(
            "--beta goes with --release arm, got statistics: then beta is set under [model] in the "
            "file of the active participant"
        )
    planned = plan(make_policy(name, parameters), str(given.get("release", "arm")), layout)
    return SharesRules(
        reads=planned.reads,
        posterior_scale=planned.posterior_scale,
        beta=planned.beta,
        **given,  # type: ignore[arg-type]  # by name
    )


def _title(roster: "Roster") -> str:
    terms = roster.terms
    return (
        f"{roster.federation}: {terms.mask} masks, {terms.aggregation} sums, layout "
        f"{terms.layout}, {roster.split.dim} features, users by {_users(terms)}; "
        f"protection {terms.protection!r}"
    )


def _users(terms: "Terms") -> str:
    return "pseudonyms" if terms.users == "pseudonyms" else "ids in the clear"


def _document(roster: "Roster", members: list[dict[str, object]]) -> dict[str, object]:
    terms = roster.terms
    return {
        "federation": roster.federation,
        "roster": roster.number,
        "digest": roster.digest,
        "mask": terms.mask,
        "aggregation": terms.aggregation,
        "layout": terms.layout,
        "users": terms.users,
        "dim": roster.split.dim,
        "protection": terms.protection,
        **({} if terms.shares is None else {"shares": asdict(terms.shares)}),
        "members": members,
    }


def _members(
    roster: "Roster", generators: Sequence[str], out: Path, operator: str | None
) -> list[dict[str, object]]:
    from vfbandits.admin.kit import kit_path
    from vfbandits.protocol.identity import GENERATOR

    members = [(member.name, member.role, member.width) for member in roster]
    members += [(name, GENERATOR, 0) for name in generators]
    return [
        {
            "name": name,
            "role": role,
            "width": width,
            "folder": out / name,
            "kit": None if name == operator else kit_path(out, name),
        }
        for name, role, width in members
    ]


def _table(members: list[dict[str, object]]) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    table.add_column("member")
    table.add_column("role")
    table.add_column("width", justify="right")
    table.add_column("send", overflow="fold")
    for member in members:
        width, kit = member["width"] or "–", member["kit"] or f"stays here: {member['folder']}"
        table.add_row(str(member["name"]), str(member["role"]), str(width), str(kit))
    return table


def _what_next(roster: "Roster") -> list[str]:
    from vfbandits.admin.kit import IDENTITY, ROSTER
    from vfbandits.protocol.identity import AUTHORITY
    from vfbandits.protocol.roster import HELPER

    deal = (
        f"  vfb masks deal --roster {ROSTER} --authority {IDENTITY}/{AUTHORITY}.crt --key-dir "
        f"{IDENTITY} --epoch 1"
    )
    active = roster.active.name
    lines = [
        "next:",
        "  send each kit to its member, and read out the fingerprint of the authority",
        "  vfb federation join NAME.zip, by each member where its keys are",
    ]
    if roster.terms.mask == "dense":
        lines.append(f"{deal} --out envelopes, by the generator; send envelopes to {active}")
    if roster.terms.shares is not None:
        lines.append(
            f"{deal} --windows 64 --out dealt, by the generator; send each file to the member that "
            "it names, into its folder dealt"
        )
    helpers = [member.name for member in roster if member.role == HELPER]
    serve = [f"vfb serve helper by {name}" for name in helpers] + [
        "vfb serve passive by the others"
    ]
    return [
        *lines,
        "  vfb preflight --config NAME.toml, by each member",
        f"  vfb serve active --config {active}.toml, then {', '.join(serve)}",
    ]
