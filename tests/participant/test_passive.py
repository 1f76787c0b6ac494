"""A passive participant's waits before it dials again."""

from itertools import pairwise

from vfbandits.participant.link import Waits
from vfbandits.settings.services import Backoff


def test_waits_double_up_to_the_bound_and_are_spread():
    waits = Waits(Backoff(first_s=0.1, most_s=1.0))
    drawn = [waits.next(refused=False) for _ in range(200)]
    assert 0.05 <= drawn[0] <= 0.1
    assert all(0.5 <= wait <= 1.0 for wait in drawn[4:])
    assert len(set(drawn)) > 190


def test_waits_grow_further_while_refused_and_start_small_after_success():
    waits = Waits(Backoff(first_s=0.1, most_s=1.0, refused_s=30.0))
    drawn = [waits.next(refused=True) for _ in range(20)]
    assert all(15.0 <= wait <= 30.0 for wait in drawn[9:])
    assert all(later > earlier / 2.0 for earlier, later in pairwise(drawn[:8]))
    assert waits.next(refused=False) <= 1.0
    waits.reset()
    assert waits.next(refused=True) <= 0.1
