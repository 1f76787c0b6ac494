"""The files with which a federation begins: a signed roster, and a commented TOML per member."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.files import write_whole
from vfbandits.pki import load_approved
from vfbandits.pki.authority import Authority
from vfbandits.pki.documents import Approved
from vfbandits.pki.files import member_path
from vfbandits.protocol.roster import ACTIVE, APPLICATION, OPERATOR, PASSIVE, Member, Roster, Terms
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.settings.template import config_text, generator_text

ROSTER = "roster.signed"
_ORDER = (ACTIVE, PASSIVE, APPLICATION, OPERATOR)


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
    if terms.mask == "dense" and not generator_key:
        raise ConfigError(
            "dense masks need a mask generator among the members, got none; it makes its keys "
            "with: vfb pki request --role generator"
        )
    if terms.intercept and terms.layout == "per_arm":
        raise ConfigError("an intercept goes with layouts outer and disjoint, got per_arm")
    members.sort(key=lambda member: _ORDER.index(member.role))
    session = secrets.token_hex(16)
    return Roster(federation, number, terms, tuple(members), generator_key, session)


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


def with_member(roster: Roster, member: Member) -> Roster:
    """The next roster, with one passive participant more."""
    if roster.find(member.name) is not None:
        raise ConfigError(f"{member.name!r} is in the roster already")
    if member.role != PASSIVE:
        raise ConfigError(f"wanted a passive participant, got {member.role} {member.name!r}")
    last = max(i for i, m in enumerate(roster.members) if m.width)
    members = (*roster.members[: last + 1], member, *roster.members[last + 1 :])
    return _next(roster, members)


def without_member(roster: Roster, name: str) -> Roster:
    """The next roster, with one passive participant less."""
    member = roster.find(name)
    if member is None or member.role != PASSIVE:
        names = ", ".join(m.name for m in roster.passive)
        raise ConfigError(f"wanted one of the passive participants {names}, got {name!r}")
    return _next(roster, tuple(m for m in roster.members if m.name != name))


def _next(roster: Roster, members: tuple[Member, ...]) -> Roster:
    return replace(roster, number=roster.number + 1, members=members)


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


def write_folders(
    roster: Roster,
    signed: bytes,
    out: Path,
    *,
    address: str,
    listen: str = "",
    generators: Sequence[str] = (),
) -> list[Path]:
    """A folder for each member with the signed roster and its configuration; returns them.

    ``generators`` have the names of mask generators, which are no members.  Nothing is overwritten,
    and nothing is written if something is in the way.
    """
    names = [*(member.name for member in roster), *generators]
    folders = [out / name for name in names]
    there = [str(folder) for folder in folders if folder.exists()]
    if there:
        raise ConfigError(f"wanted no folder there yet, got {', '.join(there)}")
    for folder in folders:
        put_roster(signed, folder / ROSTER)
    for member in roster:
        where = listen if listen and member.role == ACTIVE else address
        write_config(member, roster, where, out / member.name / f"{member.name}.toml")
    for name in generators:
        text = generator_text(name, roster, address=address, roster_file=ROSTER)
        _write_new(out / name / f"{name}.toml", text)
    return folders


def write_config(member: Member, roster: Roster, address: str, path: Path) -> None:
    """Write a member's configuration; refuses to overwrite one."""
    _write_new(path, config_text(member, roster, address=address, roster_file=ROSTER))


def _write_new(path: Path, text: str) -> None:
    if path.exists():
        raise ConfigError(f"{path} is there already; move it away first")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"wanted a file to write, got {path}: {error.strerror}") from error
