"""One journal with records of several versions, as after an upgrade and after a way back."""

from contextlib import closing

import pytest
from journals import PLACES, make_place

from vfbandits.campaign.events import Reported
from vfbandits.errors import JournalError, RecordError
from vfbandits.journal import record
from vfbandits.journal.repair import survey

OLD, NEW = Reported("a", 0.5, "r", "overdue"), Reported("a", 0.5, "s", "late")


def written(place, *events):
    with closing(place.open()) as journal:
        journal.append(events)


def in_words_of_tomorrow(read):
    """As if version 1 had called a reward that came late by another word."""
    kind, fields = read
    if kind == 6:
        fields[3] = {"overdue": "late"}.get(fields[3], fields[3])
    return kind, fields


@pytest.fixture
def place(request, tmp_path):
    return make_place(request.param, tmp_path)


every_place = pytest.mark.parametrize("place", PLACES, indirect=True)


def tomorrow(monkeypatch):
    monkeypatch.setattr(record, "VERSION", 2)
    monkeypatch.setattr(record, "UPCASTERS", {1: in_words_of_tomorrow})


@every_place
def test_older_records_are_read_beside_newer_ones(place, monkeypatch):
    written(place, OLD, OLD)
    tomorrow(monkeypatch)
    written(place, NEW)
    with closing(place.open()) as journal:
        read = [event for _, event in journal.read()]
        found = [event for _, event in journal.find("a")]
    assert [event.why for event in read] == ["late", "late", "late"]
    assert found == read


@every_place
def test_the_program_of_before_reads_what_it_wrote_and_refuses_the_rest(place, monkeypatch):
    written(place, OLD)
    with monkeypatch.context() as after:
        tomorrow(after)
        written(place, NEW)
    with closing(place.open()) as journal:
        records = journal.read()
        assert next(records) == (1, OLD)
        message = "record 2 of the journal must have version 1, got 2: it was written by a newer"
        with pytest.raises(JournalError, match=message) as caught:
            next(records)
        # It is not damaged: nothing may set it aside.
        assert not isinstance(caught.value, RecordError)
        with pytest.raises(JournalError, match=message):
            survey(journal)


def test_a_version_never_reaches_the_marks_of_encrypted_records():
    assert 1 <= record.VERSION <= 127
    assert sorted(record.UPCASTERS) == list(range(1, record.VERSION))
