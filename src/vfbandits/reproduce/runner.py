"""Runs figures: their cells on an engine, then rows, images and claims.

Finished cells are not run again.  Cells that measure time run last, one at a time in a process of
their own, whatever the engine: other cells at the same time would distort the measurement.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vfbandits.errors import SettingError
from vfbandits.reproduce.cell import Cell, CellResult, read_cell, run_cell, write_cell
from vfbandits.reproduce.claim import Claim, ValueTable
from vfbandits.reproduce.figure import Figure
from vfbandits.reproduce.rows import Row, Settings, write_csv
from vfbandits.simulate.engine import Engine
from vfbandits.simulate.processes import ProcessEngine


@dataclass(frozen=True, slots=True)
class Headway:
    """How far a run is; ``work`` counts cells by their weights, for an estimate of time left.

    ``rounds`` are those that cells have played in this run, finished or not.  They move ``work``
    between cells, at the rate of those that are finished.
    """

    cells: int
    of_cells: int
    work: float
    of_work: float
    rounds: int = 0


@dataclass(frozen=True, slots=True)
class Image:
    """A drawing on disk."""

    path: Path
    caption: str


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The results of one figure, for the page.

    ``seconds`` is the CPU time of its cells, whenever they were run; ``machines`` where.
    """

    figure: Figure
    config: Settings = field(repr=False)
    rows: list[Row] = field(repr=False)
    claims: list[Claim]
    tables: list[ValueTable]
    images: list[Image]
    seconds: float
    machines: tuple[str, ...]


def reproduce(
    figures: Sequence[Figure],
    out: Path,
    *,
    engine: Engine,
    quick: bool = False,
    fresh: bool = False,
    overrules: Mapping[str, Settings] | None = None,
    on_cell: Callable[[Headway], None] | None = None,
) -> list[Outcome]:
    """Run what is not finished (with ``fresh``, everything), and write rows.csv and images.

    ``overrules`` replaces settings of figures by name, such as where a user's own data is.
    """
    for figure in figures:
        figure.check()
    instead = overrules or {}
    configs = [{**f.config(quick=quick), **instead.get(f.name, {})} for f in figures]
    plans = [expand(figure, config) for figure, config in zip(figures, configs, strict=True)]
    results = _Results(out, [cell for plan in plans for cell in plan], on_cell)
    if not fresh:
        results.resume()
    results.tell()
    timed = {figure.name for figure in figures if figure.timed}
    results.run(engine, lambda cell: cell.figure not in timed)
    results.run(ProcessEngine(1), lambda cell: cell.figure in timed)
    return [
        _finish(figure, config, out / figure.name, [results.done[cell.digest] for cell in plan])
        for figure, config, plan in zip(figures, configs, plans, strict=True)
    ]


def expand(figure: Figure, config: Settings) -> list[Cell]:
    """The figure's cells; refuses two that are alike."""
    cells = [
        Cell(figure.name, figure.folder, figure.version, settings, figure.weight(settings))
        for settings in figure.cells(config)
    ]
    seen: dict[str, Cell] = {}
    for cell in cells:
        if seen.setdefault(cell.digest, cell) is not cell:
            raise SettingError(
                f"cells of figure {figure.name} must differ, got {cell.settings} twice"
            )
    return cells


class _Results:
    """Results by digest, kept on disk as they come."""

    def __init__(
        self, out: Path, cells: list[Cell], on_cell: Callable[[Headway], None] | None
    ) -> None:
        self._out = out
        self._cells = cells
        self._on_cell = on_cell
        self.done: dict[str, CellResult] = {}
        self._before = 0.0  # work that was done when this run began
        self._rounds_before = self._rounds = self._rounds_at_last = 0
        self._told = 0.0

    def resume(self) -> None:
        for cell in self._cells:
            result = read_cell(cell, self._folder(cell))
            if result is not None:
                self.done[cell.digest] = result
        self._before = self._finished()

    def run(self, engine: Engine, wanted: Callable[[Cell], bool]) -> None:
        cells = [c for c in self._cells if wanted(c) and c.digest not in self.done]
        # The longest first, so that no process is left alone with one at the end.
        cells.sort(key=lambda cell: -cell.weight)
        self._rounds_before = self._rounds
        for position, result in engine.run(run_cell, cells, on_step=self._step):
            write_cell(cells[position], result, self._folder(cells[position]))
            self.done[cells[position].digest] = result
            self._rounds_at_last = self._rounds
            self.tell()

    def _step(self, rounds: int) -> None:
        if self._rounds_before + rounds > self._rounds:
            self._rounds = self._rounds_before + rounds
            self.tell()

    def _finished(self) -> float:
        return sum(cell.weight for cell in self._cells if cell.digest in self.done)

    def _folder(self, cell: Cell) -> Path:
        return self._out / cell.figure / "cells"

    def tell(self) -> None:
        if self._on_cell is None:
            return
        work, of_work = self._finished(), sum(cell.weight for cell in self._cells)
        if self._rounds_at_last:
            rate = (work - self._before) / self._rounds_at_last
            guess = work + rate * (self._rounds - self._rounds_at_last)
            self._told = max(self._told, min(guess, of_work))
        self._told = max(self._told, work)
        self._on_cell(Headway(len(self.done), len(self._cells), self._told, of_work, self._rounds))


def _finish(figure: Figure, config: Settings, folder: Path, results: list[CellResult]) -> Outcome:
    rows = [row for result in results for row in result.rows]
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(rows, folder / "rows.csv")
    images = [Image(d.save(folder), d.caption) for d in figure.draw(rows, config)]
    return Outcome(
        figure,
        config,
        rows=rows,
        claims=figure.claims(rows, config),
        tables=figure.tables(rows, config),
        images=images,
        seconds=sum(result.seconds for result in results),
        machines=tuple(dict.fromkeys(result.machine for result in results)),
    )
