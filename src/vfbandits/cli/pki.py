"""``vfb pki``: private keys that stay with their owners, and certificates by the organiser."""

from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.features import (
    Columns,
    Key,
    OneHot,
    Scale,
    ScaleName,
    fit_table,
    save_fitted,
)
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import FEATURES
from vfbandits.cli.passphrase import PassphraseVariable, passphrase_in
from vfbandits.cli.who import who
from vfbandits.errors import IdentityError, SettingError

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.pki import Facts, Request
    from vfbandits.pki.approval_record import ApprovalEntry

SCALING = "scaling.json"

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
    helper = "helper"
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
        str | None,
        typer.Option(
            help="Your fitted scaling: the file or its digest. With --source, the output file.",
            show_default="with --source: scaling.json next to --dir",
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Fit the scaling on this table now.", rich_help_panel=FEATURES
        ),
    ] = None,
    key: Key = "user",
    columns: Columns = "",
    one_hot: OneHot = "",
    scale: Scale = ScaleName.standard,
    reuse_keys: Annotated[
        bool, typer.Option("--reuse-keys", help="Write the request again, for existing keys.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create your private keys, which stay here, and a certificate request for the organiser.

    With --source it first fits the scaling of your features, as `vfb features fit` does.
    """
    from vfbandits.pki import create_request

    output = Output(as_json=as_json)
    fitted = None
    if source is not None:
        fitted = fit_table(source, key=key, columns=columns, one_hot=one_hot, scale=scale)
    elif columns or one_hot:
        raise SettingError("--columns and --one-hot name columns of --source, got no --source")
    digest, n_features = _scaling(scaling) if fitted is None else (fitted.digest, fitted.width)
    if width is not None and n_features and width != n_features:
        raise SettingError(
            f"--width must be {n_features}, the number of features of --scaling, got {width}"
        )
    path = create_request(
        folder,
        federation=federation,
        name=name,
        role=role.value,
        width=n_features if width is None else width,
        scaling=digest,
        reuse_keys=reuse_keys,
    )
    if fitted is not None and source is not None:
        # After the request: one that is refused must not replace the scaling of an earlier one.
        out = folder.parent / SCALING if scaling is None else Path(scaling)
        for line in save_fitted(fitted, source, key=key, out=out):
            output.say(line)
    output.say(f"wrote {path}: send it to the organiser, and read out the fingerprint on the phone")
    _show(path, output)


def approve(  # noqa: PLR0913  (one argument for each flag)
    requests: Annotated[
        list[Path], typer.Argument(metavar="REQUEST", help="Request files of the new members.")
    ],
    *,
    folder: Annotated[Path, typer.Option("--dir", help="Folder of the authority.")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the certificates, or the file of a single one.",
            show_default="next to each request",
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
        list[str] | None,
        typer.Option(
            help="A fingerprint that an owner read out; each request must have one of them. "
            "Can be repeated.",
            show_default="ask for each request",
        ),
    ] = None,
    passphrase_env: PassphraseVariable = None,
    as_json: AsJson = False,
) -> None:
    """Issue certificates for the keys, names and roles in requests.

    Shows the fingerprint of each request, and asks whether its owner read it out on the phone.
    Nothing is asked with --fingerprint, or with --renew, whose key was compared before.  The exit
    code is 1 if a request was declined.
    """
    from vfbandits.pki import Grant
    from vfbandits.pki import approve as approve_request

    output = Output(as_json=as_json)
    passphrase = passphrase_in(passphrase_env)
    grant = Grant(days, tuple(dns or ()), tuple(ip or ()), renew)
    if len(requests) > 1 and (dns or ip):
        raise SettingError(f"--dns and --ip go with a single request, got {len(requests)} requests")
    if len(requests) > 1 and out is not None and not out.is_dir():
        raise SettingError(f"--out must be a folder for {len(requests)} requests, got {out}")
    accepted = _accepted(requests, fingerprint, is_known=renew)
    approvals = [
        approve_request(request, folder, out=out, grant=grant, passphrase=passphrase, by=who())
        for request in accepted
    ]
    declined = [path for path in requests if path not in accepted]
    certificates = [approval.certificate_path for approval in approvals]
    send = [(one.certificate_path, one.member_path, one.authority_path) for one in approvals]
    documents = [
        {**_document(path), "send": files} for path, files in zip(certificates, send, strict=True)
    ]
    output.show(
        {"approved": documents, "declined": declined},
        lambda: [_table(_facts(path)) for path in certificates],
    )
    for path in declined:
        output.say(f"declined {path}: nothing was issued")
    if send:
        output.say("vfb federation init puts certificates into the members' folders; in a running")
        output.say("federation send these to their owners, none is secret:")
    for files in send:
        output.say(f"  {', '.join(map(str, files))}")
    raise typer.Exit(1 if declined else 0)


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


def _accepted(
    requests: list[Path], fingerprints: list[str] | None, *, is_known: bool
) -> list[Path]:
    """Requests whose fingerprints the owners read out; all are read before any is issued."""
    from vfbandits.pki.documents import Request
    from vfbandits.pki.files import read_file
    from vfbandits.protocol.identity import spell_digest

    read = {path: Request.from_bytes(read_file(path, "a request")) for path in requests}
    if len(read) < len(requests):
        raise SettingError("each request must be named once, got one twice")
    if fingerprints:
        given = {_plain(text): text for text in fingerprints}
        for path, request in read.items():
            if request.key_digest not in given:
                raise IdentityError(
                    f"--fingerprint must be that of {path}, {spell_digest(request.key_digest)}, "
                    f"got {', '.join(map(repr, fingerprints))}"
                )
        for digest in given.keys() - {request.key_digest for request in read.values()}:
            raise IdentityError(
                f"--fingerprint must be that of a request, got {given[digest]!r}, which none has"
            )
        return requests
    if is_known:
        return requests
    return [path for path, request in read.items() if _is_confirmed(path, request)]


def _is_confirmed(path: Path, request: "Request") -> bool:
    claim = request.claim
    width = f", {claim.width} features" if claim.width else ""
    typer.echo(f"{path}: {claim.role} {claim.name!r}{width}", err=True)
    return _ask(request.key_digest, "Did its owner read out this fingerprint on the phone?")


def refuse_unless_confirmed(came: str, fingerprint: str | None, *, who: str) -> None:
    """Refuse an authority whose fingerprint is not the one that its organiser read out."""
    from vfbandits.protocol.identity import spell_digest

    if fingerprint is None:
        typer.echo(f"authority of {who}", err=True)
        if not _ask(came, "Did the organiser read out this fingerprint on the phone?"):
            raise IdentityError("the authority was not confirmed; nothing was changed")
    elif _plain(fingerprint) != came:
        raise IdentityError(
            f"--fingerprint must be that of the authority, {spell_digest(came)}, "
            f"got {fingerprint!r}"
        )


def _ask(digest: str, question: str) -> bool:
    """Show a fingerprint and ask about it; IdentityError if there is no answer."""
    from vfbandits.protocol.identity import spell_digest

    typer.echo(f"  fingerprint {spell_digest(digest)}", err=True)
    try:
        return typer.confirm(f"  {question}", default=False, err=True)
    except typer.Abort:
        typer.echo("", err=True)
        raise IdentityError(
            "wanted an answer for each fingerprint, or --fingerprint, got none; nothing was changed"
        ) from None


def _plain(fingerprint: str) -> str:
    """A fingerprint as people spell it, in digits only."""
    return "".join(fingerprint.replace(":", "").split()).lower()


def _show(file: Path, output: Output) -> None:
    output.show(_document(file), lambda: [_table(_facts(file))])


def _document(file: Path) -> dict[str, object]:
    facts = _facts(file)
    return {"file": file, "kind": facts.kind, "facts": dict(facts.rows)}


def _facts(file: Path) -> "Facts":
    from vfbandits.pki import describe

    return describe(file, datetime.now(UTC))


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
