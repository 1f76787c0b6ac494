"""Changes that an operator makes to a live federation: its masks, and its members."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vfbandits.admin.federation_files import put_roster
from vfbandits.admin.session import InForce, Session
from vfbandits.errors import ConfigError, HandshakeError, IdentityError
from vfbandits.pki.authority import Authority
from vfbandits.pki.files import certificate_path, read_certificate
from vfbandits.protocol.application import ChangeRequest
from vfbandits.protocol.dealt import check_secrets, secrets_name
from vfbandits.protocol.envelope import check_deal
from vfbandits.protocol.identity import AUTHORITY, key_digest
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.signed_roster import sign_roster
from vfbandits.serving.masks import load_envelopes

CHANGE_S = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a change.

    ``epoch`` is in force now or, if only the roster was written, the one to deal masks for.
    With ``was_done`` the active participant had made the same change before.
    """

    roster: Roster
    signed: bytes
    epoch: int
    was_done: bool = False


async def rotate(session: Session, *, envelopes: Path | None) -> int:
    """Change the mask of every participant; returns the epoch that is then in force."""
    now = await session.in_force()
    request = ChangeRequest()
    if _is_dealt(session.roster):
        _refuse_other(session, now)
        request = ChangeRequest(envelopes=_dealt(session.roster, now.epoch + 1, envelopes))
    reply = await session.client.change(request, timeout_s=CHANGE_S)
    return reply.epoch


async def next_roster(
    session: Session, change: Callable[[Roster], Roster], authority: Authority
) -> Outcome:
    """The signed roster after ``change``, and the epoch for which dense masks are to be dealt."""
    now = await session.in_force()
    _refuse_other(session, now)
    after = change(session.roster)
    return Outcome(after, _sign(session, after, authority), now.epoch + 1)


async def change_members(
    session: Session,
    change: Callable[[Roster], Roster],
    authority: Authority,
    *,
    envelopes: Path | None,
) -> Outcome:
    """Put the roster after ``change`` into force, and into the operator's own file.

    A change whose answer was lost can be asked for again: if it is in force, only the file is
    written.
    """
    now = await session.in_force()
    after = change(session.roster)
    signed = _sign(session, after, authority)
    if now.digest == after.digest:
        put_roster(signed, session.place.roster)
        return Outcome(after, signed, now.epoch, was_done=True)
    _refuse_other(session, now)
    dealt = {}
    if _is_dealt(after):
        dealt = _dealt(after, now.epoch + 1, envelopes)
    reply = await session.client.change(ChangeRequest(signed, dealt), timeout_s=CHANGE_S)
    put_roster(signed, session.place.roster)
    return Outcome(after, signed, reply.epoch)


def _sign(session: Session, roster: Roster, authority: Authority) -> bytes:
    """The roster, signed by the authority that issued the operator's own certificate."""
    ours = read_certificate(certificate_path(session.place.identity, AUTHORITY))
    wanted, came = key_digest(ours.public_key()), key_digest(authority.private_key.public_key())
    if came != wanted:
        raise IdentityError(
            f"wanted the authority of {session.place.name!r}, with the key {wanted[:12]}…, "
            f"got {authority.folder} with the key {came[:12]}…"
        )
    return sign_roster(roster, authority.private_key)


def _refuse_other(session: Session, now: InForce) -> None:
    ours = session.roster
    if (now.number, now.digest) != (ours.number, ours.digest):
        raise HandshakeError(
            f"roster: the active participant has number {now.number} ({now.digest[:12]}…), "
            f"{session.place.roster} is number {ours.number} ({ours.digest[:12]}…); get the one "
            "in force from the operator who made the last change"
        )


def _is_dealt(roster: Roster) -> bool:
    """Whether the mask generator deals for each epoch: dense masks, or secret shares."""
    return roster.terms.mask == "dense" or roster.terms.shares is not None


def _dealt(roster: Roster, epoch: int, folder: Path | None) -> dict[str, bytes]:
    """The envelopes in a folder, if they are one complete deal for this roster and epoch."""
    is_shared = roster.terms.shares is not None
    if folder is None:
        what = "secret shares" if is_shared else "dense masks"
        raise ConfigError(
            f"{what} need envelopes that were dealt for epoch {epoch} of roster number "
            f"{roster.number}, got none: vfb masks deal, then --envelopes"
        )
    try:
        envelopes = load_envelopes(folder, roster, epoch)
    except OSError as error:
        raise ConfigError(f"wanted envelopes to read, got {folder}: {error.strerror}") from error
    missing = [name for name in roster.dealt_to if name not in envelopes]
    if missing and is_shared:
        raise ConfigError(_lacks(roster, epoch, folder, missing))
    if missing:
        raise ConfigError(
            f"wanted an envelope of epoch {epoch} for each participant in {folder}, "
            f"missing: {', '.join(missing)}"
        )
    if is_shared:
        check_secrets(envelopes, roster=roster, epoch=epoch)
    else:
        check_deal(envelopes, roster=roster, epoch=epoch)
    return envelopes


def _lacks(roster: Roster, epoch: int, folder: Path, missing: Sequence[str]) -> str:
    """The error for missing secrets: which ones, and how to get them."""
    helper = "" if roster.terms.shares is None else roster.terms.shares.helper
    files = [
        f"{secrets_name(name, epoch)}, the secrets of "
        f"{'the helper ' if name == helper else ''}{name!r}"
        for name in missing
    ]
    return (
        f"{folder} has no {' and no '.join(files)}.  On the mask generator's machine "
        f"vfb masks deal --epoch {epoch} writes them to its folder --out: copy them to {folder}, "
        "then run this command again"
    )
