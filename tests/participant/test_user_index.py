"""The index of a participant's own users: who is found, and when it is built again."""

import pytest

from vfbandits.errors import FeatureError
from vfbandits.participant.user_index import MIN_WAIT_S, WAIT_FACTOR, UserIndex
from vfbandits.protocol.pseudonyms import Pseudonyms

NAMES, OTHERS = Pseudonyms(b"a" * 32), Pseudonyms(b"b" * 32)


class Store:
    """Users that come and go, on a clock of their own."""

    def __init__(self, *users):
        self.users, self.now, self.cost_s, self.is_down = [*users], 0.0, 0.0, False

    def read(self):
        self.now += self.cost_s
        if self.is_down:
            raise FeatureError("the store is down")
        yield from self.users

    def index(self, **options):
        return UserIndex(self.read, clock=lambda: self.now, **{"is_live": True, **options})


def test_a_pseudonym_leads_to_its_user_and_nothing_else_does():
    index = Store("ann", "bob", "ann").index()
    assert index.build(NAMES) == 2
    asked = [NAMES.of("bob"), OTHERS.of("bob"), "bob", "", "zz", NAMES.of("ann").upper()]
    found = index.resolve(NAMES, asked)
    assert found.is_known == (True, False, False, False, False, True)
    assert (found.users[0], found.users[5]) == ("bob", "ann")
    assert found.users[2] == "pseudonym bob"
    assert "bob" not in repr(found)


def test_users_that_were_added_are_found_after_a_miss_and_a_wait():
    store = Store("ann")
    index = store.index()
    assert index.is_due(NAMES)
    index.build(NAMES)
    store.users.append("eve")
    store.now = 1000.0
    assert not index.is_due(NAMES)  # nobody has asked for anybody else
    assert index.resolve(NAMES, [NAMES.of("eve")]).is_known == (False,)
    assert index.is_due(NAMES)
    index.build(NAMES)
    assert index.resolve(NAMES, [NAMES.of("eve")]).is_known == (True,)
    assert not index.is_due(NAMES)


@pytest.mark.parametrize(("cost_s", "wait_s"), [(0.0, MIN_WAIT_S), (9.0, 9.0 * WAIT_FACTOR)])
def test_one_that_asks_for_unknown_users_keeps_the_store_busy_for_a_twentieth(cost_s, wait_s):
    store = Store("ann")
    store.cost_s = cost_s
    index = store.index()
    index.build(NAMES)
    index.resolve(NAMES, ["00" * 16])
    built = store.now
    store.now = built + wait_s - 0.01
    assert not index.is_due(NAMES)
    store.now = built + wait_s + 0.01
    assert index.is_due(NAMES)


def test_a_file_is_read_once():
    store = Store("ann")
    index = store.index(is_live=False)
    index.build(NAMES)
    index.resolve(NAMES, ["00" * 16])
    store.now = 1e6
    assert not index.is_due(NAMES)


def test_other_pseudonyms_need_another_index():
    store = Store("ann")
    index = store.index(is_live=False)
    with pytest.raises(FeatureError, match="got no index yet"):
        index.resolve(NAMES, [])
    index.build(NAMES)
    store.now = 1e6
    assert index.is_due(OTHERS)
    with pytest.raises(FeatureError, match="got no index yet"):
        index.resolve(OTHERS, [OTHERS.of("ann")])


def test_a_store_that_fails_leaves_the_index_as_it_was_and_is_tried_again():
    store = Store("ann")
    index = store.index()
    store.is_down = True
    with pytest.raises(FeatureError, match="is down"):
        index.build(NAMES)
    store.now += MIN_WAIT_S
    assert index.is_due(NAMES)
    store.is_down = False
    index.build(NAMES)
    store.is_down = True
    with pytest.raises(FeatureError, match="is down"):
        index.build(NAMES)
    assert index.resolve(NAMES, [NAMES.of("ann")]).is_known == (True,)


def test_more_users_than_memory_is_for_are_refused_with_a_way_out():
    with pytest.raises(FeatureError, match=r"holds at most 2, got more: name a table or a view"):
        Store("ann", "bob", "eve").index(most=2).build(NAMES)
