"""Where the data sets lie, and that they are the ones we know."""

import gzip
import hashlib
from pathlib import Path

from vfbandits.errors import DatasetError

REPOSITORY = Path(__file__).resolve().parents[3]


def data_folder(folder: Path | None = None) -> Path:
    """``folder``, or shared/data beside the repository."""
    return REPOSITORY.parent / "shared" / "data" if folder is None else folder


def read_checked(path: Path, *, sha256: str) -> str:
    """The text of a gzipped file; refuses any other text than the one with this digest."""
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (OSError, EOFError) as error:
        raise DatasetError(f"wanted a gzipped data file, got {path}: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise DatasetError(f"wanted sha256 {sha256} for {path}, got {found}")
    return content.decode("ascii")
