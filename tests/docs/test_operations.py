"""What docs/operations.md shows besides commands: the program and the tables of a file."""

import asyncio
import re
import tomllib
from pathlib import Path

import pytest
from live_commands import running

from vfbandits.settings.decode import decode
from vfbandits.settings.features import FeatureSettings

PAGE = (Path(__file__).parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
TABLES = [text for text in BLOCKS if "features" in tomllib.loads(text)]


def test_the_program_decides_and_learns_in_a_running_federation(tmp_path):
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    names = {}
    exec(program, names)  # noqa: S102  (our own page)
    with running(tmp_path, terms={"layout": "disjoint"}) as federation:
        said = asyncio.run(names["visit"](federation.config("app"), federation.world.users[0]))
    assert said == "tea with probability 1, by shop, bank, news"


@pytest.mark.parametrize("text", TABLES, ids=range(len(TABLES)))
def test_a_features_table_is_one_that_a_participant_can_have(text):
    settings = decode(tomllib.loads(text)["features"], FeatureSettings)
    assert settings.kind in ("file", "sql", "redis")


def test_each_kind_of_feature_store_is_shown():
    kinds = {tomllib.loads(text)["features"]["kind"] for text in TABLES}
    assert kinds == {"file", "sql", "redis"}


def test_links_to_other_pages_and_sections_lead_somewhere():
    docs = Path(__file__).parents[2] / "docs"
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert links
    assert [link for link in links if not (docs / link).is_file()] == []
