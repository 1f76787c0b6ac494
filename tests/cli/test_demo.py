"""What ``vfb demo --keep`` tells people to type."""

import shlex
from pathlib import Path

import pytest
from command_words import parse
from live_commands import works
from live_world import LiveWorld

from vfbandits.cli.demo import commands_to_type
from vfbandits.protocol.roster import Terms

WIDTHS = {"shop": 2, "bank": 2, "news": 2}


@pytest.fixture(params=["blockwise", "dense"])
def federation(tmp_path, request):
    """The files of a federation; none of its processes is started."""
    return LiveWorld(tmp_path, widths=WIDTHS, terms=Terms(request.param)).federation()


def test_whatcommands_to_type_are_commands_that_vfb_accepts(federation):
    typed = [shlex.split(line) for line in commands_to_type(federation)]
    names = [parse(words) for program, *words in typed if program == "vfb"]
    assert names[:2] == [("federation", "status"), ("parity",)]
    assert names[-1] == ("masks", "rotate")


def test_dense_masks_are_dealt_into_the_folder_from_which_they_are_put_into_force(federation):
    typed = [shlex.split(line) for line in commands_to_type(federation)]
    deals = [words for _, *words in typed if words[:2] == ["masks", "deal"]]
    assert len(deals) == (federation.plan.terms.mask == "dense")
    for words in deals:
        works(*words)
        assert {path.name for path in Path(typed[-1][-1]).iterdir()} == {
            f"{name}.epoch-2.envelope" for name in WIDTHS
        }
