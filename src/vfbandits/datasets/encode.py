"""Columns of text as numbers: as they are, on a logarithmic scale, or one column per category."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vfbandits.core.arrays import Matrix, Vector


@dataclass(frozen=True, slots=True)
class Column:
    """A column by name, and how to read it."""

    name: str
    kind: Literal["number", "money", "category"] = "number"


def numbers(*names: str) -> tuple[Column, ...]:
    """Columns to take as they are."""
    return tuple(Column(name) for name in names)


def money(*names: str) -> tuple[Column, ...]:
    """Columns with heavy tails on both sides of 0: sign(x)·log(1 + |x|)."""
    return tuple(Column(name, "money") for name in names)


def categories(*names: str) -> tuple[Column, ...]:
    """Columns of names or codes: a flag for each value that occurs, in sorted order."""
    return tuple(Column(name, "category") for name in names)


def encode(column: Column, texts: Sequence[str]) -> Matrix:
    """One column of a file as (n, width).

    >>> encode(Column("job", "category"), ["cook", "poet", "cook"]).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    if column.kind == "category":
        values, place = np.unique(np.array(texts), return_inverse=True)
        return np.eye(len(values))[place]
    read: Vector = np.array(texts, dtype=np.float64)
    if column.kind == "money":
        read = np.sign(read) * np.log1p(np.abs(read))
    return read[:, None]
