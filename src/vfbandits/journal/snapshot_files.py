"""The snapshots of a journal, as files beside it: ``<journal>.snapshot-<position>``.

Each is a ZIP archive as ``vfb.save`` writes it, followed by a checksum, and ``vfb.load`` reads it
too.  In an encrypted journal the file is encrypted.
"""

import glob
import logging
import threading
from pathlib import Path

from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import SnapshotError
from vfbandits.files import PART, sync_folder, write_in_pieces, write_whole
from vfbandits.journal.base import newest_whole, superfluous
from vfbandits.journal.codec import Codec

_log = logging.getLogger(__name__)
_ASIDE = ".lost"


class SnapshotFiles:
    """Writes, reads and deletes the snapshots of one journal; all but reading is for its writer.

    ``n_damaged`` counts those that were damaged, or of a position that the journal has lost.
    """

    def __init__(self, log: Path, codec: Codec) -> None:
        self._log = log
        self._codec = codec
        self._guard = threading.Lock()
        self.n_damaged = 0

    def clear_parts(self) -> None:
        """Remove the half-written files of a killed writer."""
        for part in self._log.parent.glob(f".{glob.escape(self._log.name)}.snapshot-*{PART}"):
            part.unlink()

    def save(self, position: int, snapshot: Snapshot) -> None:
        """Write a snapshot, whole or not at all, then delete those that need not be kept."""
        data = self._codec.seal_snapshot(position, snapshot)
        with self._guard:
            write_whole(self._path(position), lambda file: write_in_pieces(file, data), mode=0o600)
            for old in superfluous(self.positions()):
                self._path(old).unlink()

    def positions(self) -> list[int]:
        """Positions of all snapshots, newest first."""
        start = f"{self._log.name}.snapshot-"
        found = self._log.parent.glob(f"{glob.escape(start)}*")
        rests = (path.name.removeprefix(start) for path in found)
        return sorted((int(rest) for rest in rests if rest.isdecimal()), reverse=True)

    def load(self, position: int) -> Snapshot:
        """The snapshot of a position."""
        try:
            data = self._path(position).read_bytes()
        except FileNotFoundError as error:
            raise SnapshotError(f"the snapshot of position {position} is gone") from error
        return self._codec.open_snapshot(data, position)

    def latest(self) -> tuple[int, Snapshot] | None:
        """The newest undamaged snapshot."""
        while True:
            positions = self.positions()
            found, passed_over = newest_whole(positions, self.load)
            if found is not None or positions == self.positions():
                self.n_damaged += passed_over
                return found

    def set_aside(self, *, after: int) -> None:
        """Rename the snapshots of positions that the journal has lost."""
        for position in self.positions():
            if position > after:
                path = self._path(position)
                path.rename(path.with_name(path.name + _ASIDE))
                self.n_damaged += 1
                _log.warning("snapshot of lost position %d kept as *%s", position, _ASIDE)

    def drop_set_aside(self) -> None:
        """Remove the renamed snapshots, which belong to no journal."""
        for path in self._log.parent.glob(f"{glob.escape(self._log.name)}.snapshot-*{_ASIDE}"):
            path.unlink()
        sync_folder(self._log.parent)

    def drop_before(self, position: int) -> None:
        """Remove the snapshots before ``position``, after a compaction."""
        for older in self.positions():
            if older < position:
                self._path(older).unlink()
        sync_folder(self._log.parent)

    def _path(self, position: int) -> Path:
        return self._log.with_name(f"{self._log.name}.snapshot-{position:020d}")
