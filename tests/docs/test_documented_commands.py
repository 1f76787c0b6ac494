"""Every ``vfb`` command in README and docs, parsed by the command itself."""

from pathlib import Path

import pytest
from command_words import all_commands, commands_in, parse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TYPED = sorted(
    {(page.name, words) for page in PAGES for words in commands_in(page.read_text("utf-8"))}
)


@pytest.mark.parametrize(("page", "words"), TYPED, ids=[f"{p} {' '.join(w)}" for p, w in TYPED])
def test_a_command_in_the_docs_is_one_that_vfb_accepts(page, words):
    assert parse(words) in all_commands()


@pytest.mark.parametrize("words", [
    ("pki", "int"), ("masks", "deal", "--epok", "1"), ("demo", "--mask", "odd"), ("pki", "init"),
    ("pki", "init", "--federal", "…"),
])  # fmt: skip
def test_a_command_that_vfb_does_not_accept_is_found(words):
    with pytest.raises(Exception, match=r"No such|not one of|Missing"):
        parse(words)


@pytest.mark.parametrize("names", all_commands(), ids=" ".join)
def test_every_command_has_a_heading_in_the_command_lines_page(names):
    lines = (ROOT / "docs" / "cli.md").read_text("utf-8").splitlines()
    assert f"## vfb {' '.join(names)}" in lines


def test_operations_walks_through_every_command_of_a_federation():
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    shown = {parse(words) for words in commands_in(page)}
    groups = ("features", "federation", "masks", "pki", "preflight", "serve")
    assert shown >= {names for names in all_commands() if names[0] in groups}
