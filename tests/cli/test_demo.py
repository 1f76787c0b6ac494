"""What ``vfb demo --keep`` tells people to type."""

import json
import shlex
from pathlib import Path

import pytest
from command_words import parse
from live_commands import works
from live_world import LiveWorld
from typer.testing import CliRunner

from vfbandits.cli.demo import commands_to_type, progress_note
from vfbandits.cli.main import app
from vfbandits.demo.rehearsal import Tally
from vfbandits.protocol.roster import SharesRules, Terms

WIDTHS = {"shop": 2, "bank": 2, "news": 2}


def test_progress_counts_equal_decisions_only_while_they_are_compared():
    tally = Tally(total=3, equal=3, seconds=[0.001, 0.002, 0.003])
    assert progress_note(tally, is_compared=True) == "3 equal to central, p50 2.0 ms"
    assert progress_note(tally, is_compared=False) == "p50 2.0 ms"


@pytest.fixture(params=["blockwise", "dense"])
def federation(tmp_path, request):
    """The files of a federation; none of its processes is started."""
    return LiveWorld(tmp_path, widths=WIDTHS, terms=Terms(request.param)).federation()


def test_whatcommands_to_type_are_commands_that_vfb_accepts(federation):
    typed = [shlex.split(line) for line in commands_to_type(federation)]
    names = [parse(words) for program, *words in typed if program == "vfb"]
    assert names[:2] == [("federation", "status"), ("parity",)]
    assert names[-1] == ("masks", "rotate")


def test_on_secret_shares_more_windows_can_be_dealt_into_the_folder_of_the_active_participant(
    tmp_path,
):
    rules = SharesRules(helper="bank", max_arms=2, window=2, decisions=2, posterior_scale=0.1)
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms(bound=1.0, shares=rules))
    federation = world.federation(windows=1)
    status, deal = (shlex.split(line) for line in commands_to_type(federation))
    assert parse(status[1:]) == ("federation", "status")
    deal[deal.index("--windows") + 1] = "2"
    works(*deal[1:])
    dealt = sorted(path.name for path in (federation.folder / "shop" / "dealt").iterdir())
    assert dealt == [
        "shop.epoch-1.secrets",
        *(f"shop.epoch-1.window-{number:08d}.deal" for number in range(3)),
    ]


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--protection", "shares", "--mask", "dense"], "has blockwise masks"),
        (["--protection", "shares", "--aggregation", "secure"], "plain aggregation"),
        (["--protection", "mask", "--aggregation", "secure"], "is protection 'sum', got"),
        (["--helper", "notary"], "--helper goes with --protection shares, got --helper notary"),
        (["--protection", "shares", "--helper", "shop"], "would hold both shares"),
    ],
)
def test_levels_that_do_not_go_with_other_flags_are_refused(flags, reason):
    done = CliRunner().invoke(app, ["demo", *flags], env={"COLUMNS": "300"})
    assert done.exit_code != 0
    assert reason in f"{done.output}{done.exception}"


@pytest.mark.long
def test_the_demo_on_secret_shares_equals_the_central_bandit(tmp_path):
    flags = ["--protection", "shares", "--rounds", "40", "--json", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(app, ["demo", *flags, "--helper", "notary"])
    assert done.exit_code == 0, done.output
    first, *others = done.stderr.splitlines()
    assert first.startswith("compiling the loops of secret shares")
    assert others[0] == "dealing words for 352 decisions"
    assert "starting 6 processes" in others
    result = json.loads(done.stdout)
    assert (result["decisions_equal"], result["incomplete_rounds"]) == (40, 0)
    assert result["protection"] == "shares"


def test_dense_masks_are_dealt_into_the_folder_from_which_they_are_put_into_force(federation):
    typed = [shlex.split(line) for line in commands_to_type(federation)]
    deals = [words for _, *words in typed if words[:2] == ["masks", "deal"]]
    assert len(deals) == (federation.plan.terms.mask == "dense")
    for words in deals:
        works(*words)
        assert {path.name for path in Path(typed[-1][-1]).iterdir()} == {
            f"{name}.epoch-2.envelope" for name in WIDTHS
        }
