"""Keys and certificates as files: secrets for their owner only, nothing overwritten by mistake."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from vfbandits.errors import IdentityError
from vfbandits.files import write_whole

SECRET, PUBLIC = 0o600, 0o644
MAX_BYTES = 4 << 20

PrivateKey: TypeAlias = EllipticCurvePrivateKey | X25519PrivateKey | Ed25519PrivateKey


def certificate_path(folder: Path, name: str) -> Path:
    """Path of the certificate of ``name``; "authority" names the organiser's."""
    return folder / f"{name}.crt"


def key_path(folder: Path, name: str) -> Path:
    """Path of the private TLS key of ``name``."""
    return folder / f"{name}.key"


def sealing_key_path(folder: Path, name: str) -> Path:
    """Path of a participant's private X25519 key."""
    return folder / f"{name}.sealing.key"


def signing_key_path(folder: Path, name: str) -> Path:
    """Path of a mask generator's private Ed25519 key."""
    return folder / f"{name}.signing.key"


def request_path(folder: Path, name: str) -> Path:
    """Path of the request of ``name``."""
    return folder / f"{name}.request.json"


def member_path(folder: Path, name: str) -> Path:
    """Path of the organiser's approval of ``name``."""
    return folder / f"{name}.member.json"


def make_folder(folder: Path) -> Path:
    """A folder for keys: created with mode 0700, refused if others could replace files in it."""
    try:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700)
        mode = stat.S_IMODE(folder.stat().st_mode)
    except OSError as error:
        raise IdentityError(
            f"keys need a folder to write to, got {folder}: {error.strerror}"
        ) from error
    if mode & 0o022:
        raise IdentityError(
            f"a folder of keys must not be writable by others, got {folder} with mode "
            f"{mode:04o}: chmod 700 it, or choose another"
        )
    return folder


def refuse_existing(paths: list[Path], advice: str) -> None:
    """Refuse if any of these files exists."""
    there = [str(path) for path in paths if path.exists() or path.is_symlink()]
    if there:
        raise IdentityError(f"wanted no file there yet, got {', '.join(there)}: {advice}")


def write_new(files: Mapping[Path, tuple[bytes, int]]) -> None:
    """Write all these files, each with its mode, or none; an existing file is never replaced."""
    written: list[Path] = []
    try:
        for path, (data, mode) in files.items():
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
            written.append(path)
            _fill(descriptor, data)
    except OSError as error:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise IdentityError(
            f"wanted a new file to write, got {error.filename or path}: {error.strerror}"
        ) from error


def replace_public(path: Path, data: bytes) -> None:
    """Write a public file; an older one is replaced in one step."""
    try:
        write_whole(path, lambda file: file.write(data), mode=PUBLIC)
    except OSError as error:
        raise IdentityError(f"wanted a file to write, got {path}: {error.strerror}") from error


def read_file(path: Path, what: str, *, most: int = MAX_BYTES) -> bytes:
    """The bytes of a file that is not larger than it could be."""
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise IdentityError(f"wanted {what}, got {path}: {error.strerror}") from error
    if len(data) > most:
        raise IdentityError(f"wanted {what} of at most {most} bytes, got {path}, which is larger")
    return data


def read_certificate(path: Path) -> x509.Certificate:
    """The one certificate in a PEM file."""
    data = read_file(path, "a certificate")
    try:
        certificates = x509.load_pem_x509_certificates(data)
    except ValueError as error:
        raise IdentityError(f"wanted a certificate in PEM, got {path}") from error
    if len(certificates) != 1:
        raise IdentityError(f"wanted one certificate, got {len(certificates)} in {path}")
    return certificates[0]


def read_tls_key(path: Path, *, passphrase: bytes | None = None) -> EllipticCurvePrivateKey:
    """The private key of a certificate; errors name its path and nothing of the key."""
    key = _read_private_key(path, passphrase)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise IdentityError(f"wanted an ECDSA key, got {_kind(key)} in {path}")
    return key


def read_sealing_key(path: Path) -> X25519PrivateKey:
    """The key that opens a participant's mask shares."""
    key = _read_private_key(path)
    if not isinstance(key, X25519PrivateKey):
        raise IdentityError(f"wanted an X25519 key, got {_kind(key)} in {path}")
    return key


def read_signing_key(path: Path) -> Ed25519PrivateKey:
    """A mask generator's key."""
    key = _read_private_key(path)
    if not isinstance(key, Ed25519PrivateKey):
        raise IdentityError(f"wanted an Ed25519 key, got {_kind(key)} in {path}")
    return key


def private_pem(key: PrivateKey, *, passphrase: bytes | None = None) -> bytes:
    """A private key as its owner's file has it."""
    lock = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)


def is_open_to_others(path: Path) -> bool:
    """Whether other users than its owner may access a file."""
    return bool(stat.S_IMODE(path.stat().st_mode) & 0o077)


def _kind(key: PrivateKeyTypes) -> str:
    """The algorithm of a private key, and nothing of the key.

    >>> _kind(Ed25519PrivateKey.generate())
    'Ed25519'
    """
    return type(key).__name__.removesuffix("PrivateKey").strip("_")


def _read_private_key(path: Path, passphrase: bytes | None = None) -> PrivateKeyTypes:
    data = read_file(path, "a private key")
    try:
        return load_pem_private_key(data, passphrase)
    except TypeError:
        need = "needs a passphrase" if passphrase is None else "has no passphrase"
        raise IdentityError(f"the private key in {path} {need}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise IdentityError(
            f"wanted a private key in PEM (and the right passphrase, if it has one), got {path}"
        ) from None


def _fill(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
