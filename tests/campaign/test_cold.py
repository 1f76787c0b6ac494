"""Decisions that have left memory: which wait, and until when."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.campaign import cold
from vfbandits.campaign.cold import Cold
from vfbandits.errors import SnapshotError

DUES = st.integers(0, 20).map(float)
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "close", "postpone", "over", "restore"]), DUES), max_size=60
)


@given(steps=STEPS, fewest=st.integers(0, 3))
def test_it_tells_what_a_dictionary_would(steps, fewest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cold, "MIN_CLOSED", fewest)
        known, found, last = {}, Cold(), 0
        for step, due in steps:
            if step == "add":
                last += 1 + int(due) % 3
                found.add(last, due)
                known[last] = due
            elif step == "close":
                found.close(int(due))
                known.pop(int(due), None)
            elif step == "postpone":
                found.postpone(int(due), due + 7.0)
                known |= {int(due): due + 7.0} if int(due) in known else {}
            elif step == "restore":
                again = Cold()
                again.unpack(found.pack())
                found = again
            over = sorted((p for p in known if known[p] <= due), key=lambda p: (known[p], p))
            assert found.over(due, most=4) == over[:4]
            assert (len(found), found.positions) == (len(known), sorted(known))
            assert found.first == min(known, default=None)
            assert all(found.due(position) == known.get(position) for position in range(last + 2))


def test_what_was_set_aside_holds_up_nobody():
    found = Cold()
    for position in range(1, 5):
        found.add(position, 1.0)
    found.set_aside(1)
    found.set_aside(2)
    assert found.over(2.0, most=1) == [3]
    found.close(3)
    found.close(4)
    assert found.over(2.0, most=1) == []
    assert len(found) == 2


def test_what_is_no_list_of_waits_is_refused():
    found = Cold()
    found.add(2, 0.0)
    with pytest.raises(ValueError, match="positions must grow"):
        found.add(2, 0.0)
    for rows in (np.zeros(3), np.zeros((2, 3)), np.array([[1.0, np.nan]]), np.ones((2, 2))):
        with pytest.raises(SnapshotError):
            Cold().unpack(rows)
