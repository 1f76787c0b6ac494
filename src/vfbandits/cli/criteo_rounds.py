"""The user's own Criteo file, converted to rounds once, with a line of progress."""

from pathlib import Path
from typing import TYPE_CHECKING

from vfbandits.errors import SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from vfbandits.datasets.criteo.table import Facts


def featurised(file: Path, folder: Path) -> Path:
    """The folder of this file's rounds; made again after the file has changed."""
    import hashlib

    try:
        facts = file.stat()
    except OSError as error:
        raise SettingError(f"--criteo must be a readable file, got {file}: {error.strerror}") from (
            error
        )
    stamp = f"{file.resolve()} {facts.st_size} {facts.st_mtime_ns}".encode()
    target = folder / hashlib.sha256(stamp).hexdigest()[:16]
    if (target / "facts.json").exists():
        return target
    from vfbandits.datasets.criteo.features import featurise
    from vfbandits.datasets.criteo.file import CriteoFile

    with progress("rows of Criteo's file") as tell:
        table = featurise(
            CriteoFile(file), target, on_rows=lambda stage, rows: tell(rows, note=stage)
        )
    _report(table.facts, target)
    return target


def _report(facts: "Facts", target: Path) -> None:
    from rich.console import Console

    console = Console(stderr=True, highlight=False)
    console.print(f"{facts.n_rows:,} rounds of {len(facts.arms)} arms in {target}")
    if facts.n_bad_lines:
        first = ", ".join(str(line) for line in facts.first_bad_lines)
        console.print(f"{facts.n_bad_lines:,} malformed lines were skipped, the first: {first}")
