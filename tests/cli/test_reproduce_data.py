"""The figures on data, in their quick form: Criteo and real data with natural owners."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.reproduce.catalogue import experiments_folder, find_figures
from vfbandits.reproduce.folder_module import load_function

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


def call(*words):
    return CliRunner().invoke(app, ["reproduce", *words], terminal_width=200)


@pytest.fixture(scope="module")
def criteo_file(tmp_path_factory):
    """A small file in Criteo's form: 1500 rows, and one line that is none."""
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(1_500):
        numbers = [str(value) for value in rng.integers(0, 50, size=13)]
        categories = [f"{value:08x}" for value in rng.integers(0, 40, size=26)]
        lines.append("\t".join([str(int(rng.random() < 0.3)), *numbers, *categories]))
    lines.insert(7, "not a row")
    path = tmp_path_factory.mktemp("criteo") / "train.tsv.gz"
    path.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return path


def test_the_quick_criteo_figure_says_honestly_what_it_cannot_check(tmp_path):
    done = call("criteo", "--quick", "--processes", "1", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "greedy arm is the same for every user" not in page  # too short a run to judge
    assert "1.01, 1.02 and 1.03 ± 0.04" in page
    assert "--criteo FILE" in page
    assert (tmp_path / "fig6c_criteo" / "criteo.png").stat().st_size > 10_000


def test_a_user_s_own_file_is_replayed_once_made_into_rounds_and_bad_lines_are_told(
    tmp_path, criteo_file
):
    words = ["criteo", "--quick", "--processes", "1", "--out", str(tmp_path)]
    first = call(*words, "--criteo", str(criteo_file))
    assert first.exit_code == 0, first.output
    assert "1 malformed lines were skipped, the first: 8" in first.stderr
    rows = (tmp_path / "fig6c_criteo" / "rows.csv").read_text()
    assert rows.count("file,") == 12  # two contexts, three ratios, two seeds
    again = call(*words, "--criteo", str(criteo_file))
    assert again.exit_code == 0
    assert "malformed lines" not in again.stderr  # neither read nor replayed again


def test_a_file_that_is_not_there_is_one_clear_error(tmp_path):
    done = call("criteo", "--quick", "--out", str(tmp_path), "--criteo", str(tmp_path / "none.tsv"))
    assert done.exit_code == 2
    assert "--criteo must be a readable file, got" in done.stderr


def test_owners_of_the_bundled_digits_are_played_without_any_shared_data(tmp_path):
    done = call("owners", "--quick", "--processes", "1", "--out", str(tmp_path))
    assert done.exit_code == 0, done.output
    rows = (tmp_path / "owners" / "rows.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 4 * 2  # a header; policies, owners, seeds
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "digits: relative CTR as owners join" in page


@pytest.mark.skipif(not (SHARED / "letter").is_dir(), reason=f"needs the letter data in {SHARED}")
def test_letters_gain_much_from_every_owner(tmp_path):
    """Rising, as in the project's earlier measurement (about 2.6, 6.9, 9.6, 12.3)."""
    from vfbandits.core.policy import LinUCB  # noqa: PLC0415
    from vfbandits.datasets.owners_study import OwnersCell, play_owners  # noqa: PLC0415

    rates = [
        play_owners(OwnersCell("letter", LinUCB(beta=0.5), m, 0, n_rounds=2_000)).relative_ctr
        for m in (1, 2, 3, 4)
    ]
    assert rates == sorted(rates)
    assert rates[3] > 2.5 * rates[0]


def test_a_folder_without_a_data_set_is_refused_with_its_address_and_digest(tmp_path):
    done = call("owners", "--data", str(tmp_path), "--out", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert "https://archive.ics.uci.edu/dataset/350/" in done.stderr
    assert "a0f0ab49d6326671d6cd83be5c88dcf18007025fe9a53ecd699119c871176ca1" in done.stderr
    assert str(tmp_path / "default_credit" / "UCI_Credit_Card.csv.gz") in done.stderr


@pytest.mark.skipif(not SHARED.is_dir(), reason="the data sets are not there")
def test_the_data_sets_are_read_from_the_folder_that_is_named(tmp_path):
    (tmp_path / "letter").symlink_to(SHARED / "letter")
    (figure,) = [one for one in find_figures(experiments_folder()) if one.name == "owners"]
    config = {**figure.config(quick=True), "sets": ["letter"], "data": str(tmp_path), "rounds": 20}
    cells = figure.cells(config)
    assert {cell["set"] for cell in cells} == {"letter"}
    rows = load_function(figure.folder, "run", "run_cell")(cells[-1])
    assert [(row["set"], row["owners"], row["rounds"]) for row in rows] == [("letter", 4, 20)]
