"""The secrets that the dealer of secret shares gave one participant, from its folder."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.errors import ConfigError
from vfbandits.protocol.dealt import DealOpener, PartySecrets, secrets_name
from vfbandits.protocol.roster import Roster

ADVICE = "The mask generator makes it with vfb masks deal; copy it here"


def read_secrets(
    folder: Path, name: str, roster: Roster, *, epoch: int, key: X25519PrivateKey
) -> PartySecrets:
    """What was dealt to ``name``; refuses secrets of another role, deal or federation."""
    path = folder / secrets_name(name, epoch)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"protection 'shares' needs what was dealt to {name!r}, got no {path}: "
            f"{error.strerror}.  {ADVICE}"
        ) from error
    secrets = DealOpener(roster, epoch, name, key).secrets(data)
    rules = roster.terms.shares
    is_server = name == roster.active.name or (rules is not None and name == rules.helper)
    has_block = name in roster.split.names
    if (has_block, is_server) != (secrets.participant is not None, secrets.server is not None):
        parts = ["a server"] * is_server + ["a participant"] * has_block
        wanted = " and ".join(parts)
        raise ConfigError(f"{path} must have the secrets of {name!r} as {wanted}, got other roles")
    return secrets
