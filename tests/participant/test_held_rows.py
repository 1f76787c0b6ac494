"""Rows that changed are answered after a while, and until then as they were."""

import sqlite3

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import MORE

from vfbandits.errors import AccessRecordError
from vfbandits.features.base import Lookup
from vfbandits.participant.access.held_rows import FILE, HeldRows, forget_rows

AFTER_S = 100.0


class Clock:
    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


class World:
    """A database that is closed and opened again whenever a test says so."""

    def __init__(self, folder, **options):
        self.path = folder / FILE
        self.clock = Clock()
        self.options = {"digest": "d", "after_s": AFTER_S, **options}
        self.held = None
        self.restart()

    def restart(self, **changes):
        if self.held is not None:
            self.held.close()
        self.held = HeldRows(self.path, clock=self.clock, **{**self.options, **changes})

    def answer(self, rows, *, absent=(), refused=()):
        """What leaves for users whose rows are now those of ``rows``."""
        keys = [(user, "") for user in rows]
        values = np.array([[value, -value] for value in rows.values()], dtype=float)
        found = self.held.settle(keys, Lookup(values, absent=absent, refused=refused))
        assert (found.values[:, 0] == -found.values[:, 1]).all()
        return dict(zip(rows, found.values[:, 0].tolist(), strict=True))


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    yield made
    made.held.close()


STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.floats(0.0, 90.0), st.booleans()),
    max_size=30,
)


@settings(max_examples=40 * MORE, deadline=None)
@given(steps=STEPS)
def test_two_rows_of_a_user_differ_only_if_the_change_was_seen_long_enough_ago(
    tmp_path_factory, steps
):
    """Whatever the store says and however often the process is started again."""
    world = World(tmp_path_factory.mktemp("held"))
    before, differs_since = {}, {}
    for user, value, wait, is_restart in steps:
        world.clock.now += wait
        if is_restart:
            world.restart()
        came = world.answer({user: value})[user]
        last = before.get(user, came)
        if value == last:
            differs_since.pop(user, None)
            assert came == value
        else:
            since = differs_since.setdefault(user, world.clock.now)
            is_due = world.clock.now - since >= AFTER_S
            assert came == (value if is_due else last)
            if is_due:
                del differs_since[user]
        before[user] = came
    world.held.close()


def test_what_changes_while_a_change_waits_is_answered_together_with_it(world):
    assert world.answer({"ann": 1}) == {"ann": 1}
    assert world.answer({"ann": 2}) == {"ann": 1}
    world.clock.now += AFTER_S - 1
    assert world.answer({"ann": 3, "bob": 7}) == {"ann": 1, "bob": 7}
    assert world.held.n_held == 2
    world.clock.now += 1
    assert world.answer({"ann": 4}) == {"ann": 4}


def test_a_user_who_is_gone_or_takes_consent_back_is_not_answered_about_with_an_old_row(world):
    world.answer({"ann": 1, "bob": 2})
    rows = world.answer({"ann": 0, "bob": 0}, absent=[0], refused=[1])
    assert rows == {"ann": 0, "bob": 0}
    with sqlite3.connect(world.path) as db:
        assert db.execute("SELECT count(*) FROM held").fetchone() == (0,)
    db.close()


def test_rows_behind_another_scaling_are_not_answered(world):
    world.answer({"ann": 1})
    world.restart(digest="another")
    assert world.answer({"ann": 2}) == {"ann": 2}


def test_as_many_rows_are_kept_as_are_allowed_and_those_asked_for_last(tmp_path):
    world = World(tmp_path, max_rows=20)
    for number in range(50):
        world.clock.now += 86_400.0
        world.answer({f"u{number}": 1, "ann": 1})
    with sqlite3.connect(world.path) as db:
        users = {user for (user,) in db.execute("SELECT user FROM held")}
    db.close()
    assert len(users) <= 20
    assert {"ann", "u49", "u48"} <= users
    world.held.close()


def test_rows_are_forgotten_while_the_process_runs_and_leave_nothing_behind(world):
    secret = 123456.789
    world.answer({"ann": secret, "bob": 2})
    needle, files = np.array([secret]).tobytes(), [*world.path.parent.iterdir()]
    assert any(needle in path.read_bytes() for path in files)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert forget_rows(world.path, ["ann", "eve"]) == 1
    assert not any(needle in path.read_bytes() for path in files)
    assert world.answer({"bob": 3}) == {"bob": 2}


def test_a_file_that_cannot_be_read_is_one_clear_error(tmp_path):
    (tmp_path / FILE).write_bytes(b"no database at all" * 100)
    with pytest.raises(AccessRecordError, match=r"held_rows\.db cannot be read or written"):
        World(tmp_path)
    with pytest.raises(AccessRecordError, match=r"held_rows\.db cannot be read or written"):
        forget_rows(tmp_path / FILE, ["ann"])
    assert forget_rows(tmp_path / "none.db", ["ann"]) == 0
