"""The contents of a journal, in the order in which a copy is written."""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain

from vfbandits.campaign.events import Event
from vfbandits.core.snapshot import Snapshot
from vfbandits.journal.base import JournalReader
from vfbandits.journal.inbox.base import Copied
from vfbandits.journal.record import encode
from vfbandits.journal.snapshot import seal_snapshot

DIGEST_BYTES = 16
RECORDS_PER_BATCH = 50
_HEAD = struct.Struct("<cQQ")


@dataclass(slots=True)
class JournalContents:
    """The contents of a journal: its snapshots, then its records, then its inbox.

    ``on_begin`` is called before anything is read, once the target exists.  ``digest`` covers the
    snapshots and records that were read so far, as plain bytes with their positions: it is the same
    for a plain journal and an encrypted one, in a file and in a database.
    """

    reader: JournalReader
    arrivals: Iterable[Copied] = ()
    on_step: Callable[[int], None] = lambda done: None
    on_begin: Callable[[], None] = lambda: None
    n_records: int = 0
    _hash: "blake2b" = field(
        default_factory=lambda: blake2b(digest_size=DIGEST_BYTES), init=False, repr=False
    )

    @property
    def last_position(self) -> int:
        """Position of the last record."""
        return self.reader.last_position

    @property
    def compacted_to(self) -> int:
        """Position up to which only some records are kept."""
        return self.reader.compacted_to

    @property
    def digest(self) -> str:
        """In hexadecimal digits."""
        return self._hash.hexdigest()

    def snapshots(self) -> Iterator[tuple[int, Snapshot]]:
        """All snapshots, the oldest first."""
        for position in sorted(self.reader.snapshot_positions()):
            snapshot = self.reader.load_snapshot(position)
            self._add(b"s", position, seal_snapshot(snapshot))
            yield position, snapshot

    def batches(self) -> Iterator[list[tuple[int, Event, bytes]]]:
        """All kept records in batches: position, event, and plain bytes."""
        after = self.compacted_to
        batch: list[tuple[int, Event, bytes]] = []
        for position, event in chain(self.reader.remains(), self.reader.read(after)):
            record = encode(event)
            self._add(b"r", position, record)
            batch.append((position, event, record))
            self.n_records += 1
            if len(batch) == RECORDS_PER_BATCH:
                yield batch
                self.on_step(position)
                batch = []
        if batch:
            yield batch
            self.on_step(batch[-1][0])
        self._add(b"e", self.last_position, struct.pack("<Q", after))

    def skip(self) -> None:
        """Read all snapshots and records for the digest only."""
        for _ in chain(self.snapshots(), self.batches()):
            pass

    def _add(self, kind: bytes, position: int, data: bytes) -> None:
        self._hash.update(_HEAD.pack(kind, position, len(data)))
        self._hash.update(data)


def digest_of(reader: JournalReader, *, on_step: Callable[[int], None] = lambda done: None) -> str:
    """The digest of a journal's snapshots and records.

    >>> from vfbandits.journal.memory import MemoryJournal
    >>> digest_of(MemoryJournal()) == digest_of(MemoryJournal())
    True
    """
    contents = JournalContents(reader, on_step=on_step)
    contents.skip()
    return contents.digest
