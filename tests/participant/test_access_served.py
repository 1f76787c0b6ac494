"""A participant that is over its limits: decisions go on without it, and nobody is left alone."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from live_world import LiveWorld
from served_federation import ServedFederation
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.errors import AccessRecordError, ConfigError, FeatureError
from vfbandits.participant.access.chain import entries_in, verify
from vfbandits.participant.access.record import AccessRecord
from vfbandits.participant.run import build_passive
from vfbandits.protocol.messages import Answer, Declined
from vfbandits.protocol.roster import Terms
from vfbandits.serving.active import query_of
from vfbandits.settings.services import load_passive
from vfbandits.telemetry.log import logger_for

WIDTHS = {"shop": 3, "bank": 2, "news": 2}
PASSIVE = ("bank", "news")


def made(folder, *, mode=("blockwise", "plain"), access="", kind="memory"):
    world = LiveWorld(folder, widths=WIDTHS, terms=Terms(*mode), n_users=4)
    served = ServedFederation(world, kind)
    config = served.files.config("bank")
    config.write_text(config.read_text() + f"\n[access]\n{access}\n")
    return served


def outcomes(served, name="bank"):
    return [one.outcome for one in entries_in(served.state(name) / "access")]


def run(served, play):
    async def whole():
        try:
            await served.start_active()
            await served.start(*PASSIVE)
            return await play()
        finally:
            await served.close()

    return asyncio.run(whole())


async def contributors_for(served, user):
    reply = await served.active.choose(served.world.request(user))
    return set(reply.contributors)


@pytest.mark.parametrize("kind", ["memory", "rpc"])
def test_a_user_over_the_limit_is_decided_on_without_the_participant(tmp_path, kind):
    served = made(tmp_path, access="users_per_day = 1", kind=kind)
    first, second = served.world.users[:2]

    async def play():
        await served.decide_with(*PASSIVE)  # about the first user
        without = [await contributors_for(served, second) for _ in range(5)]
        return without, await contributors_for(served, first)  # no fault: it is asked at once

    assert run(served, play) == ([{"shop", "news"}] * 5, {"shop", *PASSIVE})
    told = outcomes(served)
    assert told.count("users per day") == 5
    assert told.count("answered") == len(told) - 5
    assert verify(served.state("bank") / "access").problems == []
    assert {*outcomes(served, "news")} == {"answered"}


def test_of_users_that_are_asked_for_together_only_those_over_the_limit_get_zeros(tmp_path):
    served = made(tmp_path, access="users_per_day = 2")

    async def play():
        await served.decide_with(*PASSIVE)
        requests = [served.world.request(user) for user in served.world.users]
        return await asyncio.gather(*map(served.active.choose, requests))

    assert all(set(reply.contributors) == {"shop", *PASSIVE} for reply in run(served, play))
    last = outcomes(served)[-4:]
    assert last == ["answered", "answered", "users per day", "users per day"]


def test_in_a_secure_sum_one_over_its_limit_takes_everybody_out_of_the_round(tmp_path):
    """An active participant that uses up one quota gets no sum, so no other's rows alone."""
    served = made(tmp_path, mode=("dense", "secure"), access="users_per_day = 1")
    second = served.world.users[1]
    heard = []

    async def play():
        await served.decide_with(*PASSIVE)
        hear = served.active.role.hear

        def listen(name, message, now):
            heard.append((name, message))
            return hear(name, message, now)

        served.active.role.hear = listen
        return [await contributors_for(served, second) for _ in range(3)]

    assert run(served, play) == [{"shop"}] * 3
    of_bank = [message for name, message in heard if name == "bank"]
    assert of_bank
    assert all(isinstance(one, Declined) and one.code == "limits" for one in of_bank)
    assert {one.reason for one in of_bank} == {"over a limit of the participant's owner"}
    assert not any(isinstance(one, Answer) for one in of_bank)


@pytest.mark.parametrize("mode", [("blockwise", "plain"), ("dense", "secure")])
def test_nothing_leaves_that_cannot_be_recorded(tmp_path, mode, monkeypatch):
    served = made(tmp_path, mode=mode)

    async def play():
        await served.decide_with(*PASSIVE)
        append = AccessRecord.append

        def fail(record, contents):
            if record.folder == served.state("bank") / "access":
                raise AccessRecordError("the disk is full")
            append(record, contents)

        monkeypatch.setattr(AccessRecord, "append", fail)
        return await contributors_for(served, served.world.users[0])

    assert run(served, play) == ({"shop", "news"} if mode[1] == "plain" else {"shop"})


def test_the_record_is_looked_at_verified_exported_and_erased_by_commands(tmp_path):
    served = made(tmp_path, access="asks_per_user_per_day = 2")
    first, second = served.world.users[:2]

    async def play():
        for user in (first, second):
            for _ in range(60):
                if "bank" in await contributors_for(served, user):
                    break
                await asyncio.sleep(0.05)
        for _ in range(3):
            await contributors_for(served, first)

    run(served, play)
    config = ["--config", str(served.files.config("bank"))]

    def vfb(*words, code=0):
        result = CliRunner().invoke(app, ["access", *words, *config])
        assert result.exit_code == code, result.output
        return result.output

    before = json.loads(vfb("verify", "--json"))
    assert before["is_whole"]
    (day,) = json.loads(vfb("report", "--json"))["days"]
    assert (day["users"], day["answered"]) == (2, 3)
    assert day["others"] == {"asks per user and day": 2}
    (own,) = json.loads(vfb("report", "--json", "--user", second))["days"]
    assert own["answered"] == 1
    assert day["campaigns"]["default"]["answered"] == 3
    assert "asks per user and day: 2" in vfb("report")
    out = tmp_path / "record.csv"
    assert f"{before['entries']} entries" in vfb("export", "--out", str(out))
    assert first not in out.read_text()
    assert out.read_text().startswith("at,user,round,purpose,outcome,rows,campaign\n")
    assert out.stat().st_mode & 0o777 == 0o600
    kept = out.read_bytes()
    assert "wanted no file at" in vfb("export", "--out", str(out), code=2)
    assert out.read_bytes() == kept
    assert "1 entries erased" in vfb("forget", "--user", second)
    after = json.loads(vfb("verify", "--json", "--head", before["head"]))
    assert (after["erased"], after["has_head"], after["is_whole"]) == (1, True, True)
    assert json.loads(vfb("report", "--json", "--user", second))["days"] == []
    assert "problem" in vfb("verify", "--head", "ab" * 32, code=1)


@pytest.mark.parametrize("kind", ["memory", "rpc"])
def test_the_record_names_the_campaign_of_each_user_also_in_one_ask(tmp_path, kind):
    """An active participant says what rows are for; a participant may answer for some only."""
    served = made(tmp_path, access='campaigns = ["default"]', kind=kind)

    async def play():
        await served.decide_with(*PASSIVE)
        rounds, queries = served.active.rounds, [query(served, user) for user in (0, 1)]
        await asyncio.gather(
            rounds.gather(queries[:1], campaign="default"),
            rounds.gather(queries[1:], campaign="spring"),
        )

    run(served, play)
    *_, first, second = entries_in(served.state("bank") / "access")
    assert first.round == second.round
    assert (first.campaign, first.outcome) == ("default", "answered")
    assert (second.campaign, second.outcome) == ("spring", "campaign not allowed")
    assert {one.campaign for one in entries_in(served.state("news") / "access")} >= {"spring"}


def query(served, place):
    return query_of(served.world.request(served.world.users[place]))


def rewritten(served, **columns):
    """Change the bank's table: a polars expression for each column."""
    path = served.world.folder / "bank.parquet"
    pl.read_parquet(path).with_columns(**columns).write_parquet(path)


def listening(served):
    """What the active participant hears of the bank from now on."""
    heard, hear = [], served.active.role.hear

    def listen(name, message, now):
        if name == "bank":
            heard.append(message)
        return hear(name, message, now)

    served.active.role.hear = listen
    return heard


@pytest.mark.parametrize("mode", [("blockwise", "plain"), ("dense", "secure")])
def test_without_consent_nothing_is_answered_and_an_unknown_user_looks_the_same(tmp_path, mode):
    served = made(tmp_path, mode=mode, access='consent = "agreed"')
    first, second = served.world.users[:2]
    rewritten(served, agreed=pl.col("user") == first)

    async def play():
        await served.decide_with(*PASSIVE)
        heard, said = listening(served), []
        for user in (second, "stranger"):
            own = np.zeros((len(served.world.arms), WIDTHS["shop"]))
            request = replace(served.world.request(user), own=own.tobytes())
            reply = await served.active.choose(request)
            assert "bank" not in reply.contributors
            said.append(heard.pop())
        return said

    one, other = run(served, play)
    assert (one.code, one.reason) == (other.code, other.reason)
    assert one.code == "limits"
    told = [*entries_in(served.state("bank") / "access")][-2:]
    assert [entry.outcome for entry in told] == ["no consent", "unknown"]  # for the owner only


def test_of_users_that_are_asked_for_together_those_without_consent_get_zeros(tmp_path):
    """Also if consent is given in some rows of the user and not in others."""
    served = made(tmp_path, access='consent = "agreed"')
    first, second = served.world.users[:2]
    is_first_arm = pl.col("arm") == served.world.arms[0]
    rewritten(served, agreed=(pl.col("user") == first) | is_first_arm)

    async def play():
        await served.decide_with(*PASSIVE)
        heard = listening(served)
        requests = [query_of(served.world.request(user)) for user in (first, second)]
        await served.active.rounds.gather(requests, campaign="default")
        return heard

    (answer,) = run(served, play)
    rows = np.frombuffer(answer.values).reshape(answer.n_rows, -1)
    n_arms = len(served.world.arms)
    assert (rows[:n_arms] != 0.0).all()
    assert (rows[n_arms:] == 0.0).all()
    assert answer.missing == n_arms
    assert outcomes(served)[-2:] == ["answered", "no consent"]


def test_a_changed_row_is_answered_as_it_was_also_after_a_restart_with_another_table(tmp_path):
    served = made(tmp_path, access='changed_after = "24h"')
    first = served.world.users[0]

    async def answer():
        heard = listening(served)
        await served.active.choose(served.world.request(first))
        return next(np.frombuffer(one.values) for one in heard if isinstance(one, Answer))

    async def play():
        await served.decide_with(*PASSIVE)
        before = await answer()
        await served.stop("bank")
        rewritten(served, f0=pl.col("f0") + 1.0)
        await served.start("bank")
        await served.decide_with(*PASSIVE)
        return before, await answer()

    before, after = run(served, play)
    np.testing.assert_array_equal(before, after)
    config = ["--config", str(served.files.config("bank"))]
    said = CliRunner().invoke(app, ["access", "forget", "--user", first, *config])
    assert f", {len(served.world.arms)} rows erased" in said.output


def test_a_folder_without_a_record_is_one_clear_error(tmp_path):
    served = made(tmp_path)
    config = str(served.files.config("bank"))
    result = CliRunner().invoke(app, ["access", "verify", "--config", config])
    assert result.exit_code != 0
    assert "got none: nothing was served yet" in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("access", "words"),
    [
        ("users_per_dya = 1", "users_per_day"),
        ("users_per_day = 0", "access.users_per_day"),
        ('allow = "nobody.txt"', "a user in each line"),
        ('consent = "agreed"', "got none called agreed"),
        ('consent = "f0"', "neither a feature nor a key, got 'f0'"),
        ('changed_after = "tomorrow"', 'a time such as "24h"'),
        ('changed_after = "0h"', 'a time such as "24h"'),
    ],
)
def test_a_wrong_limit_is_one_clear_error(tmp_path, access, words):
    served = made(tmp_path, access=access)
    with pytest.raises((ConfigError, FeatureError), match=words):
        build_passive(load_passive(served.files.config("bank")), logger_for("bank", "passive"))
