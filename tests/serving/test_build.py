"""How a process is put together: what is opened in which order, and given back."""

import asyncio
import os
import signal
import socket
from contextlib import closing
from functools import partial

import pytest
from live_world import LiveWorld
from msgspec.structs import replace

from vfbandits.errors import ConfigError, JournalError
from vfbandits.journal.audit import changes_in
from vfbandits.journal.verify import verify
from vfbandits.protocol.roster import Terms
from vfbandits.serving.build import NoFront, build_active, open_campaigns, run_process
from vfbandits.serving.journals import CampaignJournals
from vfbandits.settings.http import CampaignTable, HttpSettings
from vfbandits.settings.services import load_active
from vfbandits.telemetry.log import logger_for

WIDTHS = {"shop": 2, "bank": 3, "news": 2}


def settings_of(tmp_path):
    world = LiveWorld(tmp_path, widths=WIDTHS, terms=Terms("blockwise", "plain"), n_users=2)
    settings = load_active(world.federation().config("shop"))
    settings.state.mkdir(mode=0o700, exist_ok=True)
    return replace(settings, campaign_tables={"mail": CampaignTable()})


def test_if_one_journal_cannot_be_opened_the_others_are_given_back(tmp_path):
    settings, log = settings_of(tmp_path), logger_for("shop", "active")
    journals = CampaignJournals(settings)
    taken = journals.open("mail")

    async def start():
        return await open_campaigns(settings, build_active(settings, log), log)

    for _ in range(2):  # the default journal is not locked
        with pytest.raises(JournalError, match=r"mail\.db\.lock is locked"):
            asyncio.run(start())
    taken.close()

    async def start_and_stop():
        await (await start()).stop()

    asyncio.run(start_and_stop())


class WatchingFront(NoFront):
    """A front that notes what it is told, and which journals are open then."""

    def __init__(self, settings):
        self.told = []
        self._settings = settings

    async def prepare(self, process):
        self.told.append(("prepare", process.kind, process.campaigns.names, self.is_open()))
        return partial(self.serve, process)

    async def serve(self, process):
        self.told.append(("serve", process.campaigns.problems()))
        return 80

    async def stop(self):
        self.told.append(("stop", self.is_open()))

    def is_open(self):
        try:
            CampaignJournals(self._settings).open("default").close()
        except JournalError:
            return True
        return False


def test_a_front_serves_what_is_open_and_stops_before_it_is_closed(tmp_path):
    settings = settings_of(tmp_path)
    settings = replace(
        settings, address="127.0.0.1:0", http=HttpSettings("127.0.0.1:0", insecure=True)
    )
    front = WatchingFront(settings)

    def end(port, http_port):
        assert (port > 0, http_port) == (True, 80)
        asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)

    asyncio.run(run_process(settings, on_ready=end, make_front=lambda *_: front))
    assert front.told == [
        ("prepare", "active", ["default", "mail"], True),
        ("serve", []),
        ("stop", True),
    ]


def test_a_process_that_cannot_listen_gives_its_journals_back(tmp_path):
    settings = settings_of(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = replace(settings, address=f"127.0.0.1:{taken.getsockname()[1]}")
        for _ in range(2):
            with pytest.raises(ConfigError, match="cannot listen"):
                asyncio.run(run_process(settings, on_ready=print))


def test_what_a_settings_file_changes_is_on_record_and_a_start_with_the_same_file_is_not(tmp_path):
    settings, log = replace(settings_of(tmp_path), started_by="ops@shop"), logger_for("shop", "a")

    def started(**tables):
        changed = replace(settings, campaign_tables=tables)

        async def start_and_stop():
            await (await open_campaigns(changed, build_active(changed, log), log)).stop()

        asyncio.run(start_and_stop())
        journals = CampaignJournals(changed)
        found = []
        for campaign in ("default", "mail"):
            with closing(journals.open(campaign)) as journal:
                assert verify(journal).problems == ()
                found.append([(one.by, one.what, one.detail) for one in changes_in(journal)])
        return found

    by = ("file, ops@shop", "settings file")
    assert started(mail=CampaignTable()) == [[], []]
    assert started(mail=CampaignTable()) == [[], []]
    held_back = CampaignTable(holdback=0.25, retain_days=30.0)
    kept = [(*by, '{"holdback": 0.25, "retain_days": 30.0}')]
    assert started(mail=held_back) == [[], kept]
    assert started(mail=held_back) == [[], kept]
    back = [*kept, (*by, '{"holdback": 0.0, "retain_days": null}')]
    frozen = {"mail": CampaignTable(), "default": CampaignTable(mode="frozen")}
    assert started(**frozen) == [[(*by, '{"mode": "frozen"}')], back]


def test_a_journal_from_before_notes_its_file_once(tmp_path):
    settings, log = settings_of(tmp_path), logger_for("shop", "active")

    async def begun():
        place = build_active(settings, log)
        place.durable.model.file_settings.clear()  # as the code before left it
        await place.durable.snapshot()
        await place.durable.close()

    asyncio.run(begun())

    for _ in range(2):

        async def start_and_stop():
            await (await open_campaigns(settings, build_active(settings, log), log)).stop()

        asyncio.run(start_and_stop())
    with closing(CampaignJournals(settings).open("default")) as journal:
        (change,) = changes_in(journal)
    assert (change.by, change.what) == ("file", "settings file")
    assert '"mode": "learn"' in change.detail
