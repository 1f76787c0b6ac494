"""Lines that repeat: the first is logged, the others are counted, none is lost."""

import io
import json
import threading

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.telemetry.log import SPARSE, log_line, logger_for, start_logging
from vfbandits.telemetry.log_throttle import MAX_KEYS, LogThrottle


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def lines():
    """What is logged, as objects; the interval never ends by itself."""
    stream = io.StringIO()
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()], stream
    structlog.reset_defaults()


steps = st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 30.0)), max_size=60)


@given(steps)
def test_every_line_is_written_or_counted(steps):
    clock = Clock()
    throttle = LogThrottle(every_s=10.0, clock=clock)
    told = 0
    for key, pause in steps:
        clock.now += pause
        unlogged = throttle.admit(key)
        told += 0 if unlogged is None else 1 + unlogged
        told += sum(1 + unlogged for _, unlogged in throttle.take_due())
    told += sum(1 + unlogged for _, unlogged in throttle.take_due(everything=True))
    assert told == len(steps)


@given(steps)
def test_a_key_gets_one_line_in_an_interval(steps):
    clock = Clock()
    throttle = LogThrottle(every_s=10.0, clock=clock)
    last = {}
    for key, pause in steps:
        clock.now += pause
        written = [line["key"] for line, _ in throttle.take_due()]
        written += [] if throttle.admit(key, {"key": key}) is None else [key]
        for one in written:
            assert clock.now >= last.get(one, -10.0) + 10.0
            last[one] = clock.now


def test_more_keys_than_can_be_told_apart_share_a_line():
    throttle = LogThrottle(clock=Clock())
    said = [throttle.admit(number) for number in range(MAX_KEYS + 50)]
    assert [one for one in said if one is not None] == [0] * (MAX_KEYS + 1)
    assert throttle.admit(0) is None


def test_keys_whose_interval_is_over_make_room_for_others():
    clock = Clock()
    throttle = LogThrottle(every_s=10.0, clock=clock)
    for number in range(MAX_KEYS):
        throttle.admit(number)
    clock.now = 11.0
    assert [throttle.admit(name) for name in ("a", "b", "a")] == [0, 0, None]


def test_threads_lose_no_line():
    throttle = LogThrottle(clock=Clock())
    said = []

    def knock():
        said.extend(throttle.admit("door") for _ in range(500))

    threads = [threading.Thread(target=knock) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said, key=str) == [0] + [None] * 1999
    assert throttle.take_due(everything=True) == [({}, 1998)]


def test_a_minute_of_lost_links_is_two_lines(lines):
    read, stream = lines
    with start_logging(stream=stream, sparse_s=60.0):
        log = logger_for("bank", "passive")
        for number in range(88):
            log_line(log, "link_lost", {"reason": f"attempt {number}"})
        assert [line["reason"] for line in read()] == ["attempt 0"]
    first, last = read()
    assert "unlogged" not in first
    assert (last["event"], last["reason"], last["unlogged"]) == ("link_lost", "attempt 87", 86)
    assert (last["participant"], last["level"]) == ("bank", "warning")


def test_unknown_users_are_a_line_for_each_side(lines):
    read, stream = lines
    with start_logging(stream=stream):
        shop, bank = logger_for("shop", "active"), logger_for("bank", "passive")
        for number in range(50):
            log_line(shop, "features_missing", {"participant": "bank", "round": number})
            log_line(shop, "features_missing", {"participant": "news", "round": number})
            bank.info("features_missing", round=number)
        assert len(read()) == 3
    assert [line.get("unlogged", 0) for line in read()] == [0, 0, 0, 48, 48, 48]


def test_what_was_held_back_is_counted_though_nothing_follows(lines):
    read, stream = lines
    with start_logging(stream=stream, sparse_s=0.05):
        for _ in range(3):
            logger_for("bank", "passive").warning("link_lost", reason="away")
        for _ in range(200):
            if len(read()) == 2:
                break
            threading.Event().wait(0.05)
        assert [line.get("unlogged") for line in read()] == [None, 1]


def test_other_events_are_all_written(lines):
    read, stream = lines
    with start_logging(stream=stream):
        for _ in range(3):
            logger_for("shop", "active").info("participant_joined", peer="bank")
    assert len(read()) == 3
    assert "participant_joined" not in SPARSE
