"""The files of a new federation: a signed roster, and a commented TOML file per member."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from vfbandits.admin.kit import IDENTITY, ROSTER, kit_path, pack
from vfbandits.errors import ConfigError, IdentityError
from vfbandits.files import write_whole
from vfbandits.pki import load_approved
from vfbandits.pki.approve import approve_with
from vfbandits.pki.authority import Authority
from vfbandits.pki.documents import Approved
from vfbandits.pki.files import (
    certificate_path,
    make_folder,
    member_path,
    read_file,
    replace_public,
)
from vfbandits.pki.request import create_request
from vfbandits.protocol.identity import AUTHORITY
from vfbandits.protocol.roster import ACTIVE, OPERATOR, PASSIVE, ROLES, Member, Roster, Terms
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.settings.template import config_text, generator_text


def make_roster(
    approved: Iterable[Approved], terms: Terms, *, federation: str, number: int = 1
) -> Roster:
    """A roster of approved members: the active one first, passive ones as they come."""
    members: list[Member] = []
    generator_key = ""
    for item in approved:
        if item.claim.federation != federation:
            raise ConfigError(
                f"{item.claim.name!r} was approved for {item.claim.federation!r}, "
                f"wanted {federation!r}"
            )
        if not item.claim.generator_key:
            members.append(item.member)
        elif generator_key:
            raise ConfigError(f"a federation has one mask generator, got {item.claim.name!r} too")
        else:
            generator_key = item.claim.generator_key
    if (terms.mask == "dense" or terms.shares is not None) and not generator_key:
        what = "dense masks need" if terms.shares is None else "secret shares need"
        raise ConfigError(
            f"{what} a mask generator among the members, got none; it makes its keys "
            "with: vfb pki request --role generator"
        )
    if terms.intercept and terms.layout == "per_arm":
        raise ConfigError("an intercept goes with layouts outer and disjoint, got per_arm")
    members.sort(key=lambda member: ROLES.index(member.role))
    session = secrets.token_hex(16)
    return Roster(
        federation,
        number,
        terms=terms,
        members=tuple(members),
        generator_key=generator_key,
        session=session,
    )


def find_approved(authority: Authority, files: Sequence[Path] = ()) -> list[Approved]:
    """Members in these files, or all that the authority approved.

    A member's file bears no signature, so it counts only if the authority's own record, which it
    wrote when it approved the member, says the same.
    """
    if not files:
        files = sorted(authority.issued.glob("*.member.json"))
    return [_recorded(load_approved(path), authority, path) for path in files]


def _recorded(approved: Approved, authority: Authority, path: Path) -> Approved:
    record = member_path(authority.issued, approved.claim.name)
    if not record.is_file():
        raise IdentityError(f"wanted a member that {authority.folder} approved, got {path}")
    if load_approved(record) != approved:
        raise IdentityError(
            f"{path} must say what was approved, {record}; it was changed, or approved again since"
        )
    return approved


def with_member(roster: Roster, member: Member, *, accept_leak: bool = False) -> Roster:
    """The next roster, with one more passive participant.

    ``accept_leak`` names it among those whose rows can be read from what secret shares release.
    """
    if roster.find(member.name) is not None:
        raise ConfigError(f"{member.name!r} is in the roster already")
    if member.role != PASSIVE:
        raise ConfigError(f"wanted a passive participant, got {member.role} {member.name!r}")
    last = max(i for i, m in enumerate(roster.members) if m.width)
    members = (*roster.members[: last + 1], member, *roster.members[last + 1 :])
    terms = roster.terms
    if accept_leak:
        if terms.shares is None or terms.layout == "per_arm":
            raise ConfigError(
                "--accept-leak goes with protection shares in layouts disjoint and outer, got "
                f"{terms.protection} in {terms.layout}"
            )
        accepted = (*terms.shares.accept_leak, member.name)
        terms = replace(terms, shares=replace(terms.shares, accept_leak=accepted))
    return _next(roster, members, terms)


def without_member(roster: Roster, name: str) -> Roster:
    """The next roster, without one passive participant."""
    member = roster.find(name)
    if member is None or member.role != PASSIVE:
        names = ", ".join(m.name for m in roster.passive)
        raise ConfigError(f"wanted one of the passive participants {names}, got {name!r}")
    members = tuple(m for m in roster.members if m.name != name)
    return _next(roster, members, roster.terms_for([m.name for m in members]))


def _next(roster: Roster, members: tuple[Member, ...], terms: Terms) -> Roster:
    return replace(roster, number=roster.number + 1, members=members, terms=terms)


def write_roster(roster: Roster, authority: Authority, path: Path) -> bytes:
    """Sign a roster and write it; returns what was written."""
    data = sign_roster(roster, authority.private_key)
    put_roster(data, path)
    return data


def put_roster(signed: bytes, path: Path) -> None:
    """Write a signed roster, over an older one if there is one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda file: file.write(signed), mode=0o644)
    except OSError as error:
        raise ConfigError(f"wanted a file to write, got {path}: {error.strerror}") from error


def admit_operator(authority: Authority, name: str, out: Path, *, by: str = "") -> Approved:
    """Keys and a certificate for the organiser's own operator, made where they will be used."""
    if member_path(authority.issued, name).exists():
        raise ConfigError(
            f"an operator's name must be a new one, got {name!r}, which was approved before"
        )
    request = create_request(
        out / name / IDENTITY, federation=authority.federation, name=name, role=OPERATOR
    )
    return approve_with(authority, request, by=by).approved


def write_folders(
    roster: Roster,
    authority: Authority,
    out: Path,
    *,
    address: str,
    listen: str = "",
    generators: Sequence[str] = (),
    http: str = "",
) -> list[Path]:
    """A folder for each member: signed roster, configuration and certificates; returns them.

    ``generators`` have the names of mask generators, which are no members.  What is written is not
    secret, and nothing is overwritten.
    """
    signed = sign_roster(roster, authority.private_key)
    for member in roster:
        where = listen if listen and member.role == ACTIVE else address
        text = config_text(member, roster, address=where, roster_file=ROSTER, http=http)
        write_folder(member.name, text, signed, authority, out)
    for name in generators:
        text = generator_text(name, roster, address=address, roster_file=ROSTER)
        write_folder(name, text, signed, authority, out)
    return [out / name for name in (*(member.name for member in roster), *generators)]


def write_folder(name: str, text: str, signed: bytes, authority: Authority, out: Path) -> Path:
    """The folder of one member, and its kit, unless the member's keys are there already."""
    folder = out / name
    identity = folder / IDENTITY
    has_keys = identity.exists()
    _write_new(folder / f"{name}.toml", text)
    put_roster(signed, folder / ROSTER)
    make_folder(identity)
    own, ours = certificate_path(authority.issued, name), authority.certificate_path
    replace_public(certificate_path(identity, name), read_file(own, "a certificate"))
    replace_public(certificate_path(identity, AUTHORITY), read_file(ours, "a certificate"))
    return folder if has_keys else pack(name, out)


def refuse_existing_folders(names: Iterable[str], out: Path) -> None:
    """Refuse if the folder or the kit of a member is there already."""
    places = [place for name in names for place in (out / name, kit_path(out, name))]
    there = [str(place) for place in places if place.exists()]
    if there:
        raise ConfigError(f"wanted no folder there yet, got {', '.join(there)}")


def _write_new(path: Path, text: str) -> None:
    if path.exists():
        raise ConfigError(f"{path} is there already; move it away first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"wanted a file to write, got {path}: {error.strerror}") from error
