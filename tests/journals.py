"""Places for logs (memory, SQLite, PostgreSQL; plain, encrypted), and what tests put in them."""

import secrets
import sqlite3
import time
from contextlib import closing

import numpy as np
import psycopg
import servers

import vfbandits as vfb
from vfbandits.campaign.events import (
    Activated,
    Administered,
    ArmsDropped,
    Configured,
    Decided,
    Erased,
    Forgotten,
    LossAccepted,
    MasksChanged,
    Offered,
    Recalled,
    Reported,
    Resized,
    Restored,
    Retracted,
    Rewarded,
    SetAside,
)
from vfbandits.campaign.exported import learnt_by
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.journal.postgres.journal import PostgresJournal
from vfbandits.journal.postgres.reader import PostgresReader
from vfbandits.journal.record import encode
from vfbandits.journal.snapshot import json_in_pieces
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.journal.sqlite.reader import SqliteReader


def postgres_url():
    """The URL of the tests' PostgreSQL, as psycopg wants it."""
    return servers.postgres().url.replace("+psycopg", "")


def query(sql, *values):
    """What a person with psql could do."""
    with psycopg.connect(postgres_url(), autocommit=True) as connection:
        cursor = connection.execute(sql, values)
        return cursor.fetchall() if cursor.description else []


def flip(data):
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


class OnSqlite:
    """A log in a file."""

    def __init__(self, folder, key=None):
        self.path = folder / "log.db"
        self.target = str(self.path)
        self.key = key

    def open(self, **more):
        return SqliteJournal(self.path, key=self.key, **more)

    def reader(self):
        return SqliteReader(self.path, key=self.key)

    def _run(self, sql, *values):
        with closing(sqlite3.connect(self.path)) as db, db:
            return db.execute(sql, values).fetchall()

    def records(self):
        return self._run("SELECT position, record FROM event ORDER BY position")

    def put_record(self, position, record):
        self._run("UPDATE event SET record = ? WHERE position = ?", record, position)

    def remove_record(self, position):
        self._run("DELETE FROM event WHERE position = ?", position)

    def names(self):
        return self._run("SELECT position, name FROM event ORDER BY position")

    def put_name(self, position, name):
        self._run("UPDATE event SET name = ? WHERE position = ?", name, position)
        self._run("UPDATE named SET name = ? WHERE position = ?", name, position)

    def _snapshot(self, position):
        return self.path.with_name(f"log.db.snapshot-{position:020d}")

    def get_snapshot(self, position):
        return self._snapshot(position).read_bytes()

    def put_snapshot(self, position, data):
        self._snapshot(position).write_bytes(data)


class InMemory:
    """The same in memory."""

    def __init__(self, folder, key=None):
        del folder
        self.disk, self.key = MemoryDisk(), key

    def open(self, **more):
        return MemoryJournal(self.disk, key=self.key, **more)

    def records(self):
        return list(enumerate(self.disk.records, start=1))

    def put_record(self, position, record):
        self.disk.records[position - 1] = record

    def names(self):
        pairs = [(place, name) for name, places in self.disk.names.items() for place in places]
        return sorted(pairs)

    def put_name(self, position, name):
        for places in self.disk.names.values():
            if position in places:
                places.remove(position)
        self.disk.names.setdefault(name, []).append(position)

    def get_snapshot(self, position):
        return self.disk.snapshots[position]

    def put_snapshot(self, position, data):
        self.disk.snapshots[position] = data


class OnPostgres:
    """The same in a real PostgreSQL, each log with a name of its own."""

    def __init__(self, folder, key=None):
        del folder
        self.name, self.key = f"log-{secrets.token_hex(6)}", key
        self.url = postgres_url()

    def open(self, **more):
        return PostgresJournal(self.url, name=self.name, key=self.key, **{"wait_s": 0.5, **more})

    def reader(self, **more):
        return PostgresReader(self.url, name=self.name, key=self.key, **more)

    @property
    def id(self):
        ((number,),) = query("SELECT id FROM vfb_journal WHERE name = %s", self.name)
        return number

    def writers(self):
        """Processes of the server that hold the lock of this log."""
        sql = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objid = %s AND granted"
        return [pid for (pid,) in query(sql, self.id)]

    def cut_off(self):
        """End the writer's connection at the server."""
        (pid,) = self.writers()
        query("SELECT pg_terminate_backend(%s)", pid)
        while self.writers():
            time.sleep(0.01)

    def records(self):
        sql = "SELECT position, record FROM vfb_event WHERE journal = %s ORDER BY position"
        return query(sql, self.id)

    def put_record(self, position, record):
        sql = "UPDATE vfb_event SET record = %s WHERE journal = %s AND position = %s"
        query(sql, record, self.id, position)

    def remove_record(self, position):
        query("DELETE FROM vfb_event WHERE journal = %s AND position = %s", self.id, position)

    def names(self):
        sql = "SELECT position, name FROM vfb_event WHERE journal = %s ORDER BY position"
        return query(sql, self.id)

    def put_name(self, position, name):
        sql = "UPDATE vfb_event SET name = %s WHERE journal = %s AND position = %s"
        query(sql, name, self.id, position)

    def get_snapshot(self, position):
        sql = "SELECT data FROM vfb_snapshot WHERE journal = %s AND position = %s ORDER BY part"
        return b"".join(data for (data,) in query(sql, self.id, position))

    def put_snapshot(self, position, data):
        query("DELETE FROM vfb_snapshot WHERE journal = %s AND position = %s", self.id, position)
        query("INSERT INTO vfb_snapshot VALUES (%s, %s, 0, %s)", self.id, position, data)


KEY = JournalKey(bytes(range(32)))
PLACES = {
    f"{kind.__name__}{'Sealed' if key else ''}": (kind, key)
    for kind in (InMemory, OnSqlite, OnPostgres)
    for key in (None, KEY)
}


def make_place(name, folder):
    """The place called ``name``."""
    kind, key = PLACES[name]
    return kind(folder, key)


EVENTS = [
    Decided("a", "tea", 1, np.array([1.0, -0.5]), probability=0.25, contributors=("shop", "bank")),
    Decided(
        1, 7, 0, np.array([np.pi, 1e-300]), model=7, epoch=3, user="ü\ud800", at=1.5, root=True
    ),
    Rewarded("a", 0.1 + 0.2, 2.5),
    MasksChanged(4, np.array([[0.0, 1.0], [-1.0, 0.0], [0.0, 0.0]]), b"\x00roster"),
    Forgotten(1),
]

ALL_KINDS = [
    *EVENTS[:2],
    Configured(b'{"mode":"learn"}\xff', 0.5),
    Decided(
        "held",
        "tea",
        0,
        np.zeros(2),
        group="holdback",
        due=9.0,
        held=True,
        answer=b"\x00{}",
        offered=Offered(("tea", 7), np.eye(2), np.ones((2, 1))),
    ),
    Activated("held", 70.0, 3.0),
    Activated(1, None),
    Reported("held", 0.1, "click-1", "counted", 3.5),
    *EVENTS[2:],
    Reported("a", -1.0, "", "ignored"),
    Rewarded("held", 0.1, 4.0, None),
    Decided("1", "tea", 0, np.ones(2)),
]

EVERY_KIND = [
    *ALL_KINDS,
    Retracted("a", 0.1 + 0.2, np.array([1.0, -0.5]), None, 4, 5.0, "ops@shop ü"),
    Retracted(1, -1.0, np.zeros(3), 7),
    ArmsDropped(("tea", 7, "ü"), 8.0),
    LossAccepted(9, 7, "2 records are missing", "ops@shop", 6.0),
    SetAside("its checksum is wrong", 12, "ops@shop", 7.0),
    SetAside("it is missing", None, "ops@shop"),
    Erased("a", 9),
    Erased(1, None),
    Administered("erasure", "3 decisions of a user: ü", "ops@shop", 8.5),
    Restored(learnt_by(vfb.Bandit(vfb.LinUCB(), dim=2, seed=1)), 4, 3, 9.0),
    Restored(learnt_by(vfb.Bandit(vfb.LinGreedy(), dim=1, layout="disjoint", seed=1)), 0, None),
]

OUT_OF_MEMORY = [
    Rewarded("b", 1.5, 4.0, "r", Recalled(3, np.array([0.1, -1e-300]), 7)),
    Rewarded("c", 1.5, 4.0, None, Recalled(4, np.array([2.0]))),
    Activated("e", 71.0, 3.0, 8),
    Forgotten("d", 9),
    Resized(50_000),
]


def header_of(snapshot):
    """As it is written: there a tuple is a list."""
    return "".join(json_in_pieces(snapshot.header))


def snapshot(position):
    bandit = vfb.Bandit(vfb.LinUCB(), dim=2, seed=position)
    bandit.reward(bandit.decide(np.eye(2)), float(position))
    return bandit.snapshot()


def same(events, others):
    return [encode(e) for e in events] == [encode(e) for e in others]


def harm(place, position):
    place.put_record(position, flip(dict(place.records())[position]))


def numbers(journal, after=0):
    return [position for position, _ in journal.read(after)]


def compacted(place):
    """Five events, snapshots of 0, 3 and 5, and all up to 3 dropped but the first."""
    journal = place.open()
    journal.append(EVENTS)
    for position in (0, 3, 5):
        journal.save_snapshot(position, snapshot(position))
    assert journal.compact(3, keep=[1]) == 2
    return journal
