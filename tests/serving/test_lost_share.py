"""The active participant's own share is lost while what was learnt behind it is kept."""

import asyncio
import json
import secrets
import shutil

import numpy as np
import pytest
from journals import postgres_url, query
from live_world import LiveWorld
from msgspec.structs import replace
from preflights import check, only_problem, says, states
from served_federation import ServedFederation

from vfbandits.errors import ConfigError
from vfbandits.journal.witness import Head, Witness
from vfbandits.protocol.application import ChangeRequest
from vfbandits.protocol.roster import Terms
from vfbandits.serving.build import build_active, open_campaigns
from vfbandits.serving.journals import CampaignJournals
from vfbandits.settings.http import CampaignTable
from vfbandits.settings.services import load_active
from vfbandits.telemetry.log import logger_for
from vfbandits.transport.channel import Peer

WIDTHS = {"shop": 3, "bank": 2, "news": 2}
PASSIVE = ("bank", "news")
MODES = [("blockwise", "plain"), ("dense", "secure")]


def made(folder, mode=MODES[0]):
    world = LiveWorld(folder, widths=WIDTHS, terms=Terms(*mode), n_users=2)
    return ServedFederation(world, "memory")


async def learn(served, *, changes=0):
    """Decide and learn with everybody, and perhaps change the masks."""
    try:
        await served.start_active()
        await served.start(*PASSIVE)
        await served.decide_with(*PASSIVE)
        operator = served.files.roster.find("operator")
        peer = Peer("operator", "operator", operator.certificate, "memory")
        for _ in range(changes):
            epoch = served.active.role.epoch + 1
            is_dense = served.files.roster.terms.mask == "dense"
            envelopes = served.files.deal(served.files.roster, epoch) if is_dense else {}
            await served.active.change(peer, ChangeRequest(b"", envelopes))
            await served.decide_with(*PASSIVE)
    finally:
        await served.close()


def start_again(served):
    async def whole():
        try:
            await served.start_active()
            return served.active.role.epoch
        finally:
            if served.active is not None:
                await served.stop_active()

    served.active = None
    return asyncio.run(whole())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("changes", [0, 2])
def test_no_new_share_is_drawn_under_a_model_that_has_learnt(tmp_path, mode, changes):
    served = made(tmp_path, mode)
    asyncio.run(learn(served, changes=changes))
    share = served.state("shop") / "shares" / f"epoch-{1 + changes}.share"
    kept = share.rename(tmp_path / "share")
    for _ in range(2):  # the second time as well
        with pytest.raises(ConfigError, match=f"epoch-{1 + changes}.share is not there") as refused:
            start_again(served)
        assert "from a backup" in str(refused.value)
        assert not list(share.parent.iterdir())
    assert f"{share} is not there" in says(check(served.files), "shares")
    kept.rename(share)
    assert start_again(served) == 1 + changes
    assert "problem" not in states(check(served.files), "shares")


def test_a_share_of_another_epoch_is_no_share(tmp_path):
    """An old copy of the folder was put back after a change."""
    served = made(tmp_path)
    asyncio.run(learn(served))
    shares = served.state("shop") / "shares"
    shutil.copytree(shares, tmp_path / "old")
    asyncio.run(learn(served, changes=1))
    shutil.rmtree(shares)
    shutil.copytree(tmp_path / "old", shares)
    with pytest.raises(ConfigError, match=r"epoch-2\.share is not there, got those of 1"):
        start_again(served)
    assert "epoch-2.share is not there" in only_problem(check(served.files), "shares")


def test_a_new_journal_gets_a_new_share(tmp_path):
    """The first start was killed before the share was on the disk."""
    served = made(tmp_path)
    start_again(served)
    shutil.rmtree(served.state("shop") / "shares")
    assert "problem" not in states(check(served.files), "shares")
    assert start_again(served) == 1


def test_after_a_refusal_the_journal_can_be_opened(tmp_path):
    served = made(tmp_path)
    asyncio.run(learn(served))
    shutil.rmtree(served.state("shop") / "shares")
    with pytest.raises(ConfigError):
        start_again(served)
    settings = load_active(served.files.config("shop"))
    journal = CampaignJournals(settings).open("default")  # not locked
    assert journal.last_position > 0
    journal.close()


@pytest.mark.parametrize("where", ["files", "database"])
def test_what_any_campaign_has_learnt_counts(tmp_path, where):
    """Also that of a trainer, whose logs are in a database: the default one may be empty."""
    served = made(tmp_path)
    settings = load_active(served.files.config("shop"))
    target = ""
    if where == "database":
        database = f"lost_share_{secrets.token_hex(4)}"
        query(f"CREATE DATABASE {database}")
        target = postgres_url().rsplit("/", 1)[0] + f"/{database}"
    settings = replace(settings, campaign_tables={"mail": CampaignTable()}, journal_target=target)

    async def learn_in_campaign():
        log = logger_for("shop", "active")
        active = build_active(settings, log)
        campaigns = await open_campaigns(settings, active, log)
        durable = campaigns["mail"].durable
        decision = await durable.decide(np.ones((2, 7)), arms=("a", "b"))
        await durable.reward(decision, 1.0)
        await campaigns.stop()

    asyncio.run(learn_in_campaign())
    shutil.rmtree(served.state("shop") / "shares")
    with pytest.raises(ConfigError, match="campaign 'mail' has learnt"):
        build_active(settings, logger_for("shop", "active"))


def test_without_a_journal_every_start_is_new(tmp_path):
    served = made(tmp_path)
    config = served.files.config("shop")
    config.write_text(config.read_text().replace("journal = true", "journal = false"))
    start_again(served)
    shutil.rmtree(served.state("shop") / "shares")
    assert start_again(served) == 1


def test_preflight_knows_from_the_seats_where_the_journal_is_elsewhere(tmp_path, monkeypatch):
    served = made(tmp_path)
    asyncio.run(learn(served))
    config = served.files.config("shop")
    config.write_text(f'journal_target = "env:ELSEWHERE"\n{config.read_text()}')
    monkeypatch.setenv("ELSEWHERE", "postgresql://ops@db.example/journal")
    shutil.rmtree(served.state("shop") / "shares")
    seats = json.loads((served.state("shop") / "seats.json").read_text())
    assert seats == {"version": 1, "epoch": 1, "has_share": ["bank", "news"]}
    assert "epoch-1.share is not there" in only_problem(check(served.files), "shares")


@pytest.mark.parametrize("position", [0, 3])
def test_preflight_knows_from_the_witness_what_a_database_holds(tmp_path, position):
    """Of a trainer that nobody has joined yet: it has no seats, and its journal is elsewhere."""
    served = made(tmp_path)
    folder = served.state("shop") / "witness"
    folder.mkdir(parents=True)
    witness = Witness(folder / "mail.head")
    witness.ack(Head(position))
    witness.close()
    found = states(check(served.files), "shares")
    assert ("problem" in found) == (position > 0)
