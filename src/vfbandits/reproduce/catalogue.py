"""Finds the figures, and chooses those that a user names."""

from collections.abc import Sequence
from pathlib import Path

import vfbandits
from vfbandits.errors import SettingError
from vfbandits.reproduce.figure import CONFIG, Figure, read_figure

EVERY = "all"


def experiments_folder() -> Path:
    """experiments/ of the installed package, or else of the checkout that it is run from."""
    package = Path(vfbandits.__file__).parent
    places = (package / "experiments", package.parent.parent / "experiments")
    for place in places:
        if place.is_dir():
            return place
    listed = " or ".join(str(place) for place in places)
    raise SettingError(f"figures must be in {listed}, got neither")


def find_figures(folder: Path) -> list[Figure]:
    """Every folder below that has a config.toml, by name."""
    if not folder.is_dir():
        raise SettingError(f"figures must be in a folder, got {folder}")
    figures = [read_figure(path.parent) for path in sorted(folder.glob(f"*/{CONFIG}"))]
    if not figures:
        raise SettingError(f"{folder} must hold figures, NAME/{CONFIG}; got none")
    return figures


def choose_figures(figures: Sequence[Figure], words: Sequence[str]) -> list[Figure]:
    """Those that ``words`` name, in the order of ``figures``; "all" names every one."""
    known = [name for figure in figures for name in (figure.short_name, figure.name)]
    for word in words:
        if word not in (EVERY, *known):
            names = ", ".join(figure.short_name for figure in figures)
            raise SettingError(f"a figure must be one of {EVERY}, {names}; got {word!r}")
    return [
        figure for figure in figures if {EVERY, figure.name, figure.short_name}.intersection(words)
    ]
