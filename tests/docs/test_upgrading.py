"""The commands of docs/upgrading.md, run in their order beside a federation of real processes."""

import asyncio
import re
import shlex
import subprocess
from contextlib import closing
from pathlib import Path

from command_words import BLOCK
from live_commands import running, wait_for
from live_world import DEADLINE_S, client_of
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.journal import migration, record, snapshot, witness
from vfbandits.journal.inbox import postgres as inbox
from vfbandits.journal.postgres import rows as postgres_rows
from vfbandits.journal.sqlite import rows as sqlite_rows
from vfbandits.journal.sqlite.reader import SqliteReader
from vfbandits.participant import outbox
from vfbandits.protocol import roster
from vfbandits.protocol.version import SPOKEN
from vfbandits.serving import masks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "upgrading.md").read_text(encoding="utf-8")


def typed():
    """Each command of the page, with the lines that it shows."""
    for block in BLOCK.finditer(PAGE):
        for part in re.split(r"^\$ ", block["lines"], flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, shown


def run(command):
    """Run a command here; returns what it says."""
    program, *words = shlex.split(command)
    if program == "vfb":
        done = CliRunner().invoke(app, words, env={"COLUMNS": "200"})
        assert done.exit_code == 0, (command, done.output, done.exception)
        return done.stdout
    assert program in ("cp", "mv")
    return subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout


def decide(federation):
    """One decision with all participants; returns its id."""

    async def ask():
        client = client_of(federation)
        try:
            world = federation.world
            return await client.decide(world.request(world.users[0]), timeout_s=DEADLINE_S)
        finally:
            await client.close()

    reply = asyncio.run(ask())
    assert reply.contributors == ("shop", "bank", "news")
    return reply.event_id


def ids_in(path):
    with closing(SqliteReader(path)) as reader:
        return [event.event_id for _, event in reader.read()]


def test_every_command_of_the_page_works_in_its_order(tmp_path, monkeypatch):
    decided = []
    with running(tmp_path, journal=True) as federation:
        monkeypatch.chdir(federation.folder)
        decided.append(decide(federation))
        federation.stop("bank")
        for command, shown in typed():
            if command.startswith("vfb serve"):
                federation.start("shop" if " active " in command else "bank")
                wait_for(federation, "bank", "news")
                decided.append(decide(federation))
                continue
            if command.startswith(("cp -a shop/state shop", "mv shop/state shop")):
                federation.stop("shop")
            said = run(command)
            assert said.splitlines()[: len(shown)] == shown, command
        lines = federation.events("shop")
        joined = [line for line in lines if line["event"] == "participant_joined"]
        assert {line["protocol"] for line in joined} == {SPOKEN.highest}
    # At first, with the new bank, with the new shop, and after the way back.
    first, second, third, fourth = decided
    state = federation.folder / "shop"
    assert ids_in(state / "state-before" / "journal.db") == [first, second]
    assert ids_in(state / "state-newer" / "journal.db") == [first, second, third]
    assert ids_in(state / "state" / "journal.db") == [first, second, fourth]


def test_the_page_says_which_versions_are_written():
    versions = {
        record.VERSION,
        snapshot.VERSION,
        roster.VERSION,
        outbox.VERSION,
        masks.VERSION,
        witness.VERSION,
        SPOKEN.highest,
        *(migration.newest(module.STEPS) for module in (sqlite_rows, postgres_rows, inbox)),
    }
    assert versions == {1}, "docs/upgrading.md says that all are 1: change it, too"
    assert "it writes version 1 of each format and speaks version 1 of the protocol" in PAGE


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)", PAGE)
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).is_file()] == []
