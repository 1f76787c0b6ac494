"""What a role of secret shares keeps from one window to the next, as bytes.

::

    length of the header (4 bytes) | header, JSON | words, one array after the other

The bytes hold secrets and shares: they belong into files that only their owner may read.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from vfbandits.core.ring import Words
from vfbandits.core.snapshot import Record
from vfbandits.errors import SnapshotError

_LENGTH = struct.Struct("<I")


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Counts and secrets of a role, and its words by name.

    >>> kept = Kept({"window": 3}, {"theta": np.zeros((2, 1, 4), np.uint64)})
    >>> Kept.from_bytes(kept.to_bytes()).words["theta"].shape
    (2, 1, 4)
    """

    header: Mapping[str, object] = field(repr=False)
    words: Mapping[str, Words] = field(repr=False)

    @property
    def record(self) -> Record:
        """The header, for reading back."""
        return Record(self.header)

    def secret(self, name: str) -> bytes:
        """A secret of the header, where it is in hex."""
        return bytes.fromhex(self.record.text(name))

    @property
    def idle(self) -> int:
        """Columns of the state that belong to no participant."""
        return self.record.integer("idle") if "idle" in self.header else 0

    def take(self, name: str, like: Words) -> Words:
        """The words of that name, which must have the shape of ``like``."""
        words = self.words.get(name)
        if words is None or words.shape != like.shape:
            came = "none" if words is None else str(words.shape[1:])
            raise SnapshotError(
                f"the state of secret shares needs words {name!r} of shape {like.shape[1:]}, got "
                f"{came}: it was kept under other terms"
            )
        return words

    def to_bytes(self) -> bytes:
        """Header and words."""
        shapes = {name: words.shape[1:] for name, words in self.words.items()}
        header = json.dumps({"header": dict(self.header), "shapes": shapes}).encode()
        parts = [np.ascontiguousarray(words, dtype="<u8") for words in self.words.values()]
        return b"".join((_LENGTH.pack(len(header)), header, *(part.tobytes() for part in parts)))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Kept":
        """What was encoded; refuses what is cut short."""
        try:
            (length,) = _LENGTH.unpack_from(data)
            start = _LENGTH.size + length
            top = json.loads(data[_LENGTH.size : start])
            words = {}
            for name, shape in top["shapes"].items():
                n = 2 * math.prod(shape)
                flat = np.frombuffer(data, "<u8", n, start)
                words[name] = flat.reshape(2, *shape).astype(np.uint64)
                start += 8 * n
            header = top["header"]
        except (struct.error, ValueError, KeyError, TypeError):
            # Without the cause: it could quote what is secret.
            raise SnapshotError("the state of secret shares is not whole") from None
        if start != len(data):
            raise SnapshotError(f"the state of secret shares has {start} bytes, got {len(data)}")
        return cls(header, words)
