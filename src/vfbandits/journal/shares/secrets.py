"""The secrets that the dealer of secret shares gave one participant, from its folder."""

import glob
import re
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.errors import ConfigError
from vfbandits.files import write_whole
from vfbandits.protocol.dealt import (
    FIRST_EPOCH,
    DealOpener,
    PartySecrets,
    problem_with_parts,
    secrets_name,
)
from vfbandits.protocol.roster import Roster

_NAME = re.compile(r"(.+)\.epoch-(\d{1,9})\.secrets")
ADVICE = "The mask generator makes it with vfb masks deal, for the epoch in force; copy it here"


def newest_epoch(folder: Path, name: str) -> int:
    """The last epoch of which there are secrets; the first one if there are none."""
    return max(_epochs(folder, name), default=FIRST_EPOCH)


def _epochs(folder: Path, name: str) -> list[int]:
    found = (_NAME.fullmatch(path.name) for path in folder.glob(f"{glob.escape(name)}.epoch-*"))
    return [int(match[2]) for match in found if match and match[1] == name]


def read_secrets(
    folder: Path, name: str, roster: Roster, *, epoch: int, key: X25519PrivateKey
) -> PartySecrets:
    """What was dealt to ``name``; refuses secrets of another role, deal or federation."""
    path = folder / secrets_name(name, epoch)
    try:
        data = path.read_bytes()
    except OSError as error:
        # One that joins later cannot know which epoch is in force.
        wanted = path if _epochs(folder, name) else f"{name}.epoch-EPOCH.secrets in {folder}"
        raise ConfigError(
            f"protection 'shares' needs what was dealt to {name!r}, got no {wanted}: "
            f"{error.strerror}.  {ADVICE}"
        ) from error
    secrets = DealOpener(roster, epoch, name, key).secrets(data)
    problem = problem_with_parts(secrets, roster, name)
    if problem:
        raise ConfigError(f"{path} must have {problem}")
    return secrets


def write_secrets(folder: Path, name: str, envelope: bytes, *, epoch: int) -> None:
    """Keep the sealed envelope that was dealt to ``name``; it is durable when this returns."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_whole(folder / secrets_name(name, epoch), lambda file: file.write(envelope), mode=0o600)
