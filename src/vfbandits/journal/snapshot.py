"""Snapshots as files: versioned, free of pickle, written whole or not at all.

A file is a ZIP archive.  ``header.json`` holds ``format`` ("vfbandits snapshot"), ``version``,
``secret`` and the header of the object; each array is a member ``arrays/<name>.npy`` in NumPy's
own format, float64.  A member's checksum is checked when it is read.  Nothing in it is executed.

Only ``VERSION`` is written; a file of an earlier version goes through ``UPCASTERS``.  The version
is that of the file and of the object in it, whatever its kind.

A snapshot of a federation holds its masks: its file is readable by its owner only.
"""

import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import IO

import numpy as np

from vfbandits.core.bandit import Bandit
from vfbandits.core.round import Federation
from vfbandits.core.snapshot import AnyArray, LazyList, Record, Rows, Snapshot, batches
from vfbandits.errors import SnapshotError
from vfbandits.files import write_whole
from vfbandits.versions import refuse_unknown_version, upcast

FORMAT = "vfbandits snapshot"
VERSION = 1
UPCASTERS: dict[int, Callable[[Snapshot], Snapshot]] = {}
ITEMS_PER_BATCH = 250
_HEADER = "header.json"
_FOLDER = "arrays/"
_NO_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a ZIP archive can have
_CHECKSUM = struct.Struct("<I")
# The errors of zipfile and NumPy on damaged bytes.
_DAMAGE = (zipfile.BadZipFile, KeyError, EOFError, OSError, RuntimeError, ValueError)


def save(learner: Bandit | Federation, path: str | os.PathLike[str]) -> Path:
    """Write a snapshot of a bandit or a federation; an older file is replaced in one step.

    >>> import tempfile, vfbandits as vfb
    >>> bandit = vfb.Bandit(vfb.LinTS(posterior_scale=0.1), dim=3, seed=1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = vfb.load(vfb.save(bandit, folder + "/bandit.vfb"))
    >>> (again.decide(np.eye(3)).scores == bandit.decide(np.eye(3)).scores).all()
    np.True_
    """
    snapshot = learner.snapshot()
    mode = 0o600 if snapshot.secret else 0o644
    return write_whole(Path(path), lambda file: _write(file, snapshot), mode=mode)


def seal_snapshot(snapshot: Snapshot) -> bytes:
    """The bytes of a snapshot's file and, after them, a CRC-32 of all of them.

    A ZIP archive has no checksum over its table of contents, so damage there could hide an array.
    """
    buffer = BytesIO()
    _write(buffer, snapshot)
    buffer.write(_CHECKSUM.pack(zlib.crc32(buffer.getbuffer())))
    return buffer.getvalue()


def open_sealed(data: bytes, *, name: str = "the snapshot") -> Snapshot:
    """The snapshot that was sealed; errors call it ``name``.

    >>> snapshot = Snapshot({"kind": "example"}, {"b": np.ones(2)})
    >>> open_sealed(seal_snapshot(snapshot)).arrays
    {'b': array([1., 1.])}
    """
    body, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if _CHECKSUM.pack(zlib.crc32(body)) != checksum:
        raise SnapshotError(f"{name} is not a whole snapshot: its checksum is wrong")
    return _read(BytesIO(body), name)


def load(path: str | os.PathLike[str]) -> Bandit | Federation:
    """The bandit or federation that was saved; it continues, bit for bit, as the saved one would.

    >>> import tempfile, vfbandits as vfb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = vfb.save(vfb.Bandit(vfb.LinUCB(beta=0.5), dim=3), folder + "/bandit.vfb")
    ...     vfb.load(path)
    Bandit(LinUCB(beta=0.5), layout='per_arm', dim=3, decisions=0, open=0)
    """
    with Path(path).open("rb") as file:
        snapshot = _read(file, str(path))
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
        archive.writestr(_member(_HEADER), "".join(json_in_pieces(top)))
        for name, part in snapshot.held.items():
            member = _member(f"{_FOLDER}{name}.npy")
            # An archive must know beforehand of a member of 2 GiB or more.
            member.file_size = _n_bytes(part)
            with archive.open(member, "w") as out:
                if isinstance(part, np.ndarray):
                    np.lib.format.write_array(out, part, allow_pickle=False)
                else:
                    _write_rows(out, part)


def _n_bytes(part: AnyArray | Rows) -> int:
    return part.nbytes if isinstance(part, np.ndarray) else len(part) * part[0].nbytes


def _write_rows(file: IO[bytes], rows: Rows) -> None:
    """One array of these rows, in NumPy's format, put together batch by batch."""
    shape = (len(rows), len(rows[0]))
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    for batch in batches(rows):
        file.write(np.ascontiguousarray(batch, dtype="<f8").data.cast("B"))


def _member(name: str) -> zipfile.ZipInfo:
    """A member without a time, so that the same snapshot gives the same bytes."""
    return zipfile.ZipInfo(name, _NO_TIME)


def json_in_pieces(value: object) -> Iterator[str]:
    """``value`` as JSON; a long list is encoded in several calls.

    Each call holds the global interpreter lock until it returns, and decisions wait for that.

    >>> "".join(json_in_pieces({"open": [["a", 1.5], ["b", None]]}))
    '{"open": [["a", 1.5], ["b", null]]}'
    """
    if isinstance(value, dict):
        for place, (key, inner) in enumerate(value.items()):
            yield f"{', ' if place else '{'}{json.dumps(key)}: "
            yield from json_in_pieces(inner)
        yield "}" if value else "{}"
    elif isinstance(value, LazyList) or (isinstance(value, list) and len(value) > ITEMS_PER_BATCH):
        for start in range(0, len(value), ITEMS_PER_BATCH):
            yield ", " if start else "["
            yield json.dumps(value[start : start + ITEMS_PER_BATCH])[1:-1]
        yield "]" if value else "[]"
    else:
        yield json.dumps(value)


def _read(file: IO[bytes], path: str) -> Snapshot:
    try:
        with zipfile.ZipFile(file) as archive:
            top = Record(json.loads(archive.read(_HEADER)))
            if top.text("format") != FORMAT:
                raise SnapshotError(f"{path} must be a {FORMAT}, got {top.text('format')!r}")
            version = top.integer("version")
            # Before the arrays: a later version may store them in another form.
            refuse_unknown_version(
                version,
                newest=VERSION,
                upcasters=UPCASTERS,
                what=f"{path}, a {FORMAT},",
                error=SnapshotError,
            )
            arrays = {
                name.removeprefix(_FOLDER).removesuffix(".npy"): _array(archive, name)
                for name in archive.namelist()
                if name.startswith(_FOLDER)
            }
    except _DAMAGE as error:
        if isinstance(error, SnapshotError):
            raise
        raise SnapshotError(f"{path} is not a whole snapshot: {error}") from error
    snapshot = Snapshot(top.plain("object"), arrays, secret=bool(top.values.get("secret")))
    return upcast(
        snapshot,
        version,
        newest=VERSION,
        upcasters=UPCASTERS,
        what=f"{path}, a {FORMAT},",
        error=SnapshotError,
    )


def _array(archive: zipfile.ZipFile, name: str) -> AnyArray:
    array = np.lib.format.read_array(BytesIO(archive.read(name)), allow_pickle=False)
    if array.dtype != np.float64:
        raise SnapshotError(f"arrays of a snapshot are float64, got {array.dtype} at {name!r}")
    return array
