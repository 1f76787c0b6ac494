"""Whether a log has a writer: what those see who stand by."""

from journals import OnPostgres

from vfbandits.journal.inbox.open import open_watch
from vfbandits.journal.postgres.leader_watch import LeaderWatch


def test_a_watch_sees_who_comes_and_goes_and_holds_nothing_itself():
    place, other = OnPostgres(None), OnPostgres(None)
    other.open().close()
    watch = LeaderWatch(place.url, name=place.name)
    assert (watch.is_led(), watch.term()) == (False, 0)  # there is no such log yet
    writer = place.open()
    assert (watch.is_led(), watch.term()) == (True, 1)
    beside = open_watch(place.url, name=other.name)
    assert not beside.is_led()
    place.cut_off()
    assert (watch.is_led(), watch.term()) == (False, 1)
    again = place.open()
    assert (watch.is_led(), watch.term()) == (True, 2)
    for one in (writer, again, watch, beside):
        one.close()
    assert not place.writers()
