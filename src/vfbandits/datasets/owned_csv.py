"""A data set that is one delimited file: a declaration, and how to load it."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vfbandits.datasets.encode import Column, encode
from vfbandits.datasets.owned import OwnedSet, balanced, own
from vfbandits.datasets.shared_files import read_checked

BALANCE_SEED = 0


@dataclass(frozen=True, slots=True)
class OwnedCsv:
    """File, digest, and the columns of each owner.

    ``header`` names the columns of a file that does not name them itself.  With ``is_balanced``
    the larger classes are cut to the size of the smallest, at random but always in the same way.
    """

    name: str
    path: str
    sha256: str
    origin: str
    separator: str
    target: str
    owners: dict[str, tuple[Column, ...]]
    citation: str
    licence: str
    header: tuple[str, ...] = ()
    is_balanced: bool = False

    def load(self, folder: Path) -> OwnedSet:
        """Read the file below ``folder``."""
        text = read_checked(folder / self.path, sha256=self.sha256, origin=self.origin)
        rows = list(csv.reader(text.splitlines(), delimiter=self.separator))
        header = self.header or tuple(rows.pop(0))
        table = dict(zip(header, zip(*rows, strict=True), strict=True))
        classes, labels = np.unique(np.array(table[self.target]), return_inverse=True)
        keep = np.arange(len(labels))
        if self.is_balanced:
            keep = balanced(labels, np.random.default_rng(BALANCE_SEED))
        owners, features = own(
            {
                owner: np.hstack([encode(column, table[column.name])[keep] for column in columns])
                for owner, columns in self.owners.items()
            }
        )
        return OwnedSet(
            name=self.name,
            owners=owners,
            features=features,
            labels=labels[keep],
            n_arms=len(classes),
            citation=self.citation,
            licence=self.licence,
        )
