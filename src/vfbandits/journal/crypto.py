"""The key of a journal that is encrypted at rest, from a file or from the environment.

A key is 32 random bytes.  Its file has 64 hexadecimal digits (or the 32 bytes themselves), and only
its owner may read it; an environment variable has the digits.  Without its key a journal is lost.
"""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from vfbandits.errors import JournalError
from vfbandits.files import sync_folder

KEY_BYTES = 32
CHECK_BYTES = 16
_CHECK, _CIPHER = b"vfbandits journal, which key", b"vfbandits journal, contents"
_NAMES = b"vfbandits journal, names"


@dataclass(frozen=True, slots=True)
class JournalKey:
    """A secret from which the keys of one journal are derived; it encrypts nothing itself.

    >>> JournalKey.generate()
    JournalKey()
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        """Refuse all but 32 bytes."""
        if not isinstance(self.secret, bytes) or len(self.secret) != KEY_BYTES:
            kind = type(self.secret).__name__
            came = f"{len(self.secret)} bytes" if isinstance(self.secret, bytes) else f"a {kind}"
            raise JournalError(f"the key of a journal must be {KEY_BYTES} bytes, got {came}")

    @classmethod
    def generate(cls, *, entropy: Callable[[int], bytes] = os.urandom) -> "JournalKey":
        """A new key."""
        return cls(entropy(KEY_BYTES))

    def check(self, identity: bytes) -> bytes:
        """A value by which a journal recognises its key; it reveals nothing of the key."""
        return self._derive(_CHECK, salt=identity, size=CHECK_BYTES)

    def cipher(self, identity: bytes, salt: bytes) -> AESGCM:
        """AES-256-GCM under a key of its own for each journal and each ``salt``."""
        return AESGCM(self._derive(_CIPHER + identity, salt=salt, size=KEY_BYTES))

    def name_secret(self, identity: bytes) -> bytes:
        """The secret of a journal's lookup hashes."""
        return self._derive(_NAMES, salt=identity, size=KEY_BYTES)

    def _derive(self, info: bytes, *, salt: bytes, size: int) -> bytes:
        return HKDF(algorithm=hashes.SHA256(), length=size, salt=salt, info=info).derive(
            self.secret
        )


def write_key(path: Path, key: JournalKey) -> None:
    """Write a key to a new file for its owner only; an existing file is never replaced."""
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(key.secret.hex().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except OSError as error:
        raise JournalError(f"a key needs a new file, got {path}: {error.strerror}") from error


def read_key(path: Path) -> JournalKey:
    """The key in a file that nobody but its owner may read."""
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & 0o077:
            raise JournalError(
                f"the key of a journal must be for its owner only, got {path} with mode "
                f"{mode:04o}: chmod 600 it"
            )
        with path.open("rb") as file:
            data = file.read(4 * KEY_BYTES)
    except OSError as error:
        raise JournalError(f"wanted the key of a journal, got {path}: {error.strerror}") from error
    if len(data) == KEY_BYTES:
        return JournalKey(data)
    return _from_digits(data, str(path))


def key_from_environment(variable: str) -> JournalKey:
    """The key whose digits an environment variable holds."""
    text = os.environ.get(variable, "")
    if not text:
        raise JournalError(
            f"wanted the key of a journal in the environment as {variable}, got none"
        )
    return _from_digits(text.encode(errors="surrogateescape"), variable)


def _from_digits(data: bytes, where: str) -> JournalKey:
    try:
        secret = bytes.fromhex(data.decode("ascii").strip())
    except ValueError:  # its message would quote the key
        secret = b""
    if len(secret) != KEY_BYTES:
        raise JournalError(
            f"the key of a journal must be {2 * KEY_BYTES} hexadecimal digits, got "
            f"{len(data)} bytes that are not, in {where}"
        )
    return JournalKey(secret)
