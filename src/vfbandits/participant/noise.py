"""The key of a participant's noise and the terms it was used under, in the state folder.

The key makes the noise of each vector reproducible.  With another key every vector would get other
noise, be released again, and cost ε again; so a key that was used and is lost is an error, and is
never replaced.  The terms are a list, since each change of them is another release as well.
"""

import json
import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from vfbandits.core.noise import KEY_BYTES, MAX_DEVIATIONS, KeyedNoise, VectorNoise
from vfbandits.errors import ConfigError
from vfbandits.files import write_whole
from vfbandits.pki.files import make_folder, read_file, write_new
from vfbandits.settings.decode import decode
from vfbandits.settings.noise import NoiseSettings
from vfbandits.settings.values import Settings, Text

FOLDER: Final = "noise"
KEY_FILE: Final = "noise.key"
TERMS_FILE: Final = "terms.json"


class Terms(Settings, frozen=True, kw_only=True):
    """Terms that noise was added under, and since when."""

    since: Text
    noise: NoiseSettings


class NoiseFile(Settings, frozen=True, kw_only=True):
    """All terms, the newest last, and the digest of the key that goes with them."""

    key_digest: Text
    terms: tuple[Terms, ...]


def open_noise(settings: NoiseSettings, folder: Path) -> KeyedNoise:
    """The noise of a participant, whose key is in ``folder``; made at the first start."""
    make_folder(folder)
    known = read_terms(folder)
    if known is None and not (folder / KEY_FILE).exists():
        write_new({folder / KEY_FILE: (os.urandom(KEY_BYTES), 0o600)})
    key = read_key(folder, known)
    earlier = () if known is None else known.terms
    if not earlier or earlier[-1].noise != settings:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        terms = (*earlier, Terms(since=now, noise=settings))
        _write_terms(folder, NoiseFile(key_digest=_digest(key), terms=terms))
    return KeyedNoise(settings.terms, key=key)


def read_terms(folder: Path) -> NoiseFile | None:
    """The terms so far; None if noise was never added."""
    path = folder / TERMS_FILE
    if not path.exists():
        return None
    try:
        document = json.loads(read_file(path, "the terms of the noise"))
    except ValueError as error:
        raise ConfigError(f"{path} must be JSON, got a damaged file: restore it") from error
    return decode(document, NoiseFile, where=path.name)


def read_key(folder: Path, known: NoiseFile | None) -> bytes:
    """The key; refuses one that is missing, damaged, or not the one of the terms."""
    path = folder / KEY_FILE
    if not path.exists():
        raise ConfigError(
            f"{path} is not there, while {TERMS_FILE} beside it says that noise was added with it: "
            "put it back from a backup.  With another key each vector is released with other noise "
            "and costs its epsilon again; if you accept that, move the folder away"
        )
    key = read_file(path, "the key of the noise")
    if len(key) != KEY_BYTES:
        raise ConfigError(f"{path} must have {KEY_BYTES} bytes, got {len(key)}: put it back")
    if known is not None and _digest(key) != known.key_digest:
        raise ConfigError(
            f"{path} must be the key with digest {known.key_digest[:12]}…, as in {TERMS_FILE} "
            f"beside it, got one with digest {_digest(key)[:12]}…: restore it"
        )
    return key


def refuse_unless_bounded(noise: VectorNoise, bound: float) -> None:
    """Refuse noise that could push masked values beyond the bound of the roster's terms."""
    largest = noise.clip + MAX_DEVIATIONS * noise.sigma
    if largest > bound:
        raise ConfigError(
            f"[noise] has a deviation of {noise.sigma:.3g} ({noise}), so masked values reach "
            f"{largest:.3g}, where the roster's terms allow at most {bound:g}: choose a smaller "
            "clip or a larger epsilon, or let the organiser raise the bound"
        )


def _write_terms(folder: Path, file: NoiseFile) -> None:
    data = msgspec.json.format(msgspec.json.encode(file), indent=1)
    write_whole(folder / TERMS_FILE, lambda out: out.write(data), mode=0o600)


def _digest(key: bytes) -> str:
    return sha256(b"key of noise" + key).hexdigest()
