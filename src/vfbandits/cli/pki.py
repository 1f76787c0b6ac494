"""``vfb pki``: private keys that stay with their owners, and certificates by the organiser."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.passphrase import PassphraseVariable, passphrase_in
from vfbandits.cli.who import who
from vfbandits.errors import IdentityError, SettingError

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.pki import Facts
    from vfbandits.pki.approval_record import ApprovalEntry

pki_app = typer.Typer(
    name="pki",
    help="Create keys, and request, issue and show certificates.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


class RoleName(StrEnum):
    """What a certificate is for."""

    active = "active"
    passive = "passive"
    application = "application"
    operator = "operator"
    generator = "generator"


def init(
    *,
    federation: Annotated[str, typer.Option(help="Name of the federation.")],
    folder: Annotated[Path, typer.Option("--dir", help="Folder for the authority (mode 0700).")],
    passphrase_env: PassphraseVariable = None,
    as_json: AsJson = False,
) -> None:
    """Create the certificate authority of a federation: the organiser's key and certificate."""
    from vfbandits.pki import create_authority

    output = Output(as_json=as_json)
    authority = create_authority(folder, federation, passphrase=passphrase_in(passphrase_env))
    output.say(f"created the authority of {federation}: {authority.certificate_path}")
    output.say("keep its private key secret: the holder can admit members to the federation")
    _show(authority.certificate_path, output)


def request(  # noqa: PLR0913  (one argument for each flag)
    *,
    federation: Annotated[str, typer.Option(help="Name of the federation.")],
    name: Annotated[str, typer.Option(help="Your name in the federation.")],
    role: Annotated[RoleName, typer.Option(help="Your role in the federation.")],
    folder: Annotated[Path, typer.Option("--dir", help="Folder for your keys (mode 0700).")],
    width: Annotated[
        int | None,
        typer.Option(help="Number of your features, after scaling.", show_default="from --scaling"),
    ] = None,
    scaling: Annotated[
        str | None, typer.Option(help="Your fitted scaling: the file or its digest.")
    ] = None,
    reuse_keys: Annotated[
        bool, typer.Option("--reuse-keys", help="Write the request again, for existing keys.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create your private keys, which stay here, and a certificate request for the organiser."""
    from vfbandits.pki import create_request

    output = Output(as_json=as_json)
    digest, columns = _scaling(scaling)
    if width is not None and columns and width != columns:
        raise SettingError(
            f"--width must be {columns}, the number of features of --scaling, got {width}"
        )
    path = create_request(
        folder,
        federation=federation,
        name=name,
        role=role.value,
        width=columns if width is None else width,
        scaling=digest,
        reuse_keys=reuse_keys,
    )
    output.say(f"wrote {path}: send it to the organiser, and read out the fingerprint on the phone")
    _show(path, output)


def approve(  # noqa: PLR0913  (one argument for each flag)
    request: Annotated[
        Path, typer.Argument(metavar="REQUEST", help="The request file of the new member.")
    ],
    *,
    folder: Annotated[Path, typer.Option("--dir", help="Folder of the authority.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="File or folder for the certificate.", show_default="next to the request"
        ),
    ] = None,
    days: Annotated[int, typer.Option(help="Validity in days.")] = 365,
    dns: Annotated[
        list[str] | None, typer.Option(help="A host name of the member. Can be repeated.")
    ] = None,
    ip: Annotated[
        list[str] | None, typer.Option(help="An IP address of the member. Can be repeated.")
    ] = None,
    renew: Annotated[
        bool, typer.Option("--renew", help="Issue a new certificate for an approved key.")
    ] = False,
    fingerprint: Annotated[
        str | None, typer.Option(help="Refuse the request unless this is its fingerprint.")
    ] = None,
    passphrase_env: PassphraseVariable = None,
    as_json: AsJson = False,
) -> None:
    """Issue a certificate for the keys, name and role in a request."""
    from vfbandits.pki import Grant
    from vfbandits.pki import approve as approve_request

    output = Output(as_json=as_json)
    if fingerprint is not None:
        _refuse_other(fingerprint, request)
    grant = Grant(days, tuple(dns or ()), tuple(ip or ()), renew)
    approval = approve_request(
        request,
        folder,
        out=out,
        grant=grant,
        passphrase=passphrase_in(passphrase_env),
        by=who(),
    )
    to_send = (approval.certificate_path, approval.member_path, approval.authority_path)
    _show(approval.certificate_path, output, send=to_send)
    if fingerprint is None and not renew:  # a renewed key was compared before
        output.say("before you use this, compare the fingerprint with the owner's on the phone")
    output.say("send these files to the owner, none is secret:")
    for path in to_send:
        output.say(f"  {path}")


def show(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Certificate, request, member or roster.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Print the contents of a public file."""
    _show(file, Output(as_json=as_json))


def approvals(
    *,
    folder: Annotated[Path, typer.Option("--dir", help="Folder of the authority.")],
    as_json: AsJson = False,
) -> None:
    """List who approved which member, and when.

    The exit code is 1 if an entry was changed or removed.
    """
    import msgspec

    from vfbandits.pki.approval_record import read_approvals

    found, problem = read_approvals(folder)
    output = Output(as_json=as_json)
    document = {"approvals": msgspec.to_builtins(found), "problem": problem}
    output.show(document, lambda: [_approvals_table(found)])
    if problem:
        output.say(f"problem: {problem}")
        raise typer.Exit(1)


for command in (init, request, approve, show, approvals):
    pki_app.command()(in_one_line(command))


def _scaling(text: str | None) -> tuple[str, int]:
    """Digest and width of a scaling in a file; the width of a bare digest is not known, 0."""
    if text is None:
        return "", 0
    if len(text) == 64 and not Path(text).exists():
        return text, 0
    from vfbandits.features.scaling import Scaling

    scaling = Scaling.load(text)
    return scaling.digest, scaling.width


def _refuse_other(fingerprint: str, path: Path) -> None:
    from vfbandits.pki.documents import Request
    from vfbandits.pki.files import read_file
    from vfbandits.protocol.identity import spell_digest

    came = Request.from_bytes(read_file(path, "a request")).key_digest
    if "".join(fingerprint.replace(":", "").split()).lower() != came:
        raise IdentityError(
            f"--fingerprint must be that of {path}, {spell_digest(came)}, got {fingerprint!r}"
        )


def _show(file: Path, output: Output, *, send: tuple[Path, ...] = ()) -> None:
    from vfbandits.pki import describe

    facts = describe(file, datetime.now(UTC))
    document = {"file": file, "kind": facts.kind, "facts": dict(facts.rows)}
    output.show({**document, "send": send} if send else document, lambda: [_table(facts)])


def _approvals_table(entries: "list[ApprovalEntry]") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD)
    for heading in ("at", "by", "what", "name", "role", "key", "valid until"):
        table.add_column(heading, overflow="fold")
    for one in entries:
        at, until = (when.isoformat(" ", "minutes") for when in (one.at, one.until))
        key = f"{one.key[:16]}…"
        table.add_row(*map(Text, (at, one.by, one.what, one.name, one.role, key, until)))
    return table


def _table(facts: "Facts") -> "Table":
    from rich.table import Table

    table = Table(title=facts.kind, title_justify="left", box=None, show_header=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for what, value in facts.rows:
        table.add_row(what, value)
    return table
