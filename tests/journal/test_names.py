"""Numbers of decisions: the same for the same id, another for another, another in another log."""

from hypothesis import given
from hypothesis import strategies as st
from journals import ALL_KINDS, KEY, OUT_OF_MEMORY

from vfbandits.campaign.events import Configured, MasksChanged, Resized
from vfbandits.journal.codec import Codec
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.lookup import LookupHash, event_id_of, sorted_out

ids = st.integers() | st.text(st.characters(codec=None))


@given(one=ids, other=ids)
def test_two_ids_have_one_number_only_if_they_are_one(one, other):
    names = LookupHash(b"secret")
    assert (names.of(one) == names.of(other)) == (one == other)
    assert -(2**63) <= names.of(one) < 2**63


def test_text_is_not_taken_for_a_number():
    names = LookupHash(b"secret")
    assert len({names.of(key) for key in (17, "17", "11", -17, "-17", 0x17)}) == 6


def test_the_number_depends_on_the_log_and_on_its_key():
    codecs = [
        Codec(bytes(16)),
        Codec(bytes(15) + b"\1"),
        Codec(bytes(16), KEY),
        Codec(bytes(16), JournalKey(bytes(32))),
        Codec(bytes(15) + b"\1", KEY),
    ]
    assert len({codec.names.of("a") for codec in codecs}) == len(codecs)
    assert Codec(bytes(16), KEY).names.of("a") == codecs[2].names.of("a")


def test_the_numbers_of_events_are_those_of_their_decisions():
    names = LookupHash(b"secret")
    events = [*ALL_KINDS, *OUT_OF_MEMORY]
    for event, number in zip(events, names.of_events(events), strict=True):
        if isinstance(event, MasksChanged | Configured | Resized):
            assert (event_id_of(event), number) == (None, None)
        else:
            assert (event_id_of(event), number) == (event.event_id, names.of(event.event_id))


def test_events_of_other_decisions_are_sorted_out():
    """As when numbers collide."""
    numbered = list(enumerate(ALL_KINDS, start=1))
    found = sorted_out(numbered, [1, "held", "never"])
    assert {key: [n for n, _ in events] for key, events in found.items()} == {
        1: [2, 6, 10],
        "held": [4, 5, 7, 12],
        "never": [],
    }
