"""A figure: a folder of experiments/.

::

    experiments/fig4_losslessness/
        config.toml     [figure] what it is; [settings] every number; [quick] the smaller numbers
        run.py          cells(config) -> settings of each cell; run_cell(settings) -> rows
                        and, where cells differ in length, weight(settings) -> rough seconds
        claims.py       claims(rows, config) -> Claims; where wanted, tables(rows, config)
        plot.py         draw(rows, config) -> Drawings

A cell is a small table that JSON can hold, and ``run_cell`` a pure function of it.  Raise
``version`` in config.toml when ``run_cell`` gives other rows than before: finished cells of the
old version are then run again.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from vfbandits.errors import SettingError
from vfbandits.extras import MODULES
from vfbandits.reproduce.claim import Claim, ValueTable
from vfbandits.reproduce.drawing import Drawing
from vfbandits.reproduce.folder_module import find_function, load_function
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.settings.decode import decode, load_document
from vfbandits.settings.values import Settings as Table

CONFIG = "config.toml"

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """What config.toml says, and the folder's functions, checked as they are called.

    Attributes
    ----------
    paper, says
        Where in the paper, and what the paper claims there.
    timed
        Whether cells measure time: such cells run alone, one at a time.
    settings, quick
        The numbers, and those that the quick version has instead.
    extras
        Extras of the package that its cells need, beyond those of every figure.
    """

    name: str
    folder: Path
    title: str
    paper: str
    says: str
    version: int
    timed: bool
    settings: Settings = field(repr=False)
    quick: Settings = field(repr=False)
    extras: tuple[str, ...] = ()

    @property
    def short_name(self) -> str:
        """The name without its number: fig4_losslessness is losslessness."""
        return re.sub(r"^fig\d+[a-z]?_", "", self.name)

    def config(self, *, quick: bool) -> Settings:
        """Every number of the full or of the quick version."""
        return {**self.settings, **self.quick} if quick else dict(self.settings)

    def cells(self, config: Settings) -> list[Settings]:
        """Settings of every cell, no two alike."""
        cells = load_function(self.folder, "run", "cells")(config)
        if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
            raise SettingError(f"cells of figure {self.name} must be a list of tables")
        return cells

    def weight(self, settings: Settings) -> float:
        """Rough seconds of a cell; 1 where the figure does not say."""
        weight = find_function(self.folder, "run", "weight")
        seconds = 1.0 if weight is None else weight(settings)
        if not isinstance(seconds, int | float) or not seconds > 0.0:
            raise SettingError(f"weights of figure {self.name} must be positive, got {seconds!r}")
        return float(seconds)

    def claims(self, rows: list[Row], config: Settings) -> list[Claim]:
        """The paper's claims, judged by these rows."""
        return _listed(
            load_function(self.folder, "claims", "claims")(rows, config), Claim, self.name
        )

    def tables(self, rows: list[Row], config: Settings) -> list[ValueTable]:
        """Measured values beside the claims; a figure need not have any."""
        tables = find_function(self.folder, "claims", "tables")
        return [] if tables is None else _listed(tables(rows, config), ValueTable, self.name)

    def draw(self, rows: list[Row], config: Settings) -> list[Drawing]:
        """The images."""
        return _listed(load_function(self.folder, "plot", "draw")(rows, config), Drawing, self.name)

    def check(self) -> None:
        """Refuse a folder in which a part is missing, before the long run."""
        parts = (("run", "cells"), ("run", "run_cell"), ("claims", "claims"), ("plot", "draw"))
        for module, function in parts:
            load_function(self.folder, module, function)


class FigureTable(Table, frozen=True, kw_only=True):
    """The table [figure] of config.toml."""

    title: str
    paper: str
    says: str
    version: int = 1
    timed: bool = False
    extras: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse blanks, and extras that do not exist."""
        for key in ("title", "paper", "says"):
            if not getattr(self, key).strip():
                raise SettingError(f"{key} must be some text, got blanks only")
        if not set(self.extras) <= set(MODULES):
            wanted, came = ", ".join(MODULES), ", ".join(map(repr, self.extras))
            raise SettingError(f"extras must be some of {wanted}, got {came}")


class FigureFile(Table, frozen=True, kw_only=True):
    """The whole of config.toml."""

    figure: FigureTable
    settings: dict[str, Any]
    quick: dict[str, Any]

    def __post_init__(self) -> None:
        """Refuse numbers of the quick version that the full one does not have."""
        for key in self.quick:
            if key not in self.settings:
                raise SettingError(f"[quick] must overrule keys of [settings], got {key!r}")


def read_figure(folder: Path) -> Figure:
    """The figure of ``folder``; its code is not loaded yet."""
    where = f"{folder.name}/{CONFIG}"
    document = load_document(folder / CONFIG)
    file = decode(document, FigureFile, where=where, error=SettingError)
    about = file.figure
    return Figure(
        folder.name,
        folder,
        title=" ".join(about.title.split()),
        paper=" ".join(about.paper.split()),
        says=" ".join(about.says.split()),
        version=about.version,
        timed=about.timed,
        settings=file.settings,
        quick=file.quick,
        extras=about.extras,
    )


def _listed(items: object, kind: type[Kind], name: str) -> list[Kind]:
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise SettingError(f"figure {name} must give a list of {kind.__name__}, got {items!r:.80}")
    return items
