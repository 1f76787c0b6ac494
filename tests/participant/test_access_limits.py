"""How much a passive participant answers, and about whom."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.errors import ConfigError
from vfbandits.participant.access.chain import Content, entries_in
from vfbandits.participant.access.gate import AccessGate, open_gate
from vfbandits.participant.access.limits import (
    ANSWERED,
    ASKS_PER_USER,
    NOT_ALLOWED,
    OTHER_CAMPAIGN,
    ROWS_PER_SECOND,
    USERS_PER_DAY,
    AccessLimits,
)
from vfbandits.participant.access.record import DAY_S, AccessRecord
from vfbandits.protocol.messages import Ask
from vfbandits.settings.access import AccessSettings

USERS = st.sampled_from(["ann", "bob", "eve", "joe"])


@given(
    asks=st.lists(st.tuples(st.lists(USERS, max_size=3), st.floats(0.0, 1e5)), max_size=40),
    users=st.none() | st.integers(1, 3),
    each=st.none() | st.integers(1, 4),
)
def test_no_day_has_more_users_or_asks_than_its_limits(asks, users, each):
    limits = AccessLimits(users_per_day=users, asks_per_user_per_day=each)
    answered = {}
    now = 0.0
    for names, wait in asks:
        now += wait
        for name, outcome in zip(names, limits.judge(names, now=now), strict=True):
            if outcome == ANSWERED:
                today = answered.setdefault(int(now // DAY_S), {})
                today[name] = today.get(name, 0) + 1
            else:
                assert outcome in (USERS_PER_DAY, ASKS_PER_USER)
    for today in answered.values():
        assert users is None or len(today) <= users
        assert each is None or max(today.values()) <= each


def test_a_user_that_was_answered_about_is_answered_about_again_when_the_day_is_full():
    limits = AccessLimits(users_per_day=1)
    assert limits.judge(["ann", "bob", "ann"], now=0.0) == [ANSWERED, USERS_PER_DAY, ANSWERED]
    assert limits.judge(["bob"], now=DAY_S) == [ANSWERED]


def test_a_clock_that_is_put_back_begins_no_new_day():
    limits = AccessLimits(users_per_day=1)
    assert limits.judge(["ann"], now=5 * DAY_S) == [ANSWERED]
    assert limits.judge(["bob"], now=4 * DAY_S) == [USERS_PER_DAY]
    assert limits.judge(["bob"], now=5 * DAY_S) == [USERS_PER_DAY]


@given(
    st.lists(st.tuples(st.integers(1, 50), st.floats(0.0, 2.0)), min_size=1, max_size=60),
    st.integers(1, 100),
)
def test_rows_of_any_stretch_of_time_are_bounded(asks, per_second):
    limits = AccessLimits(rows_per_second=per_second)
    now, came = 0.0, []
    for rows, wait in asks:
        now += wait
        if limits.admits_rows(rows, now=now):
            came.append((now, rows))
    for start, _ in came:
        within = [rows for at, rows in came if at >= start]
        assert sum(within[:-1]) <= per_second * (now - start + 1.0) + within[0] + 1e-6


def test_a_restart_begins_no_new_day(tmp_path):
    clock = lambda: 3 * DAY_S + 5.0  # noqa: E731
    record = AccessRecord(tmp_path)
    gate = AccessGate(record, AccessLimits(users_per_day=2), clock=clock)
    for user in ("ann", "bob"):
        ask = Ask(1, 0, 1, users=(user,))
        gate.note(ask, gate.admit(ask), ())
    gate.close()
    again = AccessGate(AccessRecord(tmp_path), AccessLimits(users_per_day=2), clock=clock)
    assert again.admit(Ask(2, 0, 1, users=("ann", "eve"))).outcomes == [ANSWERED, USERS_PER_DAY]
    again.close()


def test_only_users_of_the_list_are_answered_about(tmp_path):
    (tmp_path / "users.txt").write_text("ann\n\n bob \n", encoding="utf-8")
    gate = open_gate(AccessSettings(allow=tmp_path / "users.txt"), tmp_path / "access")
    assert gate.admit(Ask(1, 0, 1, users=("ann", "eve", "bob"))).outcomes == [
        ANSWERED,
        NOT_ALLOWED,
        ANSWERED,
    ]
    gate.close()


@pytest.mark.parametrize("what", ["missing", "binary"])
def test_a_list_that_cannot_be_read_is_refused(tmp_path, what):
    path = tmp_path / "users.txt"
    if what == "binary":
        path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="a user in each line"):
        open_gate(AccessSettings(allow=path), tmp_path / "access")
    open_gate(AccessSettings(), tmp_path / "access").close()


def test_entries_say_what_became_of_each_user(tmp_path):
    limits = AccessLimits(users_per_day=2)
    gate = AccessGate(AccessRecord(tmp_path), limits, clock=lambda: 12.3456)
    arms = (("tea", "milk"), ("tea",), ("tea",))
    ask = Ask(9, 0, 1, users=("ann", "bob", "eve"), arms=arms, campaigns=("spring",))
    admission = gate.admit(ask)
    assert admission.is_answered == [True, True, True, False]
    gate.note(ask, admission, absent=[1, 2, 3])
    gate.note_trial(ask._replace(trial=5))
    user = gate.record.user
    gate.close()
    assert gate.counts.asks == {"answered": 1, "trial": 1}
    assert gate.counts.users == {ANSWERED: 1, "unknown": 1, USERS_PER_DAY: 1}
    assert gate.counts.rows == 2
    assert [*entries_in(tmp_path)] == [
        Content(12.346, user("ann"), 9, "decision", ANSWERED, 2, "spring"),
        Content(12.346, user("bob"), 9, "decision", "unknown", 1, "spring"),
        Content(12.346, user("eve"), 9, "decision", USERS_PER_DAY, 1, "spring"),
        Content(12.346, "", 9, "trial", "trial", 4),
    ]


def test_an_ask_over_the_rate_is_declined_as_a_whole(tmp_path):
    limits = AccessLimits(rows_per_second=2.0)
    gate = AccessGate(AccessRecord(tmp_path), limits, clock=lambda: 1.0)
    ask = Ask(1, 0, 1, users=("ann", "bob"))
    assert gate.admit(ask).declined == []
    assert gate.admit(ask).declined == [ROWS_PER_SECOND] * 2
    gate.close()


def test_only_campaigns_of_the_list_are_answered_and_one_without_a_name_is_not(tmp_path):
    gate = open_gate(AccessSettings(campaigns=("spring",)), tmp_path)
    mixed = Ask(1, 0, 1, users=("ann", "bob"), campaigns=("spring", "autumn"))
    assert gate.admit(mixed).outcomes == [ANSWERED, OTHER_CAMPAIGN]
    assert gate.admit(Ask(2, 0, 1, users=("ann",))).outcomes == [OTHER_CAMPAIGN]
    gate.close()
