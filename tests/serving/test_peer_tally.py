"""What is counted of one participant."""

import pytest

from vfbandits.serving.peer_tally import MAX_OPEN, PeerTally


def test_the_mean_follows_the_latest_answers():
    tally = PeerTally()
    for number in range(200):
        tally.asked(number, now=float(number))
        tally.answered(number, size=8, now=number + (0.5 if number < 100 else 0.1))
    told = tally.describe()
    assert told["latency_ms"] == pytest.approx(100.0, rel=0.05)
    assert (told["asks"], told["answers"], told["bytes"]) == (200, 200, 1600)


def test_an_answer_that_nobody_asked_for_says_nothing_of_the_time():
    tally = PeerTally()
    tally.asked(1, now=0.0)
    tally.answered(1, size=8, now=1.0)
    tally.answered(1, size=8, now=9.0)
    tally.answered(2, size=8, now=9.0)
    assert tally.describe() == {"asks": 1, "answers": 3, "bytes": 24, "latency_ms": 1000.0}


def test_rounds_that_are_never_answered_are_not_remembered_for_ever():
    tally = PeerTally()
    for number in range(MAX_OPEN + 1):
        tally.asked(number, now=0.0)
    tally.answered(0, size=8, now=1.0)
    assert "latency_ms" not in tally.describe()
    tally.answered(MAX_OPEN, size=8, now=1.0)
    assert tally.describe()["latency_ms"] == 1000.0
