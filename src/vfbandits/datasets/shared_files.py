"""Finds the data sets, and verifies their digests."""

import gzip
import hashlib
import zlib
from pathlib import Path

from vfbandits.errors import DatasetError

REPOSITORY = Path(__file__).resolve().parents[3]


def data_folder(folder: Path | None = None) -> Path:
    """``folder``, or shared/data beside the repository."""
    return REPOSITORY.parent / "shared" / "data" if folder is None else folder


def read_checked(path: Path, *, sha256: str, origin: str) -> str:
    """The text of a file, gzipped or (without .gz in its name) plain.

    Refuses any other text than the one with this digest, and says where that one comes from.
    """
    plain = path.with_suffix("")
    try:
        content = _unpacked(path) if path.exists() or not plain.exists() else plain.read_bytes()
    except FileNotFoundError as error:
        raise DatasetError(
            f"wanted {path} or, not gzipped, {plain.name}, got no such file; its text has "
            f"sha256 {sha256} and comes from {origin}"
        ) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DatasetError(f"wanted a gzipped data file, got {path}: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DatasetError(
            f"wanted sha256 {sha256} for the text of {path}, got {found}; the right one comes "
            f"from {origin}"
        )
    return content.decode("ascii")


def _unpacked(path: Path) -> bytes:
    with gzip.open(path) as file:
        return file.read()
