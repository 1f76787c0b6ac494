"""``vfb reproduce``: the quick version of every figure from command to page, and refusals."""

import re

import pytest
import typer
from command_words import beside_progress
from typer.testing import CliRunner

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.reproduce import reproduce

app = typer.Typer()
app.command()(in_one_line(reproduce))
NAMES = ("fig4_losslessness", "fig5_cost", "fig6_participants")


def call(*words):
    return CliRunner().invoke(app, list(words), terminal_width=200)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """All three figures, once, with one process for all but the timed cells."""
    out = tmp_path_factory.mktemp("quick")
    words = [*NAMES, "--quick", "--processes", "1", "--date", "a day", "--out", str(out)]
    done = call(*words)
    assert done.exit_code == 0, done.output
    return out, done, words


def test_a_quick_run_writes_rows_images_and_a_page(quick):
    out, done, _ = quick
    for name in NAMES:
        assert (out / name / "rows.csv").read_text().count("\n") > 20
        assert list((out / name).glob("*.png"))
    assert f"wrote {out / 'index.html'}" in done.stdout
    assert beside_progress(done.stderr) == []


def test_the_page_holds_every_image_and_claim_and_fetches_nothing(quick):
    out, _, _ = quick
    text = (out / "index.html").read_text(encoding="utf-8")
    images = sum(len(list((out / name).glob("*.png"))) for name in NAMES)
    assert text.count('src="data:image/png;base64,') == images == 5
    assert not re.search(r"https?:", text)
    assert len(re.findall(r'class="verdict ', text)) == 2 * (14 + 11 + 10)
    assert "a day" in text


def test_masked_bandits_decide_as_central_ones_in_the_quick_version_too(quick):
    text = (quick[0] / "index.html").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "600 of 600 decisions equal" in line]
    assert len(lines) == 8  # two policies, two masks, above and in the section
    assert all(">pass</span>" in line for line in lines)


def test_what_the_paper_gets_wrong_is_shown_as_failed(quick):
    text = (quick[0] / "index.html").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if "6.25 GB per step" in line and "<tr>" in line]
    assert len(lines) == 2
    assert all("0.2 GB by the paper" in line and ">fail</span>" in line for line in lines)


def test_a_second_run_only_writes_again_what_the_first_one_found(quick):
    out, _, words = quick
    before = (out / "index.html").read_bytes()
    stamps = {path: path.stat().st_mtime_ns for path in out.glob("*/cells/*.json")}
    assert call(*words).exit_code == 0
    assert (out / "index.html").read_bytes() == before
    assert stamps == {path: path.stat().st_mtime_ns for path in out.glob("*/cells/*.json")}


def test_list_names_the_figures():
    done = call("list")
    assert done.exit_code == 0
    for name in ("losslessness", "cost", "participants", "Fig. 4"):
        assert name in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig9"], "a figure must be one of all, "),
        (["all", "--processes", "0"], "processes must be a whole number from 1, got 0"),
        (["all", "--figures", "absent"], "figures must be in a folder, got absent"),
    ],
)
def test_a_bad_word_gives_one_line_on_stderr(tmp_path, words, message):
    done = call(*words, "--out", str(tmp_path / "out"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_broken_figure_gives_one_line_on_stderr(tmp_path):
    (tmp_path / "figures" / "mine").mkdir(parents=True)
    (tmp_path / "figures" / "mine" / "config.toml").write_text("[figure]\n")
    done = call("all", "--figures", str(tmp_path / "figures"), "--out", str(tmp_path / "out"))
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "mine/config.toml: figure.title is missing, wanted text" in done.stderr
