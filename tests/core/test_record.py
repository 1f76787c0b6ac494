"""A header is believed value by value."""

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.core.snapshot import Record, Snapshot, stored
from vfbandits.errors import SnapshotError

GOOD = Record({"n": 3, "x": 1.5, "t": "text", "l": [1], "r": {"a": 1}, "none": None, "b": True})


def test_values_of_the_right_kind_are_given_back():
    assert GOOD.integer("n") == 3
    assert GOOD.number("n") == 3.0
    assert GOOD.number("x") == 1.5
    assert GOOD.text("t") == "text"
    assert GOOD.items("l") == [1]
    assert GOOD.child("r").integer("a") == 1
    assert GOOD.plain("r") == {"a": 1}
    assert (GOOD.has("n"), GOOD.has("none"), GOOD.has("nothing")) == (True, False, False)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: GOOD.integer("x"), "a whole number at 'x', got float"),
        (lambda: GOOD.integer("b"), "a whole number at 'b', got bool"),
        (lambda: GOOD.number("t"), "a number at 't', got str"),
        (lambda: GOOD.number("b"), "a number at 'b', got bool"),
        (lambda: GOOD.text("n"), "text at 'n', got int"),
        (lambda: GOOD.items("r"), "a list at 'r', got dict"),
        (lambda: GOOD.child("l"), "a record at 'l', got list"),
        (lambda: GOOD.text("absent"), "text at 'absent', got nothing"),
        (lambda: stored({"a": np.ones(2)}, "a", (3,)), r"'a' of shape \(3,\), got \(2,\)"),
    ],
)
def test_values_of_another_kind_are_refused_by_name(read, message):
    with pytest.raises(SnapshotError, match=message):
        read()


def test_a_record_shows_nothing():
    assert repr(GOOD) == "Record()"


def changed(bandit, **header):
    snapshot = bandit.snapshot()
    return Snapshot({**snapshot.header, **header}, snapshot.arrays)


def test_a_damaged_pending_decision_or_learner_is_refused():
    bandit = vfb.Bandit(vfb.LinUCB(), dim=1, layout="disjoint")
    bandit.reward(bandit.decide([1.0], arms=["a"]), 1.0)
    bandit.decide([1.0], arms=["a"])
    with pytest.raises(SnapshotError, match="a pending decision needs its model"):
        vfb.Bandit.restore(changed(bandit, open=[["key", 1.5]]))
    with pytest.raises(SnapshotError, match="an arm's header at 0"):
        vfb.Bandit.restore(changed(bandit, learner={"arms": [{"arm": None}]}))


def test_a_bandit_with_borrowed_draws_has_no_snapshot_of_its_own():
    class Borrowed:
        def standard_normal(self, size):
            return np.zeros(size)

        def random(self):
            return 0.5

    bandit = vfb.Bandit(vfb.LinTS(), dim=1)
    bandit.draw_from(Borrowed())
    assert bandit.decide([[1.0], [2.0]]).arm == 0
    with pytest.raises(SnapshotError, match="borrowed draws"):
        bandit.snapshot()
