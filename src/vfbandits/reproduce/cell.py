"""Cells: the smallest pieces of a figure, run anywhere and kept in a file each.

A file is there whole or not at all, so a run that was killed resumes where it stopped.
"""

import hashlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from vfbandits.errors import SettingError
from vfbandits.reproduce.folder_module import load_function
from vfbandits.reproduce.machine import machine_line
from vfbandits.reproduce.rows import Row, Settings, as_rows, through_json


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of a figure; ``weight`` is rough seconds, for the estimate of time left."""

    figure: str
    folder: Path
    version: int
    settings: Settings
    weight: float = 1.0

    @property
    def digest(self) -> str:
        """A name for the file: figure, version and settings decide it, and nothing else."""
        whole = [self.figure, self.version, self.settings]
        try:
            text = json.dumps(whole, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise SettingError(
                f"a cell of {self.figure} must be a table that JSON can hold, but {error}"
            ) from error
        return hashlib.sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class CellResult:
    """A cell's rows, the CPU seconds they took, and the machine they were made on."""

    rows: list[Row]
    seconds: float
    machine: str


def run_cell(cell: Cell) -> CellResult:
    """Load the figure's run.py by path and run the cell: what engines send to their processes."""
    function = load_function(cell.folder, "run", "run_cell")
    start = time.process_time()
    rows = through_json(function(cell.settings), what=f"run_cell of {cell.figure}")
    return CellResult(rows, time.process_time() - start, machine_line())


def write_cell(cell: Cell, result: CellResult, folder: Path) -> None:
    """Write the cell's file, whole or not at all."""
    document = {
        "figure": cell.figure,
        "version": cell.version,
        "settings": cell.settings,
        "machine": result.machine,
        "seconds": result.seconds,
        "rows": result.rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    with NamedTemporaryFile(
        "w", dir=folder, prefix=".", suffix=".part", delete=False, encoding="utf-8"
    ) as file:
        json.dump(document, file, allow_nan=False)
        file.flush()
        os.fsync(file.fileno())
    Path(file.name).replace(folder / f"{cell.digest}.json")


def read_cell(cell: Cell, folder: Path) -> CellResult | None:
    """The cell's result if it is finished, else None; a file of something else does not count."""
    try:
        document = json.loads((folder / f"{cell.digest}.json").read_text(encoding="utf-8"))
        if document["settings"] != json.loads(json.dumps(cell.settings)):
            return None
        rows = as_rows(document["rows"], what=f"a finished cell of {cell.figure}")
        return CellResult(rows, float(document["seconds"]), str(document["machine"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
