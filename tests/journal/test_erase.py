"""A user is forgotten: nothing identifying stays, and all else is as it was."""

import asyncio
import json
import shutil
import signal
import sqlite3
import sys
from contextlib import closing

import fork_server
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from journals import PLACES, InMemory, OnPostgres, OnSqlite, flip, make_place, query
from logged_runs import LAYOUTS, maker, rotation
from ranker_world import RankerWorld, asked, soon
from typer.testing import CliRunner

import vfbandits as vfb
from vfbandits.campaign.events import (
    Activated,
    Administered,
    ArmsDropped,
    Decided,
    Erased,
    Reported,
    Resized,
    Rewarded,
)
from vfbandits.campaign.model import Model
from vfbandits.cli.main import app
from vfbandits.errors import (
    ConflictError,
    ErasedEventError,
    JournalError,
    SettingError,
    UnknownDecisionError,
)
from vfbandits.journal.compact import compact
from vfbandits.journal.erase import Erasure, ErasureRequest, erase_user
from vfbandits.journal.inbox.base import QUEUED
from vfbandits.journal.inbox.memory import MemoryInbox
from vfbandits.journal.inbox.postgres import PostgresInbox
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.repair import repair, survey
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.verify import difference, verify
from vfbandits.serving.durable import DurableBandit

ANN, BOB = "ann-4711", "bob-4712"
POLICIES = {
    "linucb": vfb.LinUCB(beta=0.5),
    "lints": vfb.LinTS(posterior_scale=0.1),
    "greedy": vfb.LinGreedy(),
    "inverse_gap": vfb.InverseGap(),
}
FEW = {"max_open": 3, "max_settled": 4}


@pytest.fixture(params=["InMemorySealed", "OnSqlite", "OnPostgres"])
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


def erase(journal, user=ANN, **more):
    request = ErasureRequest(user, "she asked for it", "ops@shop", 5.0)
    return erase_user(journal, request, **more)


def decided(name, user, x, **more):
    """As a campaign records it: with a wait that ends, and the answer."""
    note = json.dumps({"answer": f"for {user}"}).encode()
    return Decided(name, "tea", 0, x, model="tea", user=user, due=900.0, answer=note, **more)


async def busy(bandit):
    """Decisions of two users: learnt late, learnt, summed, out of memory, pending, retracted."""
    rng = np.random.default_rng(3)
    contexts = {}
    for number in range(16):
        if number == 6:
            await bandit.snapshot()
        if number == 9:
            await bandit.change_masks(rotation(rng), epoch=1)
        user, name = (ANN, BOB)[number % 2], f"e{number}"
        x = np.concatenate([[1.0], rng.standard_normal(3)])
        contexts[name] = x
        bandit.append(decided(name, user, x, epoch=bandit.epoch))
        if number % 4 < 2:
            await bandit.reward(name, float(rng.standard_normal()))
        if number == 12:
            await bandit.snapshot()
    bandit.append(Reported("e6", 0.25, "click", "counted", 3.0))
    bandit.append(Activated("e14", 901.0, 3.0))
    await bandit.reward("e2", 0.75)  # it has left memory: its context stands in the record
    await bandit.retract("e4", by="ops")
    await bandit.close()
    return contexts


def played(place):
    return asyncio.run(busy(DurableBandit.open(place.open(), maker(**FEW))))


def model_at_end(place):
    """The snapshot of what a restart comes to."""

    async def main():
        bandit = DurableBandit.open(place.open(), maker(**FEW))
        found = bandit.model.snapshot()
        await bandit.close()
        return found

    return asyncio.run(main())


def whole(place):
    with closing(place.open()) as journal:
        return verify(journal)


def learnt(snapshot):
    return {name: a.tobytes() for name, a in snapshot.arrays.items() if name.startswith("learner/")}


def bytes_of(place):
    """All that is kept, of every file or row."""
    if isinstance(place, InMemory):
        kept = [*place.disk.records, *place.disk.snapshots.values()]
        return b"".join(one for one in kept if one is not None)
    if isinstance(place, OnSqlite):
        return b"".join(path.read_bytes() for path in sorted(place.path.parent.rglob("*")))
    PostgresInbox(place.url, name=place.name, key=place.key).close()  # makes its table
    records = ("vfb_event", "vfb_damaged", "vfb_inbox")
    snapshots = ("vfb_snapshot", "vfb_lost_snapshot")
    columns = dict.fromkeys(records, "record") | dict.fromkeys(snapshots, "data")
    found = []
    for table, column in columns.items():
        found += query(f"SELECT {column} FROM {table} WHERE journal = %s", place.id)  # noqa: S608
    return b"".join(data for (data,) in found)


# --- what is gone, and what stays ---------------------------------------------------------------


@pytest.mark.parametrize("name", PLACES)
def test_neither_id_nor_answer_nor_context_stays_in_any_file_or_row(name, tmp_path):
    place = make_place(name, tmp_path)
    contexts = played(place)
    theirs = {name: contexts[name].tobytes() for name in contexts}
    records = dict(place.records())
    names = {ANN: range(0, 16, 2), BOB: range(1, 16, 2)}
    if place.key is None:  # the search finds what is there
        before = bytes_of(place)
        assert before.count(ANN.encode()) > 1
        assert all(theirs[f"e{number}"] in before for number in names[ANN])
    with closing(place.open()) as journal:
        done = erase(journal)
        kept = [event for _, event in journal.read()]
        gone = [at for at, event in journal.read() if isinstance(event, Erased)]
    assert (done.decisions, done.unlearnt, done.naming) == (8, 0, 0)
    after = bytes_of(place)
    assert ANN.encode() not in after
    assert not [number for number in names[ANN] if theirs[f"e{number}"] in after]
    if place.key is None:
        assert BOB.encode() in after
        assert all(theirs[f"e{number}"] in after for number in names[BOB])
    assert {event.user for event in kept if isinstance(event, Decided)} == {BOB}
    assert len(gone) == done.records
    assert not [at for at in gone if records[at] in after]  # encrypted or not


def test_what_was_learnt_is_the_same_to_the_bit_and_the_restart_comes_to_it(place):
    played(place)
    before = model_at_end(place)
    with closing(place.open()) as journal:
        erase(journal)
    found = whole(place)
    assert found.problems == ()
    assert len(found.snapshots) >= 2
    after, again = model_at_end(place), model_at_end(place)
    assert learnt(before) == learnt(after)
    assert difference(after, again) is None
    # Of the pending ones hers are closed, in memory and out of it, and his are not.
    assert [name for name, _ in before.header["open"]] == ["e11", "e14", "e15"]
    assert [name for name, _ in after.header["open"]] == ["e11", "e15"]
    assert [len(one.arrays["cold"]) for one in (before, after)] == [4, 2]


def test_the_journal_says_who_asked_why_and_when_but_not_for_whom(place):
    played(place)
    with closing(place.open()) as journal:
        erase(journal)
        (note,) = [event for _, event in journal.read() if isinstance(event, Administered)]
    assert (note.what, note.by, note.at) == ("erasure", "ops@shop", 5.0)
    assert note.detail == "8 decisions of a user, 0 rewards unlearnt: she asked for it"


def test_the_second_time_there_is_nothing_to_erase_and_nothing_is_written(place):
    played(place)
    with closing(place.open()) as journal:
        erase(journal)
        last = journal.last_position
        assert erase(journal) == Erasure(0, 0, 0, 0)
        assert erase(journal, "nobody") == Erasure(0, 0, 0, 0)
        assert journal.last_position == last


def test_what_was_set_aside_as_damaged_goes_too(tmp_path):
    place = OnSqlite(tmp_path)
    played(place)
    (first, record), *_ = place.records()
    place.put_record(first, flip(record))
    with closing(place.open()) as journal:
        repair(journal, survey(journal), by="ops")
    assert ANN.encode() in bytes_of(place)
    lost = place.path.with_name(f"{place.path.name}.snapshot-{999:020d}.lost")
    lost.write_bytes(ANN.encode())
    with closing(place.open()) as journal:
        erase(journal)
    assert ANN.encode() not in bytes_of(place)
    assert whole(place).problems == ()


def test_an_erased_name_that_was_free_again_is_the_other_users(place):
    """After a compaction the application may use an id again."""

    async def main(*visits):
        bandit = DurableBandit.open(place.open(), maker(max_settled=1))
        for name, user in visits:
            await bandit.decide(np.ones(3), arms=["tea"], event_id=name, user=user)
            await bandit.reward(name, 0.5)
        await bandit.snapshot()
        await bandit.close()

    asyncio.run(main(("a", ANN), ("x", BOB)))
    asyncio.run(main(("y", BOB)))
    with closing(place.open()) as journal:
        assert compact(journal) is not None
    asyncio.run(main(("a", BOB), ("b", ANN)))
    with closing(place.open()) as journal:
        assert erase(journal).decisions == 1
        assert [type(event) for _, event in journal.find("a")] == [Decided, Rewarded]
    assert whole(place).problems == ()


# --- events that were erased --------------------------------------------------------------------


def test_an_erased_event_is_not_ranked_again_and_takes_no_reward():
    disk = MemoryDisk()

    async def before():
        bandit = DurableBandit.open(MemoryJournal(disk), maker(**FEW))
        await busy(bandit)

    async def after():
        bandit = DurableBandit.open(MemoryJournal(disk), maker(**FEW))
        position = bandit.position
        for name in ("e14", "e6"):  # pending in memory, and out of it
            with pytest.raises(ErasedEventError, match=f"got '{name}', which was erased"):
                await bandit.reward(name, 1.0)
        with pytest.raises(UnknownDecisionError):
            await bandit.retract("e0", by="ops")
        assert await bandit.reward("e15", 1.0)
        assert bandit.position == position + 1
        await bandit.close()

    asyncio.run(before())
    with closing(MemoryJournal(disk)) as journal:
        erase(journal)
    asyncio.run(after())


def test_rankers_and_leader_answer_erased_events_alike_and_count_none_twice(tmp_path):
    async def before(world):
        async with world.leading() as leader, world.ranking() as ranker:
            for number in range(6):
                user = (ANN, BOB)[number % 2]
                await ranker.rank(asked(f"e{number}", user=user))
                if number < 4:
                    await ranker.reward(f"e{number}", 0.5, reward_id="click")
            await soon(lambda: leader.model.n_learnt == 4)
            await leader.durable.snapshot()

    async def after(world):
        async with world.leading() as leader, world.ranking() as ranker:
            n_learnt, position = leader.model.n_learnt, leader.model.position
            for served in (leader, ranker):
                for name in ("e0", "e4", "waiting"):
                    with pytest.raises(ErasedEventError):
                        await served.rank(asked(name, user=ANN))
                    with pytest.raises(ErasedEventError):
                        await served.reward(name, 0.5, reward_id="click")
                    with pytest.raises(ErasedEventError):
                        await served.history(name)
                both = await served.rank_many([asked("e0"), asked("e1", user=BOB)])
                assert isinstance(both[0], ErasedEventError)
                assert json.loads(both[1])["event_id"] == "e1"
            assert await leader.reward("e1", 0.5, reward_id="click") == "repeated"
            assert (leader.model.n_learnt, leader.model.position) == (n_learnt, position)
            assert world.refused == []
            assert await world.same(ranker)

    world = RankerWorld(tmp_path)
    asyncio.run(before(world))
    with (
        closing(MemoryInbox(world.inbox_records)) as inbox,
        closing(SqliteJournal(world.path)) as journal,
    ):
        inbox.put([decided("waiting", ANN, np.ones(5))])
        inbox.put([Reported("e4", 0.5, "late", QUEUED, 5.0)])  # of a decision in the journal
        assert erase(journal, inbox=inbox).decisions == 4
        assert inbox.decisions_of(ANN) == []
        assert not inbox.waiting(10)
    asyncio.run(after(world))


# --- the inbox ----------------------------------------------------------------------------------


def test_a_postgres_inbox_loses_all_rows_of_the_user_taken_or_not_and_no_others(tmp_path):
    place = OnPostgres(tmp_path)
    played(place)
    x = np.full(4, 0.321)
    with (
        closing(PostgresInbox(place.url, name=place.name)) as inbox,
        closing(place.open()) as journal,
    ):
        inbox.put([decided("new", ANN, x), decided("taken", ANN, x), decided("his", BOB, x + 1.0)])
        inbox.put([Reported(name, 0.5, "r", QUEUED, 5.0) for name in ("e2", "e3", "new")])
        inbox.take([inbox.waiting(10)[1].id])
        query(
            "INSERT INTO vfb_inbox VALUES (nextval('vfb_inbox_id'), %s, %s, %s, 'infinity')",
            *(place.id, b"k" * 32, f"unreadable {ANN}".encode()),
        )
        assert sorted(inbox.decisions_of(ANN)) == ["new", "taken"]
        assert ANN.encode() in bytes_of(place)
        done = erase(journal, inbox=inbox)
        assert done.decisions == 10
        left = [one.event.event_id for one in inbox.waiting(10)]
        found = journal.find("new")
    assert left == ["his", "e3"]
    assert [type(event) for _, event in found] == [Erased]
    kept = bytes_of(place)
    assert ANN.encode() not in kept
    assert x.tobytes() not in kept
    assert (x + 1.0).tobytes() in kept
    assert whole(place).problems == ()


# --- unlearning ---------------------------------------------------------------------------------


def numbers(bandit):
    return {
        arm: np.concatenate([state.Lambda.ravel(), state.b, state.theta])
        for arm, state in bandit.states.items()
    }


@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    policy=st.sampled_from(sorted(POLICIES)),
    seed=st.integers(0, 2**32 - 1),
    users=st.lists(st.sampled_from((ANN, BOB)), min_size=1, max_size=12),
    moves=st.sets(st.integers(0, 11), max_size=2),
    unrewarded=st.sets(st.integers(0, 11), max_size=3),
)
@hypothesis_settings(deadline=None, max_examples=30)
def test_unlearnt_the_model_is_the_one_that_never_saw_the_user(
    layout, policy, seed, users, moves, unrewarded
):
    """Up to rounding, as a retraction; the replay is the same to the bit."""
    disk, rng, make = MemoryDisk(), np.random.default_rng(seed), maker(layout, POLICIES[policy])

    async def main():
        bandit = DurableBandit.open(MemoryJournal(disk), make)
        for number, user in enumerate(users):
            if number in moves:
                await bandit.change_masks(rotation(rng), epoch=bandit.epoch + 1)
            shape = (3, 3) if layout == "per_arm" else 3
            features = np.eye(3)[:, :2] if layout == "outer" else None
            await bandit.decide(
                rng.standard_normal(shape),
                arms=["tea", "milk", "beer"],
                arm_features=features,
                event_id=f"e{number}",
                user=user,
            )
            if number not in unrewarded:
                await bandit.reward(f"e{number}", float(rng.standard_normal()))
        await bandit.close()

    async def reopened():
        bandit = DurableBandit.open(MemoryJournal(disk), make)
        found = bandit.model.snapshot(), numbers(bandit.bandit)
        await bandit.close()
        return found

    asyncio.run(main())
    never = Model(make(), epoch=0)
    with closing(MemoryJournal(disk)) as journal:
        hers = {e.event_id for _, e in journal.read() if getattr(e, "user", None) == ANN}
        events = [
            (at, one)
            for at, one in journal.read()
            if not (isinstance(one, Rewarded) and one.event_id in hers)
        ]
        done = erase(journal, unlearn=True)
        assert verify(journal).problems == ()
    for position, event in events:
        never.apply(position, event)
    assert done.decisions == len(hers)
    assert done.unlearnt == len(hers - {f"e{number}" for number in unrewarded})
    (first, found), (second, _) = asyncio.run(reopened()), asyncio.run(reopened())
    wanted = numbers(never.bandit)
    assert difference(first, second) is None
    assert found.keys() == wanted.keys()
    for arm, values in wanted.items():
        np.testing.assert_allclose(found[arm], values, atol=1e-9)


def test_unlearnt_contexts_stand_nowhere_either_and_a_retracted_reward_is_not_taken_twice(place):
    contexts = played(place)
    with closing(place.open()) as journal:
        done = erase(journal, unlearn=True)
    assert done.unlearnt == 4  # e0, e2, e8, e12; e4 was retracted before
    after = bytes_of(place)
    assert not [n for n in range(0, 16, 2) if contexts[f"e{n}"].tobytes() in after]
    assert whole(place).problems == ()


def test_what_went_with_an_arms_model_need_not_be_unlearnt():
    async def main(journal):
        bandit = DurableBandit.open(journal, maker(floor=0.0))
        for name, user in (("a", ANN), ("b", BOB), ("c", ANN)):
            await bandit.decide(np.ones(3), arms=["tea"], event_id=name, user=user)
            await bandit.reward(name, 1.0)
            if name == "a":
                await bandit.log(ArmsDropped(("tea",), 1.0))
        await bandit.close()

    disk = MemoryDisk()
    asyncio.run(main(MemoryJournal(disk)))
    with closing(MemoryJournal(disk)) as journal:
        assert erase(journal, unlearn=True).unlearnt == 1


def test_where_unlearning_cannot_be_exact_it_is_refused_and_nothing_is_changed(place):
    async def main(make):
        bandit = DurableBandit.open(place.open(), make)
        for number in range(3):
            name = f"{bandit.position}-{number}"
            await bandit.decide(np.ones(3), arms=["tea"], event_id=name, user=ANN)
            await bandit.reward(name, 1.0)
        await bandit.snapshot()
        await bandit.close()

    def refused(error, message):
        before = bytes_of(place)
        with closing(place.open()) as journal:
            last = journal.last_position
            with pytest.raises(error, match=message):
                erase(journal, unlearn=True)
            assert journal.last_position == last
        if not isinstance(place, OnSqlite):  # its witness and -shm are SQLite's
            assert bytes_of(place) == before

    for _ in range(2):
        asyncio.run(main(maker()))
    with closing(place.open()) as journal:
        compact(journal)
    refused(ConflictError, "must have all of its contexts, got one compacted up to 6")
    with closing(place.open()) as journal:  # without it, it works
        assert erase(journal).decisions == 3


def test_under_forgetting_unlearning_is_refused_with_the_reason():
    async def main(journal):
        bandit = DurableBandit.open(journal, maker(discount=0.99))
        await bandit.decide(np.ones(3), arms=["tea"], event_id="a", user=ANN)
        await bandit.reward("a", 1.0)
        await bandit.close()

    disk = MemoryDisk()
    asyncio.run(main(MemoryJournal(disk)))
    with closing(MemoryJournal(disk)) as journal:
        with pytest.raises(SettingError, match=r"the discount must be 1, got 0\.99"):
            erase(journal, unlearn=True)
        assert journal.last_position == 2
        assert erase(journal).decisions == 1


@pytest.mark.parametrize(
    ("user", "reason", "message"),
    [
        ("", "asked", "the id of a user, got none"),
        (ANN, " ", "the reason for an erasure, got none"),
        (ANN, f"{ANN} asked", "one that does not name the user"),
        ("7", "request (7)", "one that does not name the user"),
    ],
)
def test_a_request_without_a_user_or_a_fit_reason_is_refused(user, reason, message):
    with pytest.raises(SettingError, match=message) as refused:
        ErasureRequest(user, reason, "ops", 0.0)
    assert not user or user not in str(refused.value)


def test_a_short_id_may_be_part_of_a_word_and_event_ids_that_name_the_user_are_counted():
    async def main(journal):
        bandit = DurableBandit.open(journal, maker())
        for name in ("order-17", "7-a", "b"):
            await bandit.decide(np.ones(3), arms=["tea"], event_id=name, user="7")
        await bandit.close()

    disk = MemoryDisk()
    asyncio.run(main(MemoryJournal(disk)))
    with closing(MemoryJournal(disk)) as journal:
        done = erase_user(journal, ErasureRequest("7", "request 77 of 2027", "ops", 0.0))
    assert (done.decisions, done.naming) == (3, 1)


def test_an_erasure_leaves_the_size_of_the_memory_as_the_server_had_it(place):
    async def main(size):
        bandit = DurableBandit.open(place.open(), maker(max_open=size))
        await bandit.decide(np.ones(3), arms=["tea"], event_id=f"e{size}", user=ANN)
        await bandit.close()

    asyncio.run(main(5))
    asyncio.run(main(3))
    with closing(place.open()) as journal:
        erase(journal)
        sizes = [event.max_pending for _, event in journal.read() if isinstance(event, Resized)]
        assert journal.latest_snapshot()[1].header["options"]["max_open"] == 3
    assert sizes == [3]


def test_a_journal_with_problems_is_refused(tmp_path):
    place = OnSqlite(tmp_path)
    played(place)
    (first, record), *_ = place.records()
    place.put_record(first, flip(record))
    with (
        closing(place.open()) as journal,
        pytest.raises(JournalError, match="must verify to erase"),
    ):
        erase(journal)


# --- a kill -------------------------------------------------------------------------------------


class Killed(BaseException):
    """The process is gone."""


STEPS = ("append", "save_snapshot", "erase", "_empty_write_ahead_log")


def dying(monkeypatch, folder, copy, at):
    """Copy the files as a kill would leave them at the ``at``-th step, and end there."""
    count = iter(range(10_000))

    def dies(method):
        def wrapped(self, *words):
            for is_done in (False, True):
                if is_done:
                    result = method(self, *words)
                if next(count) == at:
                    shutil.copytree(folder, copy)
                    raise Killed
            return result

        return wrapped

    for name in STEPS:
        monkeypatch.setattr(SqliteJournal, name, dies(getattr(SqliteJournal, name)))


def test_killed_at_any_step_the_journal_verifies_and_the_same_again_finishes(tmp_path, monkeypatch):
    folder, at = tmp_path / "first", 0
    folder.mkdir()
    contexts = played(OnSqlite(folder))
    wanted = None
    while True:
        again, copy = tmp_path / f"again-{at}", tmp_path / f"killed-{at}"
        shutil.copytree(folder, again)
        with monkeypatch.context() as patch, closing(OnSqlite(again).open()) as journal:
            dying(patch, again, copy, at)
            try:
                erase(journal, unlearn=True)
            except Killed:
                pass
            else:
                break
        place = OnSqlite(copy)
        assert whole(place).problems == (), at
        with closing(place.open()) as journal:
            erase(journal, unlearn=True)
        assert whole(place).problems == (), at
        after = bytes_of(place)
        assert ANN.encode() not in after, at
        assert not [n for n in range(0, 16, 2) if contexts[f"e{n}"].tobytes() in after], at
        end = learnt(model_at_end(place))
        wanted = end if wanted is None else wanted
        assert end == wanted, at
        at += 1
    assert at >= 2 * 6


CHILD = """
import os, signal, sys
from vfbandits.journal.erase import ErasureRequest, erase_user
from vfbandits.journal.sqlite.journal import SqliteJournal
SqliteJournal._empty_write_ahead_log = lambda self: os.kill(os.getpid(), signal.SIGKILL)
erase_user(SqliteJournal(sys.argv[1]), ErasureRequest(sys.argv[2], "asked", "ops", 1.0))
"""


@pytest.mark.long  # a process of its own
def test_a_real_kill_between_the_rows_and_the_write_ahead_log_is_finished_by_the_next(tmp_path):
    place = OnSqlite(tmp_path)
    played(place)
    done = fork_server.run([sys.executable, "-c", CHILD, place.target, ANN], check=False)
    assert done.returncode == -signal.SIGKILL
    assert ANN.encode() in bytes_of(place)  # in the write-ahead log
    with closing(place.open()) as journal:
        assert erase(journal) == Erasure(0, 0, 0, 0)
    assert ANN.encode() not in bytes_of(place)
    assert whole(place).problems == ()


def test_a_reader_that_keeps_the_write_ahead_log_is_named(tmp_path, monkeypatch):
    place = OnSqlite(tmp_path)
    played(place)
    monkeypatch.setattr("vfbandits.journal.sqlite.journal.BUSY_TIMEOUT_S", 0.1)
    with closing(place.open()) as journal, closing(sqlite3.connect(place.path)) as other:
        reading = other.execute("SELECT * FROM event")  # a transaction of its own
        reading.fetchone()
        with pytest.raises(JournalError, match="end it, and run the same command again"):
            erase(journal)
        reading.close()
        erase(journal)
    assert ANN.encode() not in bytes_of(place)


# --- the command --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["OnSqlite", "OnPostgres"])
def test_the_command_erases_in_a_journal_that_no_server_has_open(kind, tmp_path):
    place = make_place(kind, tmp_path)
    played(place)
    target = place.target if kind == "OnSqlite" else place.url
    flags = [target, *(["--name", place.name] if kind == "OnPostgres" else [])]

    def forget(*words):
        return CliRunner().invoke(app, ["journal", "forget", *flags, *words])

    said = ["--user", ANN, "--reason", "asked"]
    with closing(place.open()):
        done = forget(*said)
        assert (done.exit_code, "one writer" in done.stderr) == (2, True)
    done = forget(*said, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"decisions": 8, "records": 16, "unlearnt": 0, "naming": 0}
    done = forget("--user", BOB, "--reason", "asked", "--unlearn")
    assert done.exit_code == 0, done.output
    assert "erased 8 decisions of the user" in done.stdout
    with closing(place.open()) as journal:
        notes = [event for _, event in journal.read() if isinstance(event, Administered)]
        assert not [event for _, event in journal.read() if isinstance(event, Decided)]
    assert ["@" in note.by for note in notes] == [True, True]
    assert ANN not in done.output


def test_the_command_makes_no_journal(tmp_path):
    missing = tmp_path / "none.db"
    words = ["journal", "forget", str(missing), "--user", "a", "--reason", "b"]
    assert CliRunner().invoke(app, words).exit_code == 2
    assert not missing.exists()
