"""Who changed what, and when: on record, kept by compaction, and listed by one command."""

import asyncio
import json
from contextlib import closing

import pytest
from campaign_world import World
from journals import make_place
from logged_runs import Run
from ranker_world import RankerWorld, soon
from typer.testing import CliRunner

from vfbandits.campaign.events import Administered, Configured, LossAccepted, SetAside
from vfbandits.cli.main import app
from vfbandits.errors import SettingError
from vfbandits.journal.audit import Change, changes_in
from vfbandits.journal.compact import compact
from vfbandits.journal.inbox.memory import MemoryInbox
from vfbandits.journal.memory import MemoryJournal
from vfbandits.journal.sqlite.reader import SqliteReader
from vfbandits.journal.verify import verify


def test_a_change_of_settings_is_on_record_with_who_and_when_and_a_refused_one_is_not():
    async def main(world):
        campaign = world.open()
        await campaign.configure({"mode": "frozen", "floor": 0.25}, by="boss")
        await campaign.configure({"mode": "frozen"}, by="web")  # as it is already
        with pytest.raises(SettingError):
            await campaign.configure({"mode": "asleep"}, by="web")
        await campaign.durable.close()

    world = World()
    asyncio.run(main(world))
    with closing(MemoryJournal(world.disk)) as journal:
        found = list(changes_in(journal))
    wanted = Change(2, world.clock.now, "boss", "settings", '{"floor": 0.25, "mode": "frozen"}')
    assert found == [wanted]


def test_a_change_that_a_ranker_was_asked_for_names_who_asked_the_ranker(tmp_path):
    async def main(world):
        async with world.leading() as leader, world.ranking() as ranker:
            await ranker.configure({"mode": "frozen"}, by="boss")
            await soon(lambda: leader.settings.mode == "frozen")
            with closing(MemoryInbox(world.inbox_records)) as inbox:  # from before it named anybody
                inbox.put([Configured(b'{"mode": "learn"}', 1.0)])
            await soon(lambda: world.refused)

    world = RankerWorld(tmp_path)
    asyncio.run(main(world))
    assert "who asks for it" in world.refused[0]
    with closing(SqliteReader(world.path)) as reader:
        found = [(change.by, change.what) for change in changes_in(reader)]
    assert found == [("boss", "settings")]


@pytest.mark.parametrize("place", ["InMemorySealed", "OnSqlite", "OnPostgres"], indirect=True)
def test_compaction_keeps_who_changed_what_and_adds_itself(place):
    run = Run(place)
    run.visit(8)
    with closing(place.open()) as journal:
        journal.append([Administered("masks", "mask epoch 2", "ops", 2.0)])
        journal.append([LossAccepted(9, 7, "2 are missing", "ops@shop", 3.0)])
        journal.append([SetAside("damaged", None, "ops@shop", 4.0)])
    run.visit(8, "save", 4, "save", 4)
    with closing(place.open()) as journal:
        before = list(changes_in(journal))
        done = compact(journal, by="night@shop", now=9.0)
        after = list(changes_in(journal))
        assert verify(journal).problems == ()
    assert [(change.what, change.by) for change in before] == [
        ("masks", "ops"), ("loss accepted", "ops@shop"), ("repair", "ops@shop")
    ]  # fmt: skip
    assert after[:-1] == before
    last = after[-1]
    assert (last.what, last.by, last.at) == ("compaction", "night@shop", 9.0)
    assert last.detail == f"up to position {done.position}"


@pytest.fixture
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


@pytest.mark.parametrize("place", ["OnSqlite"], indirect=True)
def test_the_command_lists_journal_and_keys_in_the_order_of_time(place, tmp_path):
    keys, words = tmp_path / "keys", ["journal", "audit", place.target, "--keys"]
    Run(place).visit(4, "save", 4, "save")

    def vfb(*words):
        done = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": "200"})
        assert done.exit_code == 0, done.output
        return done.stdout

    key = vfb("keys", "create", "--file", keys, "--name", "web", "--scope", "rank")
    vfb("journal", "compact", place.target)
    vfb("journal", "forget", place.target, "--user", "ann", "--reason", "request 88")
    vfb("keys", "revoke", key.split("_")[1], "--file", keys)
    found = json.loads(vfb(*words, keys, "--json"))["changes"]
    # Keys have whole seconds.
    assert sorted(one["what"] for one in found) == ["compaction", "erasure", "keys", "keys"]
    assert [one["at"] for one in found] == sorted(one["at"] for one in found)
    assert all("@" in one["by"] for one in found)
    details = [one["detail"] for one in found if one["what"] == "keys"]
    assert details[0].endswith("of 'web' created, for rank")
    assert details[1].endswith("of 'web' revoked")
    shown = vfb(*words, keys)
    assert "request 88" in shown
    assert key.strip() not in shown
