"""The backup drill of docs/backup.md: copy, destroy, put back, go on with the same decisions."""

import asyncio
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import servers
from command_words import BLOCK
from live_commands import running, vfb, wait_for
from live_world import LiveWorld, Session
from served_federation import ServedFederation

from vfbandits import LinUCB
from vfbandits.errors import ConfigError
from vfbandits.participant.run import build_passive
from vfbandits.protocol.roster import Terms
from vfbandits.settings.services import load_passive
from vfbandits.telemetry.log import logger_for

PAGE = (Path(__file__).parents[2] / "docs" / "backup.md").read_text(encoding="utf-8")
PASSIVE = ("bank", "news")
SECURE = {"mask": "dense", "aggregation": "secure"}


def drills():
    """By its heading, each role's commands: those that back up, and those that restore."""
    found = {}
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        blocks = [one["lines"] for one in BLOCK.finditer(section)]
        lines = [[line[2:] for line in text.splitlines() if line[:2] == "$ "] for text in blocks]
        found[section.splitlines()[0]] = tuple(lines)
    return found


class Drill:
    """A federation of real processes, a central bandit beside it, and commands of the page."""

    def __init__(self, federation):
        self.federation = federation
        self.session = Session(
            federation.world, federation, federation.world.central(LinUCB(beta=0.5))
        )

    def play(self, rounds=6):
        """Decide and learn with all participants; every decision is the central bandit's."""

        async def main():
            async with self.session as session:
                await session.play(rounds)

        wait_for(self.federation, *PASSIVE)
        asyncio.run(main())
        assert self.session.is_lossless
        assert set(self.session.contributors[-rounds:]) == {("shop", *PASSIVE)}

    def run(self, commands):
        for command in commands:
            if command.startswith("vfb serve"):
                role = command.split()[2]
                self.federation.start("shop" if role == "active" else "bank")
                continue
            program, *words = shlex.split(os.path.expandvars(command))
            if program == "vfb":
                done = vfb(*words)
                assert done.exit_code == 0, (command, done.output)
                continue
            assert program in ("cp", "pg_dump", "pg_restore"), command
            binary = program if program == "cp" else servers.postgres().programs / program
            subprocess.run([binary, *words], check=True)

    def lose(self, name):
        shutil.rmtree(self.federation.folder / name)

    def through(self, heading, *, folder, process=None, lose=lambda: None):
        """One role: back up, destroy, restore, and the same decisions."""
        back_up, restore = drills()[heading]
        self.play()
        if process:
            self.federation.stop(process)
        self.run(back_up)
        self.lose(folder)
        lose()
        self.run(restore)
        self.play()


def database():
    """The address of a new database, and what drops and makes it again."""
    server = servers.postgres().url.replace("+psycopg", "")

    def renewed():
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS backup_drill")
            connection.execute("CREATE DATABASE backup_drill")

    renewed()
    return server.replace("/postgres", "/backup_drill"), renewed


@pytest.mark.long
def test_every_role_goes_on_with_the_same_decisions_after_a_restore(tmp_path, monkeypatch):
    url, renewed = database()
    monkeypatch.setenv("VFB_JOURNAL", url)
    with running(tmp_path, terms=SECURE, journal=True) as federation:
        monkeypatch.chdir(federation.folder)
        Path("backup").mkdir()
        drill = Drill(federation)
        drill.through("Active participant", folder="shop", process="shop")
        drill.through("Passive participant", folder="bank", process="bank")
        drill.through("Mask generator", folder="generator")
        drill.through("Organiser", folder="organiser")
        # And on from a file to a database, with what was learnt.
        federation.stop("shop")
        drill.run(["vfb journal copy shop/state/journal.db env:VFB_JOURNAL"])
        shutil.rmtree("backup/shop")
        config = federation.config("shop")
        config.write_text('journal_target = "env:VFB_JOURNAL"\n' + config.read_text())
        federation.start("shop")
        heading = "Active participant, journal in PostgreSQL"
        drill.through(heading, folder="shop", process="shop", lose=renewed)
    assert drill.session.total >= 60


def test_the_page_has_a_pair_of_commands_for_every_role():
    found = drills()
    assert {heading: len(blocks) for heading, blocks in found.items()} == dict.fromkeys(
        (
            *("Active participant", "Active participant, journal in PostgreSQL"),
            *("Passive participant", "Mask generator", "Organiser"),
        ),
        2,
    )


# --- an old copy of a passive participant under secure sums ---------------------------------------


def rounds_sent(state):
    """The stamps in an outbox, and the reservation."""
    with closing(sqlite3.connect(state / "outbox.db")) as db:
        stamps = db.execute("SELECT round, attempt FROM sent ORDER BY place").fetchall()
        return stamps, db.execute("SELECT round FROM reservation").fetchone()[0]


async def decide(served, rounds):
    try:
        await served.start_active()
        await served.start(*PASSIVE)
        for _ in range(rounds):
            await served.decide_with(*PASSIVE)
    finally:
        await served.close()


@pytest.fixture
def served(tmp_path):
    """A federation that has decided since its bank was copied."""
    world = LiveWorld(
        tmp_path, widths={"shop": 3, "bank": 2, "news": 2}, terms=Terms(**SECURE), n_users=2
    )
    served = ServedFederation(world, "memory")
    asyncio.run(decide(served, 3))
    shutil.copytree(served.state("bank"), tmp_path / "old")
    shutil.copytree(served.state("shop"), tmp_path / "old-shop")
    asyncio.run(decide(served, 3))
    return served


def build(served):
    return build_passive(load_passive(served.files.config("bank")), logger_for("bank", "passive"))


def test_an_old_outbox_beside_a_newer_lock_is_refused(served, tmp_path):
    state = served.state("bank")
    for path in state.glob("outbox.db*"):
        path.unlink()
    for path in (tmp_path / "old").glob("outbox.db*"):
        shutil.copy(path, state)
    with pytest.raises(ConfigError, match="must not cover two messages"):
        build(served)


def test_a_whole_old_folder_starts_and_no_round_is_sent_a_second_time(served, tmp_path):
    state = served.state("bank")
    sent, _ = rounds_sent(state)
    shutil.rmtree(state)
    shutil.copytree(tmp_path / "old", state)
    old, reserved = rounds_sent(state)
    assert reserved < max(sent)[0]  # pads that it does not know to be used
    asyncio.run(decide(served, 3))
    after, _ = rounds_sent(state)
    new = [stamp for stamp in after if stamp not in old]
    assert new
    assert not {*new} & {*sent}
    assert min(new) > max(sent)


def test_an_old_folder_of_the_active_participant_goes_on_with_later_rounds(served, tmp_path):
    sent, _ = rounds_sent(served.state("bank"))
    shutil.rmtree(served.state("shop"))
    shutil.copytree(tmp_path / "old-shop", served.state("shop"))
    asyncio.run(decide(served, 3))
    after, _ = rounds_sent(served.state("bank"))
    new = [stamp for stamp in after if stamp not in sent]
    assert new
    assert min(new) > max(sent)
