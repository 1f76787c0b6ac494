"""Places for connections: who gets one, and who has to go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.errors import ConfigError
from vfbandits.http.access.connection_limits import ConnectionLimits, connection_limits
from vfbandits.http.access.slots import Slots
from vfbandits.settings.http import HttpSettings
from vfbandits.telemetry.connection_counts import ConnectionCounts


class Line:
    """A connection without a socket."""

    def __init__(self, name=""):
        self.name = name
        self.is_known = self.is_answering = self.is_dropped = False

    def drop(self):
        self.is_dropped = True


class House:
    def __init__(self, total, per_address):
        self.slots = Slots(ConnectionLimits(total, per_address), ConnectionCounts())

    @property
    def counts(self):
        return self.slots.counts

    def connect(self, address="a", *, is_limited=True, **state):
        line = Line(address)
        for name, value in state.items():
            setattr(line, name, value)
        slot = self.slots.take(address, line.drop, is_limited=is_limited)
        if slot is None:
            return None
        slot.occupant = line
        line.slot = slot
        return line


def test_a_newcomer_takes_the_place_of_the_oldest_stranger_from_its_own_address():
    house = House(total=4, per_address=2)
    other = house.connect("b")
    first, second, third = (house.connect("a") for _ in range(3))
    assert [line.is_dropped for line in (other, first, second, third)] == [
        *(False, True, False, False)
    ]
    assert house.counts.closed["idle"] == 1
    assert house.counts.open == 3


def test_when_all_places_are_taken_the_oldest_stranger_goes_whatever_its_address():
    house = House(total=2, per_address=2)
    first, second = house.connect("a"), house.connect("b")
    assert house.connect("c") is not None
    assert (first.is_dropped, second.is_dropped) == (True, False)


def test_an_address_displaces_its_own_strangers_before_those_of_others():
    house = House(total=2, per_address=2)
    other, own = house.connect("a"), house.connect("b")
    assert house.connect("b") is not None
    assert (other.is_dropped, own.is_dropped) == (False, True)


def test_known_connections_and_answers_under_way_keep_their_places():
    house = House(total=3, per_address=2)
    kept = [house.connect("a", is_known=True), house.connect("a", is_answering=True)]
    assert house.connect("a") is None
    assert house.counts.refused == {"address": 1, "total": 0, "descriptors": 0}
    kept.append(house.connect("b", is_known=True))
    assert house.connect("c") is None
    assert house.counts.refused["total"] == 1
    assert not any(line.is_dropped for line in kept)


def test_a_connection_that_was_answered_without_a_key_can_be_dropped_later():
    house = House(total=1, per_address=1)
    line = house.connect("a", is_answering=True)
    assert house.connect("a") is None
    line.is_answering = False
    assert house.connect("a") is not None
    assert line.is_dropped


def test_a_handshake_that_does_not_end_is_a_stranger():
    house = House(total=1, per_address=1)
    line = house.connect("a")
    line.slot.occupant = None
    assert house.connect("b") is not None
    assert line.is_dropped


def test_a_trusted_proxy_is_not_one_address_and_keeps_its_connections():
    house = House(total=4, per_address=1)
    lines = [house.connect("proxy", is_limited=False) for _ in range(4)]
    assert None not in lines
    assert house.connect("proxy", is_limited=False) is None
    assert house.connect("a") is None
    assert not any(line.is_dropped for line in lines)
    assert house.counts.refused == {"address": 0, "total": 2, "descriptors": 0}


ACTIONS = st.tuples(
    st.sampled_from(["connect", "close", "know", "answer", "rest"]),
    st.sampled_from("abcd"),
    st.integers(0, 30),
)


@given(st.lists(ACTIONS, max_size=80), st.integers(1, 6), st.integers(1, 6))
def test_limits_hold_and_nobody_known_is_dropped(actions, total, per_address):
    house = House(total, per_address)
    lines = []
    for action, address, number in actions:
        if action == "connect":
            before = [line for line in lines if line.is_known]
            line = house.connect(address)
            if line is not None:
                lines.append(line)
            assert not any(one.is_dropped for one in before)
            lines = [one for one in lines if not one.is_dropped]
        elif lines:
            line = lines[number % len(lines)]
            if action == "close":
                house.slots.release(line.slot)
                house.slots.release(line.slot)
                lines.remove(line)
            elif action == "know":
                line.is_known = True
            else:
                line.is_answering = action == "answer"
        assert house.counts.open == len(lines) <= total
        for name in "abcd":
            assert sum(line.name == name for line in lines) <= per_address
    for line in lines:
        house.slots.release(line.slot)
    assert house.counts.open == 0
    assert house.connect("a") is not None


@pytest.mark.parametrize(
    ("descriptors", "total", "per_address"),
    [(128, 64, 32), (256, 192, 96), (1_024, 768, 384), (65_536, 10_000, 5_000)],
)
def test_defaults_leave_descriptors_for_everything_else(descriptors, total, per_address):
    limits = connection_limits(HttpSettings("127.0.0.1:0"), descriptors=descriptors)
    assert limits == ConnectionLimits(total, per_address)


def test_settings_win_and_one_address_never_gets_more_than_all():
    http = HttpSettings("127.0.0.1:0", max_connections=10, max_connections_per_address=99)
    assert connection_limits(http, descriptors=1_024) == ConnectionLimits(10, 10)


@pytest.mark.parametrize(("wanted", "descriptors"), [(961, 1_024), (0, 100)])
def test_more_than_the_process_can_open_is_refused(wanted, descriptors):
    http = HttpSettings("127.0.0.1:0", max_connections=wanted)
    with pytest.raises(ConfigError, match=f"ulimit -n.*, got {wanted or descriptors}"):
        connection_limits(http, descriptors=descriptors)
