"""Copies a journal to another place, between files and databases in any direction.

The copy has the same model, bit for bit, and everything else that is kept: records at their
positions, snapshots, pending decisions, known event ids, tombstones of erased users, and between
databases the inbox.  Records that were set aside as damaged are not copied.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

from vfbandits.campaign.events import COPY, Administered
from vfbandits.errors import JournalError
from vfbandits.journal.base import Journal
from vfbandits.journal.contents import JournalContents, digest_of
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.inbox.base import Copied, Inbox
from vfbandits.journal.open import (
    DEFAULT_NAME,
    fill_journal,
    is_database,
    open_reader,
    place_of,
)


@dataclass(frozen=True, slots=True)
class Copy:
    """Counts of what was copied: records up to position ``last``, snapshots, events of the inbox.

    ``left_out`` counts events of the inbox that were not copied: the journal had refused them, or
    they cannot be read.  ``digest`` is that of both journals.  ``was_there`` says that an earlier
    call had made the copy: nothing was written.
    """

    records: int
    last: int
    snapshots: int
    arrivals: int
    left_out: int
    digest: str
    was_there: bool


@dataclass(slots=True)
class _Arrivals:
    """What an inbox holds, counted while it is read."""

    found: Iterable[Copied]
    n_copied: int = 0
    n_left_out: int = 0

    def read(self) -> Iterator[Copied]:
        """The events that can be read."""
        for one in self.found:
            if one.event is None:
                self.n_left_out += 1
            else:
                self.n_copied += 1
                yield one

    def leave_out(self) -> None:
        """Copy none; refused if any of them waits for the journal."""
        n_waiting = 0
        for one in self.found:
            n_waiting += one.taken is None
            self.n_left_out += one.taken == math.inf
        if n_waiting:
            raise JournalError(
                f"a file has no inbox: wanted an empty one, got {n_waiting} waiting events; run "
                "the leader until it has taken them into the journal, stop it, and copy again"
            )
        self.found = ()


def copy_journal(  # noqa: PLR0913  (by name)
    source: Journal,
    target: str,
    *,
    name: str = DEFAULT_NAME,
    key: JournalKey | None = None,
    inbox: Inbox | None = None,
    described: str = "",
    by: str,
    now: float,
    on_step: Callable[[int], None] = lambda done: None,
) -> Copy:
    """Copy a journal to ``target``, and compare both.

    ``source`` is open for writing here, so no other process changes it.  The last record of both
    then says who copied the journal, when, and from where (``described``).  The call can be
    repeated: after an interruption it copies again, after a success it only compares.
    """
    place = place_of(target, name=name)
    if place == described:
        raise JournalError(f"a copy needs a place of its own, got that of the journal, {place}")
    arrivals = _Arrivals(() if inbox is None else inbox.copied())
    if not is_database(target):
        arrivals.leave_out()
    detail = f"from {described} to {place}"
    contents = JournalContents(
        source,
        arrivals.read(),
        on_step,
        on_begin=lambda: _note(source, Administered(COPY, detail, by, now)),
    )
    was_there = _is_there(target, name=name, key=key)
    if was_there:
        contents.skip()
    else:
        fill_journal(target, contents, name=name, key=key)
    with closing(open_reader(target, name=name, key=key)) as reader:
        digest = digest_of(reader)
    if digest != contents.digest:
        raise JournalError(
            f"a copy needs a new journal, or a copy of the same: wanted the digest "
            f"{contents.digest}, got {digest} at {place}"
        )
    return Copy(
        records=contents.n_records,
        last=contents.last_position,
        snapshots=len(source.snapshot_positions()),
        arrivals=arrivals.n_copied,
        left_out=arrivals.n_left_out,
        digest=digest,
        was_there=was_there,
    )


def _note(journal: Journal, note: Administered) -> None:
    journal.append([note])


def _is_there(target: str, *, name: str, key: JournalKey | None) -> bool:
    """Whether a whole journal is at ``target`` that opens with ``key``."""
    try:
        open_reader(target, name=name, key=key).close()
    except JournalError:
        return False
    return True
