"""A participant's shares of the masks, on its own disk.

One file for each epoch, readable by its owner only: the share, and the signed roster that goes
with it.  A share is on the disk before anything is sent that was masked with it.
"""

import re
from pathlib import Path

from vfbandits.core.mask import MaskShare
from vfbandits.core.snapshot import Snapshot
from vfbandits.errors import SnapshotError
from vfbandits.files import write_whole
from vfbandits.journal.snapshot import open_sealed, seal_snapshot
from vfbandits.protocol.passive import HeldShare

_NAME = re.compile(r"epoch-(\d{1,18})\.share")


class ShareFiles:
    """The shares in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def load(self) -> dict[int, HeldShare]:
        """All shares, by epoch."""
        return {epoch: self._read(path) for epoch, path in sorted(self._paths().items())}

    def epochs(self) -> tuple[int, ...]:
        """The epochs with a share, damaged or not."""
        return tuple(sorted(self._paths()))

    def store(self, epoch: int, held: HeldShare) -> None:
        """Write a share; it is on the disk when this returns."""
        snapshot = Snapshot(
            {"kind": "share", "epoch": epoch, "roster": held.signed_roster.hex()},
            {"columns": held.share.columns},
            secret=True,
        )
        data = seal_snapshot(snapshot)
        write_whole(self._path(epoch), lambda file: file.write(data), mode=0o600)

    def keep_only(self, *epochs: int) -> None:
        """Remove the shares of all other epochs."""
        for other, path in self._paths().items():
            if other not in epochs:
                path.unlink()

    def _path(self, epoch: int) -> Path:
        return self._folder / f"epoch-{epoch}.share"

    def _paths(self) -> dict[int, Path]:
        found = ((_NAME.fullmatch(path.name), path) for path in self._folder.iterdir())
        return {int(match[1]): path for match, path in found if match}

    def _read(self, path: Path) -> HeldShare:
        snapshot = open_sealed(path.read_bytes(), name=path.name)
        record = snapshot.record
        columns = snapshot.arrays.get("columns")
        if record.text("kind") != "share" or columns is None or columns.ndim != 2:
            came = (
                f"{record.text('kind')!r} with columns of shape {getattr(columns, 'shape', None)}"
            )
            raise SnapshotError(
                f"{path.name} must be a 'share' with columns (dim, width), got {came}"
            )
        return HeldShare(MaskShare(columns), bytes.fromhex(record.text("roster")))
