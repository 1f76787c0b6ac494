"""Folders of figures: what is missing or broken is said in one sentence, before any cell runs."""

import pytest

from vfbandits.errors import SettingError
from vfbandits.reproduce.catalogue import choose_figures, experiments_folder, find_figures
from vfbandits.reproduce.figure import read_figure
from vfbandits.reproduce.runner import reproduce
from vfbandits.simulate.engine import HereEngine


def refusal(folder, out):
    with pytest.raises(SettingError) as caught:
        reproduce([read_figure(folder)], out, engine=HereEngine())
    assert not list(out.glob("*/cells/*"))
    return str(caught.value)


@pytest.mark.parametrize("file", ["run.py", "claims.py", "plot.py", "config.toml"])
def test_a_missing_file_is_named(toy, tmp_path, file):
    folder = toy()
    (folder / file).unlink()
    assert file in refusal(folder, tmp_path / "out")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("run", "def cells", "def sells", "run.py of figure fig0_toy must have a function cells"),
        ("run", "def run_cell", "def run_sell", "must have a function run_cell, got none"),
        ("run", "import os, time", "import os, tyme", "but ModuleNotFoundError: No module named"),
        ("plot", "def draw(", "def draw[", "plot.py of figure fig0_toy must be importable"),
        ("config", 'title = "A toy"', "title = ", "fig0_toy/config.toml must be a TOML file"),
        (
            "config",
            'title = "A toy"',
            'title = " "',
            "figure.title must be some text, got blanks only",
        ),
        (
            "config",
            'title = "A toy"',
            'titel = "x"',
            "figure.titel is not a key, but figure.title is",
        ),
        (
            "config",
            "version = 1",
            "version = 1\nvershun = 2",
            "figure.vershun is not a key, but figure.version is",
        ),
        ("config", "[quick]\nsizes", "[quick]\nsighs", "must overrule keys of [settings]"),
        ("config", "[quick]", "[slow]", "slow is not a key; wanted figure, settings, quick"),
    ],
)
def test_a_broken_file_gives_one_clear_sentence(toy, tmp_path, file, old, new, message):
    assert message in refusal(toy(**{file: (old, new)}), tmp_path / "out")


def test_a_figure_of_wrong_kinds_is_refused(toy, tmp_path):
    folder = toy(plot=("return [Drawing", "return [3] or [Drawing"))
    with pytest.raises(SettingError, match="must give a list of Drawing"):
        reproduce([read_figure(folder)], tmp_path / "out", engine=HereEngine())


def test_two_figures_with_helpers_of_the_same_name_do_not_mix(toy, tmp_path):
    folders = [toy("fig1_a"), toy("fig2_b", helper=("n * n", "n * n * n"))]
    outcomes = reproduce(
        [read_figure(folder) for folder in folders], tmp_path / "out", engine=HereEngine()
    )
    assert [outcome.rows[1]["square"] for outcome in outcomes] == [4, 8]


def test_figures_are_found_by_name_with_or_without_their_number(toy):
    folder = toy("fig1_a").parent
    toy("owners")
    figures = find_figures(folder)
    assert [figure.short_name for figure in figures] == ["a", "owners"]
    assert [f.name for f in choose_figures(figures, ["fig1_a"])] == ["fig1_a"]
    assert [f.name for f in choose_figures(figures, ["owners", "a"])] == ["fig1_a", "owners"]
    assert choose_figures(figures, ["all"]) == figures
    with pytest.raises(SettingError, match="must be one of all, a, owners; got 'b'"):
        choose_figures(figures, ["b"])


def test_a_folder_without_figures_is_refused(tmp_path):
    with pytest.raises(SettingError, match="must hold figures"):
        find_figures(tmp_path)
    with pytest.raises(SettingError, match="must be in a folder"):
        find_figures(tmp_path / "absent")


def test_the_papers_figures_are_found_and_whole():
    figures = {figure.short_name: figure for figure in find_figures(experiments_folder())}
    assert {"losslessness", "cost", "participants"} <= figures.keys()
    for figure in figures.values():
        figure.check()
