"""Participants that are asked by pseudonyms: their stores, their limits and their records."""

import asyncio
import json

import numpy as np
import polars as pl
import pytest
import sqlalchemy as sa
from live_world import LiveWorld
from served_federation import ServedFederation
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.errors import FeatureError
from vfbandits.participant import user_index
from vfbandits.participant.access.chain import entries_in, user_hash
from vfbandits.participant.access.record import read_key
from vfbandits.protocol.roster import Terms

WIDTHS = {"shop": 3, "bank": 2, "news": 2}
PASSIVE = ("bank", "news")
MODES = (("blockwise", "plain"), ("dense", "secure"))


def made(folder, mode, *, n_users=4):
    terms = Terms(*mode, users="pseudonyms")
    return ServedFederation(
        LiveWorld(folder, widths=WIDTHS, terms=terms, n_users=n_users), "memory"
    )


def run(served, play, wanted=PASSIVE):
    async def whole():
        try:
            await served.start_active()
            await served.start(*PASSIVE)
            await served.decide_with(*wanted)
            return await play()
        finally:
            await served.close()

    return asyncio.run(whole())


def entries_about(served, user, name="bank"):
    folder = served.state(name) / "access"
    wanted = user_hash(read_key(folder), user)
    return [one.outcome for one in entries_in(folder) if one.user == wanted]


def without_user(served, user, name="bank"):
    """Take the rows of a user out of a participant's file."""
    path = served.world.folder / f"{name}.parquet"
    pl.read_parquet(path).filter(pl.col("user") != user).write_parquet(path)


def test_entries_from_a_time_when_a_user_was_unknown_are_reported_and_erased(tmp_path):
    served = made(tmp_path, MODES[0])
    known, unknown = served.world.users[1:3]
    without_user(served, unknown)

    async def play():
        for user in (known, unknown, unknown):
            await served.active.choose(served.world.request(user))

    run(served, play)
    config = ["--config", str(served.files.config("bank"))]

    def vfb(*words):
        done = CliRunner().invoke(app, ["access", *words, *config])
        assert done.exit_code == 0, done.output
        return done.output

    (day,) = json.loads(vfb("report", "--json", "--user", unknown))["days"]
    assert (day["answered"], day["others"]) == (0, {"unknown": 2})
    assert "2 entries erased" in vfb("forget", "--user", unknown)
    assert json.loads(vfb("report", "--json", "--user", unknown))["days"] == []
    assert entries_about(served, known) == ["answered"]
    assert json.loads(vfb("verify", "--json"))["is_whole"]


@pytest.mark.parametrize("mode", MODES)
def test_a_user_that_one_does_not_know_is_decided_on_without_it(tmp_path, mode):
    """In a secure sum without everybody: else the others would stand alone in it."""
    served = made(tmp_path, mode)
    known, unknown = served.world.users[1:3]
    without_user(served, unknown)

    async def play():
        together = (served.world.request(user) for user in (known, unknown, known))
        return await asyncio.gather(*map(served.active.choose, together))

    replies = run(served, play)
    all_of_them = {"shop", *PASSIVE}
    of_unknown = {"shop"} if mode[1] == "secure" else all_of_them
    assert [set(reply.contributors) for reply in replies] == [all_of_them, of_unknown, all_of_them]
    assert all(np.isfinite(np.frombuffer(reply.scores)).all() for reply in replies)
    assert entries_about(served, known) == ["answered"] * 2
    assert entries_about(served, unknown) == []  # it has no such user
    assert entries_about(served, unknown, "news") == ["answered"]


def test_limits_and_the_record_go_by_the_user_and_not_by_its_pseudonym(tmp_path):
    served = made(tmp_path, MODES[0])
    allowed, other = served.world.users[:2]
    (tmp_path / "allowed.txt").write_text(f"{allowed}\n")
    config = served.files.config("bank")
    config.write_text(f'{config.read_text()}\n[access]\nallow = "{tmp_path / "allowed.txt"}"\n')

    async def play():
        replies = [await served.active.choose(served.world.request(u)) for u in (allowed, other)]
        return [set(reply.contributors) for reply in replies]

    assert run(served, play) == [{"shop", *PASSIVE}, {"shop", "news"}]
    assert {*entries_about(served, allowed)} == {"answered"}
    assert entries_about(served, other) == ["not allowed"]


def test_a_participant_whose_users_are_not_indexed_says_that(tmp_path, monkeypatch):
    """And not that its feature store failed."""
    served = made(tmp_path, MODES[0])
    known = served.world.users[1]
    build = user_index.UserIndex.build

    def refuse(index, names):
        raise FeatureError("no users yet")

    monkeypatch.setattr(user_index.UserIndex, "build", refuse)

    async def contributors():
        return set((await served.active.choose(served.world.request(known))).contributors)

    async def until(is_true):
        for _ in range(1000):
            if is_true():
                return
            await asyncio.sleep(0.02)
        raise AssertionError([one.problems() for one, _ in served.passive.values()])

    async def play():
        services = [service for service, _ in served.passive.values()]
        await until(lambda: all(one.is_connected for one in services))
        first = await contributors(), services[0].problems()
        monkeypatch.setattr(user_index.UserIndex, "build", build)
        indexing = [asyncio.create_task(one.index_users()) for one in services]
        await until(lambda: not any(one.problems() for one in services))
        for task in indexing:
            task.cancel()
        return first, (await contributors(), services[0].problems())

    before, after = run(served, play, wanted=())
    assert before == ({"shop"}, ["users are not indexed by their pseudonyms yet"])
    assert after == ({"shop", *PASSIVE}, [])


def test_a_user_that_is_added_to_a_live_table_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(user_index, "MIN_WAIT_S", 0.05)
    served = made(tmp_path, MODES[1])
    newcomer = served.world.users[3]
    url = f"sqlite:///{tmp_path / 'bank.db'}"
    frame = pl.read_parquet(tmp_path / "bank.parquet")
    rows = frame.filter(pl.col("user") != newcomer).rows(), frame.rows()
    names = ", ".join(
        f"{name} {'text' if name in ('user', 'arm') else 'float'}" for name in frame.columns
    )
    engine = sa.create_engine(url)

    def fill(some):
        with engine.begin() as connection:
            connection.execute(sa.text("drop table if exists t"))
            connection.execute(sa.text(f"create table t ({names})"))
            marks = ", ".join("?" * len(frame.columns))
            connection.exec_driver_sql(f"insert into t values ({marks})", [*some])  # noqa: S608

    fill(rows[0])
    config = served.files.config("bank")
    text = config.read_text()
    place = f'kind = "file"\npath = "{tmp_path / "bank.parquet"}"'
    assert place in text
    config.write_text(text.replace(place, f'kind = "sql"\nurl = "{url}"\ntable = "t"'))

    async def contributors():
        return set((await served.active.choose(served.world.request(newcomer))).contributors)

    async def play():
        service = served.passive["bank"][0]
        indexing = asyncio.create_task(service.index_users())
        first = await contributors()
        fill(rows[1])
        for _ in range(200):
            found = await contributors()
            if found != first:
                break
            await asyncio.sleep(0.05)
        indexing.cancel()
        return first, found

    assert run(served, play) == ({"shop"}, {"shop", *PASSIVE})
    engine.dispose()
