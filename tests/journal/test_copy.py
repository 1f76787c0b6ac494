"""A journal is copied to another store, and serves on with the same state."""

import asyncio
import json
import secrets
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from journals import EVERY_KIND, KEY, OUT_OF_MEMORY, compacted, make_place, query, snapshot
from logged_runs import Run, maker
from typer.testing import CliRunner

from vfbandits.campaign.events import Configured, Decided, Erased, Reported
from vfbandits.cli.main import app
from vfbandits.errors import JournalError
from vfbandits.journal.contents import digest_of
from vfbandits.journal.copy import copy_journal
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.erase import ErasureRequest, erase_user
from vfbandits.journal.inbox.base import QUEUED, pack_change
from vfbandits.journal.inbox.postgres import PostgresInbox
from vfbandits.journal.record import encode
from vfbandits.journal.snapshot import seal_snapshot
from vfbandits.journal.verify import difference, verify
from vfbandits.serving.durable import DurableBandit

OTHER_KEY = JournalKey(bytes(range(1, 33)))
STORES = ["OnSqlite", "OnPostgres"]


def target_of(place):
    """Address and name, as the command takes them."""
    if hasattr(place, "url"):
        return place.url, place.name
    return place.target, "default"


def place_in(folder, kind, key=None):
    folder.mkdir(exist_ok=True)
    place = make_place(kind, folder)
    place.key = key
    return place


@pytest.fixture(params=[(one, two) for one in STORES for two in STORES], ids="-".join)
def places(request, tmp_path):
    one, two = request.param
    return place_in(tmp_path / "from", one), place_in(tmp_path / "to", two)


def copied(source, to, **more):
    target, name = target_of(to)
    with closing(source.open()) as journal:
        return copy_journal(journal, target, name=name, key=to.key, by="ops@shop", now=9.0, **more)


def contents(journal):
    """Everything, as plain bytes."""
    records = [(at, encode(event)) for at, event in journal.remains()]
    records += [(at, encode(event)) for at, event in journal.read(journal.compacted_to)]
    saved = journal.snapshot_positions()
    snapshots = {at: seal_snapshot(journal.load_snapshot(at)) for at in saved}
    return journal.last_position, journal.compacted_to, records, snapshots


def same_journals(one, other):
    with closing(one.open()) as first, closing(other.open()) as second:
        assert contents(first) == contents(second)


@pytest.mark.parametrize("keys", [(None, None), (None, KEY), (KEY, KEY), (KEY, OTHER_KEY)],
                         ids=["plain", "encrypt", "encrypted", "other key"])  # fmt: skip
def test_a_copy_has_every_record_at_its_position_and_every_snapshot(places, keys):
    source, to = places
    source.key, to.key = keys
    with closing(source.open()) as journal:
        journal.append([*EVERY_KIND, *OUT_OF_MEMORY])
        for position in (0, 4, 7):
            journal.save_snapshot(position, snapshot(position))
    steps = []
    done = copied(source, to, on_step=steps.append)
    with closing(source.open()) as journal:
        assert (done.digest, steps[-1]) == (digest_of(journal), journal.last_position)
    same_journals(source, to)
    with closing(to.open()) as journal:
        for event in EVERY_KIND:
            name = getattr(event, "event_id", None)
            if name is not None:
                assert any(encode(one) == encode(event) for _, one in journal.find(name))


def test_a_compacted_journal_is_copied_with_its_gaps(places):
    source, to = places
    compacted(source).close()
    copied(source, to)
    same_journals(source, to)
    with closing(to.open()) as journal:
        assert [at for at, _ in journal.remains()] == [1]


def test_the_copy_serves_on_as_the_source_would(places):
    """Decisions, draws, pending decisions, known ids."""
    source, to = places
    run = Run(source, "per_arm", max_open=5)
    run.visit(9, "save", "move", 6)
    copied(source, to)
    ends = []
    for place in (source, to):

        async def serve(place=place):
            bandit = DurableBandit.open(
                place.open(), maker("per_arm", max_open=5), clock=lambda: 1.0
            )
            rng = np.random.default_rng(1)
            arms = []
            for name in [*bandit.bandit.open_decisions]:
                await bandit.reward(name, 0.5)
            for _ in range(6):
                decision = await bandit.decide(rng.standard_normal((3, 3)), arms=["a", "b", "c"])
                arms.append((decision.arm, decision.probability))
                await bandit.reward(decision, 1.0)
            with pytest.raises(Exception, match="already has the reward"):
                await bandit.reward(next(iter(run.rewards)), 77.0)
            end = bandit.model.snapshot()
            await bandit.close()
            return arms, end

        ends.append(asyncio.run(serve()))
    assert ends[0][0] == ends[1][0]
    assert difference(ends[0][1], ends[1][1]) is None
    with closing(to.open()) as journal:
        assert verify(journal).problems == ()


def test_an_erased_user_stays_erased_in_the_copy(places):
    source, to = places
    run = Run(source, "per_arm")
    run.visit(5, "save", 4)
    with closing(source.open()) as journal:
        assert erase_user(journal, ErasureRequest("ann", "asked", "ops", 5.0)).decisions
    copied(source, to)
    with closing(to.open()) as journal:
        names = [e.event_id for _, e in journal.read() if isinstance(e, Erased)]
        assert names
        assert all(isinstance(one, Erased) for _, one in journal.find(names[0])[:1])
        assert verify(journal).problems == ()


def test_both_journals_tell_who_copied(places):
    source, to = places
    Run(source).visit(2)
    copied(source, to, described="old place")
    for place in (source, to):
        with closing(place.open()) as journal:
            (*_, (_, note)) = journal.read()
        assert (note.what, note.by, note.at) == ("copy", "ops@shop", 9.0)
        assert note.detail.startswith("from old place to ")
    same_journals(source, to)


def test_a_journal_that_is_there_is_never_written_over(places):
    source, to = places
    Run(source).visit(2)
    Run(to, seed=5).visit(3)
    with closing(to.open()) as journal:
        before = contents(journal)
    with pytest.raises(JournalError, match="a copy needs a new journal, or a copy of the same"):
        copied(source, to)
    with closing(to.open()) as journal:
        assert contents(journal) == before


def test_a_damaged_record_stops_the_copy_and_nothing_is_made(tmp_path):
    for kind in STORES:
        source = place_in(tmp_path / f"from-{kind}", "OnSqlite")
        to = place_in(tmp_path / f"to-{kind}", kind)
        Run(source).visit(6)
        source.put_record(3, b"torn")
        with pytest.raises(JournalError, match="record 3 of the journal is damaged"):
            copied(source, to)
        with pytest.raises(JournalError):
            to.reader()


def test_a_whole_copy_is_compared_and_left_alone(places):
    source, to = places
    Run(source).visit(4)
    first = copied(source, to)
    assert not first.was_there
    assert copied(source, to) == replace(first, was_there=True)
    same_journals(source, to)


@pytest.mark.parametrize("target", ["none/to.db", "postgresql://ann:word@127.0.0.1:1/none"])
def test_a_place_that_cannot_be_written_is_told_and_the_source_notes_nothing(tmp_path, target):
    source = place_in(tmp_path / "from", "OnSqlite")
    Run(source).visit(3)
    with closing(source.open()) as journal:
        before = journal.last_position
        with pytest.raises(JournalError, match="cannot be"):
            copy_journal(journal, target, by="ops", now=1.0)
        assert journal.last_position == before


# --- interruptions --------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from contextlib import closing
from dataclasses import replace
from vfbandits.journal import contents
from vfbandits.journal.copy import copy_journal
from vfbandits.journal.sqlite.journal import SqliteJournal

source, target, name, step = sys.argv[1:]
def on_step(done):
    if done >= int(step):
        os.kill(os.getpid(), signal.SIGKILL)
contents.RECORDS_PER_BATCH = 5
with closing(SqliteJournal(source)) as journal:
    copy_journal(journal, target, name=name, by="ops", now=1.0, on_step=on_step)
"""


@pytest.mark.parametrize("kind", STORES)
def test_a_copy_that_is_killed_half_way_cannot_be_opened_and_is_made_by_the_next(kind, tmp_path):
    source = place_in(tmp_path / "from", "OnSqlite")
    to = place_in(tmp_path / "to", kind)
    Run(source, "per_arm").visit(9, "save", 9)
    target, name = target_of(to)
    words = [sys.executable, "-c", KILLED, source.target, target, name, "12"]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    with pytest.raises(JournalError, match=r"unfinished copy|has none of this name"):
        to.reader()
    if kind == "OnSqlite":
        assert list(to.path.parent.glob("*.snapshot-*"))
        with pytest.raises(JournalError, match="run `vfb journal copy` again"):
            to.open()
    copied(source, to)
    same_journals(source, to)
    with closing(to.open()) as journal:
        assert verify(journal).problems == ()


def test_two_copies_to_one_file_are_one_after_the_other(tmp_path):
    source, to = (place_in(tmp_path / name, "OnSqlite") for name in ("from", "to"))
    other = place_in(tmp_path / "other", "OnSqlite")
    Run(source).visit(3)
    Run(other).visit(3)

    def meanwhile(done):
        with pytest.raises(JournalError, match="one writer, got a second"):
            copied(other, to)

    copied(source, to, on_step=meanwhile)
    same_journals(source, to)


# --- the inbox ------------------------------------------------------------------------------------


def full_inbox(place):
    """One event that waits, one that was taken, one that was refused."""
    inbox = PostgresInbox(place.url, name=place.name, key=place.key)
    inbox.put([
        Decided("waits", "tea", 0, np.ones(2), user="ann"),
        Reported("taken", 1.0, "r", QUEUED),
        Reported("refused", 1.0, "r", QUEUED),
        Configured(pack_change({"mode": "frozen"}, by="ops")),
    ])  # fmt: skip
    ids = [one.id for one in inbox.waiting(10)]
    inbox.take(ids[1:2])
    inbox.set_aside(ids[2:3])
    return inbox


def test_the_inbox_goes_along_from_database_to_database(tmp_path):
    source, to = (place_in(tmp_path / name, "OnPostgres", KEY) for name in ("from", "to"))
    source.open().close()
    with closing(full_inbox(source)) as inbox:
        done = copied(source, to, inbox=inbox)
        assert (done.arrivals, done.left_out) == (4, 0)
        with closing(PostgresInbox(to.url, name=to.name, key=to.key)) as other:
            waiting = [[encode(w.event) for w in one.waiting(9)] for one in (inbox, other)]
            assert waiting[0] == waiting[1]
            assert len(waiting[0]) == 2
            times = [[taken for _, taken in one.copied()] for one in (inbox, other)]
            assert times[0] == times[1]
            assert times[0][2] == float("inf")
            (stands,) = other.put([Reported("taken", 0.0, "r", QUEUED)])
            assert stands.value == 1.0  # the key is still known


def test_an_inbox_with_events_that_wait_is_not_left_behind(tmp_path):
    source, to = place_in(tmp_path / "from", "OnPostgres"), place_in(tmp_path / "to", "OnSqlite")
    source.open().close()
    with closing(full_inbox(source)) as inbox:
        with pytest.raises(JournalError, match=r"a file has no inbox.* got 2 waiting events"):
            copied(source, to, inbox=inbox)
        assert not to.path.exists()
        inbox.take([one.id for one in inbox.waiting(9)])
        assert copied(source, to, inbox=inbox).left_out == 1


# --- the command ----------------------------------------------------------------------------------


def test_the_command_copies_there_and_back(tmp_path, monkeypatch):
    source = place_in(tmp_path / "from", "OnSqlite", KEY)
    Run(source).visit(8, "save", 2)
    url, name = target_of(make_place("OnPostgres", tmp_path))
    monkeypatch.setenv("VFB_COPY_URL", url)
    key_file = tmp_path / "journal.key"
    key_file.write_text(KEY.secret.hex())
    key_file.chmod(0o600)
    key = ["--key-file", str(key_file)]

    def vfb(*words):
        return CliRunner().invoke(app, ["journal", "copy", *words])

    there = vfb(source.target, "env:VFB_COPY_URL", "--to-name", name, *key)
    assert there.exit_code == 0, there.output
    assert f"to '{name}' at " in there.stdout
    (digest,) = [line.split()[-1] for line in there.stdout.splitlines() if "digest" in line]
    again = vfb(source.target, "env:VFB_COPY_URL", "--to-name", name, *key)
    assert again.exit_code == 0
    assert f"nothing to copy: '{name}' at " in again.stdout
    assert digest in again.stdout
    back = vfb("env:VFB_COPY_URL", str(tmp_path / "back.db"), "--name", name, *key, "--json")
    assert back.exit_code == 0, back.output
    found = json.loads(back.stdout)
    assert found["records"] > 0
    assert digest != found["digest"]  # the record of the first copy has come to it
    ((term,),) = query("SELECT count(*) FROM vfb_journal WHERE name = %s", name)
    assert term == 1
    password = "secret-word"  # noqa: S105  (no real one)
    wrong = vfb(source.target, f"postgresql://ann:{password}@127.0.0.1:1/none", *key)
    assert wrong.exit_code == 2
    assert password not in wrong.output


def test_the_command_makes_no_source(tmp_path):
    words = ["journal", "copy", str(tmp_path / "none.db"), str(tmp_path / "to.db")]
    assert CliRunner().invoke(app, words).exit_code == 2
    assert not [*tmp_path.iterdir()]


def test_a_journal_is_not_copied_onto_itself(tmp_path, monkeypatch):
    source = place_in(tmp_path / "from", "OnSqlite")
    Run(source).visit(1)
    monkeypatch.chdir(source.path.parent)
    done = CliRunner().invoke(app, ["journal", "copy", source.target, "log.db"])
    assert (done.exit_code, "a place of its own" in done.stderr) == (2, True)


def test_a_name_for_a_file_is_refused(tmp_path):
    source = place_in(tmp_path / "from", "OnSqlite")
    Run(source).visit(1)
    words = [source.target, str(tmp_path / "to.db"), "--to-name", secrets.token_hex(3)]
    done = CliRunner().invoke(app, ["journal", "copy", *words])
    assert (done.exit_code, "a file holds one journal" in done.stderr) == (2, True)
