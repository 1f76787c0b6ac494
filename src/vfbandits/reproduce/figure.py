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
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from vfbandits.errors import SettingError
from vfbandits.extras import MODULES
from vfbandits.reproduce.claim import Claim, ValueTable
from vfbandits.reproduce.drawing import Drawing
from vfbandits.reproduce.folder_module import find_function, load_function
from vfbandits.reproduce.rows import Row, Settings
from vfbandits.settings.table import Table

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


def read_figure(folder: Path) -> Figure:
    """The figure of ``folder``; its code is not loaded yet."""
    where = f"{folder.name}/{CONFIG}"
    try:
        document = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{where} must be a TOML file, but {error}") from error
    except OSError as error:
        raise SettingError(f"{where} must be a file to read, got: {error.strerror}") from error
    whole = Table(document, where=where)
    about = Table(_table(whole, "figure", where), where=f"{where}, [figure]")
    settings, quick = _table(whole, "settings", where), _table(whole, "quick", where)
    whole.close()
    for key in quick:
        if key not in settings:
            raise SettingError(f"{where}: [quick] must overrule keys of [settings], got {key!r}")
    figure = Figure(
        folder.name,
        folder,
        title=_text(about, "title"),
        paper=_text(about, "paper"),
        says=_text(about, "says"),
        version=about.whole("version", 1),
        timed=about.flag("timed", default=False),
        settings=settings,
        quick=quick,
        extras=_extras(about),
    )
    about.close()
    return figure


def _table(whole: Table, key: str, where: str) -> Settings:
    value = whole.take(key, None)
    if not isinstance(value, dict):
        raise SettingError(f"{where} must have a table [{key}], got {value!r}")
    return value


def _text(about: Table, key: str) -> str:
    text = about.text(key, "")
    if not text.strip():
        raise about.wrong(key, "some text", text)
    return " ".join(text.split())


def _extras(about: Table) -> tuple[str, ...]:
    names = about.take("extras", [])
    if not isinstance(names, list) or not all(name in MODULES for name in names):
        raise about.wrong("extras", f"a list of some of {', '.join(MODULES)}", names)
    return tuple(names)


def _listed(items: object, kind: type[Kind], name: str) -> list[Kind]:
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise SettingError(f"figure {name} must give a list of {kind.__name__}, got {items!r:.80}")
    return items
