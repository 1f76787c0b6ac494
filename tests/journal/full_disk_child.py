"""Appends until the disk is full, then makes room and opens the log again; see its test.

Prints three numbers: events acknowledged, events in the log afterwards, size of a batch.
"""

import sys
from pathlib import Path

import numpy as np

from vfbandits.campaign.events import Decided
from vfbandits.errors import JournalError
from vfbandits.journal.sqlite.journal import SqliteJournal

BATCH = 7


def batch(start):
    return [Decided(start + i, 0, 0, np.full(100, float(start + i))) for i in range(BATCH)]


def expect(words, error):
    assert words in str(error), error


def fill(journal):
    acknowledged = 0
    while acknowledged < 100_000:
        try:
            acknowledged = journal.append(batch(acknowledged))
        except JournalError as error:
            expect("cannot be written", error)
            return acknowledged
    raise AssertionError("the disk is never full")


def main(folder, make_room):
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(150_000))
    journal = SqliteJournal(folder / "log.db")
    acknowledged = fill(journal)
    try:
        journal.append(batch(acknowledged))
    except JournalError as error:
        expect("has failed before", error)
    assert len(list(journal.read())) == acknowledged
    journal.close()
    ballast.unlink()
    make_room()
    journal = SqliteJournal(folder / "log.db")
    found = [event for _, event in journal.read()]
    assert [event.event_id for event in found] == list(range(len(found)))
    assert journal.damage.records == 0
    assert journal.append(batch(len(found))) == len(found) + BATCH
    journal.close()
    sys.stdout.write(f"{acknowledged} {len(found)} {BATCH}\n")


def limit_files(size):
    """Files end at this size: a write past it fails with EFBIG, as on a full disk."""
    import resource  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


if __name__ == "__main__":
    where = Path(sys.argv[1])
    if sys.argv[2] == "limit":
        limit_files(400_000)
        main(where, lambda: limit_files(-1))
    else:
        main(where, lambda: None)
