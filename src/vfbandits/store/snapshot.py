"""Snapshots as files: versioned, free of pickle, written whole or not at all.

A file is a ZIP archive.  ``header.json`` holds ``format`` ("vfbandits snapshot"), ``version``,
``secret`` and the header of the object; each array is a member ``arrays/<name>.npy`` in NumPy's
own format, float64.  A member's checksum is checked when it is read.  Nothing in it is executed.

A snapshot of a federation holds its masks: its file is readable by its owner only.
"""

import json
import os
import zipfile
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from vfbandits.core.bandit import Bandit
from vfbandits.core.round import Federation
from vfbandits.core.snapshot import AnyArray, Record, Snapshot
from vfbandits.errors import SnapshotError

FORMAT = "vfbandits snapshot"
VERSION = 1
_HEADER = "header.json"
_FOLDER = "arrays/"


def save(learner: Bandit | Federation, path: str | os.PathLike[str]) -> Path:
    """Write a snapshot of a bandit or a federation; an older file is replaced in one step.

    >>> import tempfile, vfbandits as vfb
    >>> bandit = vfb.Bandit(vfb.LinTS(posterior_scale=0.1), dim=3, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = vfb.load(vfb.save(bandit, folder + "/bandit.vfb"))
    >>> (again.decide(np.eye(3)).scores == bandit.decide(np.eye(3)).scores).all()
    np.True_
    """
    target = Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
    snapshot = learner.snapshot()
    mode = 0o600 if snapshot.secret else 0o644
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _write(file, snapshot)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(target.parent)
    return target


def load(path: str | os.PathLike[str]) -> Bandit | Federation:
    """The bandit or federation that was saved: it goes on, bit for bit, as the saved one would.

    >>> import tempfile, vfbandits as vfb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = vfb.save(vfb.Bandit(vfb.LinUCB(beta=0.5), dim=3), folder + "/bandit.vfb")
    ...     vfb.load(path)
    Bandit(LinUCB(beta=0.5), layout='per_arm', dim=3, decisions=0, open=0)
    """
    snapshot = _read(Path(path))
    kind = snapshot.record.text("kind")
    if kind == "bandit":
        return Bandit.restore(snapshot)
    if kind == "federation":
        return Federation.restore(snapshot)
    raise SnapshotError(f"a snapshot holds a bandit or a federation, got {kind!r}")


def _write(file: IO[bytes], snapshot: Snapshot) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        top = {
            "format": FORMAT,
            "version": VERSION,
            "secret": snapshot.secret,
            "object": snapshot.header,
        }
        archive.writestr(_HEADER, json.dumps(top, indent=1))
        for name, array in snapshot.arrays.items():
            buffer = BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            archive.writestr(f"{_FOLDER}{name}.npy", buffer.getbuffer())


def _read(path: Path) -> Snapshot:
    try:
        with zipfile.ZipFile(path) as archive:
            top = Record(json.loads(archive.read(_HEADER)))
            if top.text("format") != FORMAT or top.integer("version") != VERSION:
                raise SnapshotError(
                    f"{path} must be a {FORMAT} of version {VERSION}, got "
                    f"{top.text('format')!r} of version {top.integer('version')}"
                )
            arrays = {
                name.removeprefix(_FOLDER).removesuffix(".npy"): _array(archive, name)
                for name in archive.namelist()
                if name.startswith(_FOLDER)
            }
    except (zipfile.BadZipFile, json.JSONDecodeError, KeyError, EOFError, ValueError) as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"{path} is not a whole snapshot: {error}") from error
    return Snapshot(top.plain("object"), arrays, secret=bool(top.values.get("secret")))


def _array(archive: zipfile.ZipFile, name: str) -> AnyArray:
    array = np.lib.format.read_array(BytesIO(archive.read(name)), allow_pickle=False)
    if array.dtype != np.float64:
        raise SnapshotError(f"arrays of a snapshot are float64, got {array.dtype} at {name!r}")
    return array


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
