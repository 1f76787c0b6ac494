"""The mask generator as a program: a roster in, one envelope file per participant out."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vfbandits.errors import IdentityError
from vfbandits.pki.files import PUBLIC, read_signing_key, refuse_existing, write_new
from vfbandits.protocol.envelope import check_deal
from vfbandits.protocol.mask_generator import MaskGenerator
from vfbandits.protocol.roster import Roster


@dataclass(frozen=True, slots=True)
class EnvelopeFile:
    """One participant's envelope: sealed, so anybody may see the file."""

    participant: str
    path: Path
    dim: int
    width: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Deal:
    """One deal of a mask: its name, which is on each envelope, and the files."""

    name: str
    files: tuple[EnvelopeFile, ...]


def envelope_path(folder: Path, participant: str, epoch: int) -> Path:
    """The path of a participant's envelope."""
    return folder / f"{participant}.epoch-{epoch}.envelope"


def deal_files(
    roster: Roster,
    *,
    key_dir: Path,
    epoch: int,
    out: Path,
    on_step: Callable[[int], None] = lambda _: None,
) -> Deal:
    """Draw one mask with the signing key in ``key_dir`` and write its envelopes, all or none.

    Existing envelopes are not replaced: envelopes of two deals do not fit together.  ``on_step`` is
    called with 1 when Q is drawn, and with one more for each sealed share.
    """
    split = roster.split
    paths = {name: envelope_path(out, name, epoch) for name in split.names}
    refuse_existing(list(paths.values()), "this epoch was dealt; take the next one")
    envelopes = find_generator(key_dir, roster).deal(roster, epoch, on_step=on_step)
    name = check_deal(envelopes, roster=roster, epoch=epoch)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise IdentityError(
            f"envelopes need a folder to write to, got {out}: {error.strerror}"
        ) from error
    write_new({paths[owner]: (data, PUBLIC) for owner, data in envelopes.items()})
    return Deal(
        name,
        tuple(
            EnvelopeFile(owner, paths[owner], split.dim, width, len(envelopes[owner]))
            for owner, width in split.items()
        ),
    )


def find_generator(key_dir: Path, roster: Roster) -> MaskGenerator:
    """The generator whose key the roster pins, among the signing keys in a folder."""
    paths = sorted(key_dir.glob("*.signing.key"))
    generators = [MaskGenerator(read_signing_key(path)) for path in paths]
    for generator in generators:
        if generator.public_key == roster.generator_key:
            return generator
    came = ", ".join(generator.public_key for generator in generators) or "no signing key"
    wanted = roster.generator_key or "none, since its masks are not dense"
    raise IdentityError(f"wanted the roster's generator ({wanted}) in {key_dir}, got {came}")
