"""docs/single-company.md, run as it stands: every command, against servers that it starts."""

import json
import re
import shlex
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from command_words import PROMPT
from three_tables import write_tables
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.demo.processes import Processes, free_ports
from vfbandits.pki import create_request

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "single-company.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")


def sections(page):
    parts = re.split(r"^## (.*)$", page, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


SECTIONS = sections(PAGE)

pytestmark = pytest.mark.timeout(400)


def typed(section, page=PAGE):
    """The commands of a section, in their order."""
    text = sections(page)[section]
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line.removeprefix("$ ") for line in lines if PROMPT.match(line)]


README_TYPED = typed("Serving first, federation second", README)


class FlatFolder(Processes):
    """A folder as ``vfb new`` writes it."""

    def config(self, name):
        return self.folder / f"{name}.toml"

    def log_path(self, name):
        return self.folder / f"{name}.log"


class Shell:
    """Runs the page's commands in a folder, with other ports than the page has."""

    def __init__(self, home):
        self.home = home
        self.port, self.http = free_ports(2)
        self.key = ""
        self.server = FlatFolder(home / "shop", ["shop"])

    @contextmanager
    def __call__(self):
        try:
            yield self.run
        finally:
            self.server.stop_all()

    def run(self, line):
        words = shlex.split(line)
        if words[0] == "pip":
            return None  # packaging/test_wheel.py installs the row of this extra
        if words[:2] == ["vfb", "serve"]:
            assert words[2:] == ["active", "--config", "shop/shop.toml"]
            self.server.start("shop")
            return None
        if words[0] == "vfb":
            if words[1] == "new":
                words += ["--port", str(self.http), "--address", f"127.0.0.1:{self.port}"]
            done = CliRunner().invoke(app, words[1:], input="y\n")
            assert done.exit_code == 0, (line, done.output)
            return done.stdout
        if words[0].startswith("KEY="):
            self.key = (self.home / words[1].rstrip(")")).read_text().strip()
            return None
        return self.curl(words)

    def curl(self, words):
        assert words[:2] == ["curl", "-s"]
        headers = [words[place + 1] for place, word in enumerate(words) if word == "-H"]
        for spelt in ("$KEY", "$(cat shop/app/api-key.txt)"):
            headers = [header.replace(spelt, self.key) for header in headers]
        fields = dict(header.split(": ") for header in headers)
        url = words[2] if "//" in words[2] else f"http://{words[2]}"
        url = url.replace(":8080", f":{self.http}")
        done = httpx2.post(url, headers=fields, content=words[words.index("-d") + 1], timeout=30.0)
        assert done.status_code == 200, done.text
        return done.json()


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Shell(tmp_path)


def test_four_commands_lead_to_an_answer_and_a_partner_can_come_later(shell, tmp_path):
    commands = typed("Four commands")
    assert [line.split()[0] for line in commands[:3]] == ["pip", "vfb", "vfb"]
    with shell() as run:
        said = run(commands[1])
        run(commands[2])
        printed = next(line for line in said.splitlines() if line.startswith("  curl"))
        shown = shell.curl(shlex.split(printed))
        assert shown["contributors"] == ["shop"]
        *_, ranked, rewarded = [run(line) for line in commands[3:]]
        assert (ranked["event_id"], ranked["degraded"]) == ("visit-17", False)
        assert rewarded == {"event_id": "visit-17", "status": "learnt"}
        assert run(README_TYPED[3])["contributors"] == ["shop"]

        request = create_request(tmp_path / "bank", federation="shop", name="bank",
                                 role="passive", width=2)  # fmt: skip
        (tmp_path / "inbox").mkdir()
        (tmp_path / "inbox" / request.name).write_bytes(request.read_bytes())
        approved, added = [run(line) for line in typed("Later: a second organisation")]
        assert "bank" in approved
        assert "roster number 2 is in force, mask epoch 2" in added
        assert (tmp_path / "shop" / "operator" / "bank.zip").is_file()
        after = shell.curl(shlex.split(printed))
        assert (after["epoch"], after["degraded"], after["model_version"]) == (2, True, 1)


def test_a_table_of_users_takes_the_place_of_features_in_requests(shell, tmp_path):
    shop, *_ = write_tables(tmp_path / "data")
    shop.rename(tmp_path / "customers.csv")
    new, serve, curl = typed("Features of known users from a table")
    with shell() as run:
        run(new)
        run(serve)
        shell.key = (tmp_path / "shop" / "app" / "api-key.txt").read_text().strip()
        assert run(curl)["contributors"] == ["shop"]


def test_the_readme_begins_with_the_same_commands():
    assert next(iter(sections(README))) == "Serving first, federation second"
    shown = [shlex.split(line, comments=True) for line in README_TYPED[:3]]
    assert shown == [shlex.split(line) for line in typed("Four commands")[:3]]


def test_every_command_of_the_page_is_run():
    run = typed("Four commands") + typed("Later: a second organisation")
    run += typed("Features of known users from a table")
    assert [line for section in SECTIONS for line in typed(section) if line not in run] == []
    assert json.loads(re.search(r"-d '(\{.*?\})'", PAGE)[1])["arms"] == ["tea", "coffee"]
