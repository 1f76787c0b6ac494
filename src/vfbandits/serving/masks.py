"""The active participant's files for a mask change."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.core.mask import MaskShare, sample_mask
from vfbandits.errors import ConfigError, HandshakeError
from vfbandits.files import write_whole
from vfbandits.journal.mask_shares import ShareFiles
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.application import ChangeRequest
from vfbandits.protocol.change import Change, plan_change
from vfbandits.protocol.dealt import check_secrets, secrets_name
from vfbandits.protocol.envelope import check_deal, open_share
from vfbandits.protocol.passive import HeldShare
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.rows import is_number
from vfbandits.protocol.signed_roster import open_roster
from vfbandits.versions import upcast

ROUNDS = "rounds.json"
SEATS = "seats.json"
# Of both files; one without a version is of version 1.
VERSION = 1
UPCASTERS: Final[Mapping[int, Callable[[dict[str, object]], dict[str, object]]]] = {}


class Seats(NamedTuple):
    """Participants that have a share of a mask epoch."""

    epoch: int
    names: tuple[str, ...]


class Changes:
    """Shares, envelopes and the roster in force, in the active participant's state folder."""

    def __init__(
        self,
        state: Path,
        shares: ShareFiles,
        authority: EllipticCurvePublicKey,
        sealing_key: X25519PrivateKey,
        signed_roster: bytes,
    ) -> None:
        self._state = state
        self._shares = shares
        self._authority = authority
        self._sealing_key = sealing_key
        self._signed_roster = signed_roster

    def receive_share(self, roster: Roster, epoch: int, envelopes: dict[str, bytes]) -> MaskShare:
        """The active participant's own share of ``epoch``, not stored yet."""
        name, width = roster.active.name, roster.active.width
        rotation = sample_mask(width)
        if roster.terms.mask == "blockwise":
            return MaskShare(rotation)
        missing = [n for n in roster.split.names if n not in envelopes]
        if missing:
            raise HandshakeError(
                f"dense masks need an envelope for each participant, missing: {', '.join(missing)}"
            )
        check_deal(envelopes, roster=roster, epoch=epoch)
        dealt = open_share(
            envelopes[name],
            roster=roster,
            epoch=epoch,
            participant=name,
            private_key=self._sealing_key,
        )
        return dealt.layered(rotation)

    def plan(self, role: ActiveParticipant, request: ChangeRequest) -> tuple[Change, bytes]:
        """Check a request and prepare its change; nothing is in force yet."""
        signed = request.roster or self._signed_roster
        after = open_roster(signed, self._authority)
        now = role.roster
        if after.federation != now.federation:
            raise HandshakeError(f"federation: wanted {now.federation!r}, got {after.federation!r}")
        if request.roster and after.digest != now.digest and after.number <= now.number:
            raise HandshakeError(f"roster: wanted number {now.number + 1}, got {after.number}")
        kept, came = now.lasting_terms(after)
        if (came, after.active) != (kept, now.active):
            raise HandshakeError("a live federation keeps its terms and its active participant")
        epoch = role.epoch + 1
        if after.terms.shares is not None:
            self._refuse_other_secrets(now, after, epoch, request.envelopes)
            share = role.share  # rotations stay: secrets of the dealer change
        else:
            share = self.receive_share(after, epoch, request.envelopes)
        self._shares.store(epoch, HeldShare(share, signed))
        self.store_envelopes(epoch, request.envelopes)
        change = plan_change(
            epoch=epoch,
            round_number=role.next_round,
            before=now,
            after=after,
            old_share=role.share,
            share=share,
            signed_roster=request.roster,
            envelopes=request.envelopes,
        )
        return change, signed

    def _refuse_other_secrets(
        self, now: Roster, after: Roster, epoch: int, envelopes: dict[str, bytes]
    ) -> None:
        """Refuse a change on secret shares unless members that stay have secrets of one deal."""
        stay = [name for name in after.dealt_to if name in now.dealt_to]
        missing = [name for name in stay if name not in envelopes]
        if missing:
            raise HandshakeError(
                f"secret shares need dealt secrets of epoch {epoch} for each participant and "
                f"helper that stays, missing: {', '.join(missing)}"
            )
        check_secrets({name: envelopes[name] for name in stay}, roster=after, epoch=epoch)

    def roster_of(self, epoch: int) -> Roster:
        """The roster of an epoch whose share is kept; ConfigError if it is not."""
        held = self._shares.load().get(epoch)
        if held is None:
            raise ConfigError(f"wanted the share and the roster of epoch {epoch}, got none")
        return open_roster(held.signed_roster, self._authority)

    def put_in_force(self, role: ActiveParticipant) -> None:
        """Put a change on secret shares into force; the servers have yet to hand over."""
        self._signed_roster = self._shares.load()[role.epoch].signed_roster
        self.store_seats(role)

    def finish(self, role: ActiveParticipant) -> None:
        """Drop the shares of earlier epochs: a change is in force."""
        self._shares.keep_only(role.epoch)
        self._signed_roster = self._shares.load()[role.epoch].signed_roster
        self.store_seats(role)

    def store_envelopes(self, epoch: int, envelopes: dict[str, bytes]) -> None:
        """Keep sealed shares for participants that connect later."""
        folder = self._state / "envelopes"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, envelope in envelopes.items():
            _write(folder / envelope_name(name, epoch), envelope)

    def store_round(self, next_round: int) -> None:
        """Store a number above those of all rounds so far."""
        _write_json(self._state / ROUNDS, {"next_round": next_round})

    def store_seats(self, role: ActiveParticipant) -> None:
        """Store which participants have a share of this epoch."""
        seats = {"epoch": role.epoch, "has_share": sorted(role.has_share)}
        _write_json(self._state / SEATS, seats)


def envelope_name(name: str, epoch: int) -> str:
    """The file name of a sealed share."""
    return f"{name}.epoch-{epoch}.envelope"


def load_envelopes(folder: Path, roster: Roster, epoch: int) -> dict[str, bytes]:
    """The sealed shares, or secrets, of ``epoch`` that are in ``folder``, by participant."""
    name_of = envelope_name if roster.terms.shares is None else secrets_name
    paths = {name: folder / name_of(name, epoch) for name in roster.dealt_to}
    return {name: path.read_bytes() for name, path in paths.items() if path.is_file()}


def load_seats(state: Path) -> Seats | None:
    """The last stored epoch and the participants with a share of it; None if there is none."""
    path = state / SEATS
    document = _read_json(path)
    if document is None:
        return None
    epoch, names = document.get("epoch"), document.get("has_share")
    if type(epoch) is not int or not isinstance(names, list) or {*map(type, names)} - {str}:
        raise ConfigError(
            f'{path} must hold a mask epoch and names as {{"epoch": 1, "has_share": []}}, got '
            f"{epoch!r} and {names!r}"[:160]
            + ".  Put it back from a backup"
        )
    return Seats(epoch, tuple(names))


def load_round(state: Path) -> int:
    """The first round that an active participant may ask for, by its own file.

    Without the file it is 1; passive participants report how far their rounds are used.
    """
    path = state / ROUNDS
    document = _read_json(path)
    if document is None:
        return 1
    number = document.get("next_round")
    if type(number) is not int or number < 1 or not is_number(number):
        raise ConfigError(
            f'{path} must hold the next round as {{"next_round": 1}}, got {number!r}.  '
            "Remove it: passive participants say which rounds they have seen"
        )
    return number


def _read_json(path: Path) -> dict[str, object] | None:
    """The document in a file of this module, in the newest version; None without the file.

    A file that is not a document is read as an empty one, which lacks the required fields.
    """
    if not path.is_file():
        return None
    try:
        document: dict[str, object] = msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    version = document.get("version", 1)
    if type(version) is not int:
        return {}
    return upcast(
        document,
        version,
        newest=VERSION,
        upcasters=UPCASTERS,
        what=str(path),
        error=ConfigError,
    )


def _write_json(path: Path, document: Mapping[str, object]) -> None:
    _write(path, msgspec.json.encode({"version": VERSION, **document}))


def _write(path: Path, data: bytes) -> None:
    write_whole(path, lambda file: file.write(data), mode=0o600)
