"""The results of one pass over the file: gaps, first values, and the values of categories."""

from dataclasses import dataclass, field

from vfbandits.datasets.criteo.columns import CATEGORIES, COLUMNS, NUMBERS
from vfbandits.datasets.criteo.file import CriteoPiece
from vfbandits.datasets.distinct import Distinct

FEATURES = (*NUMBERS, *CATEGORIES)
LINES_TO_NAME = 10


@dataclass(slots=True)
class Survey:
    """Counts over the pieces noted so far; the order of pieces matters for ``first`` only."""

    n_rows: int = 0
    n_bad: int = 0
    first_bad: list[int] = field(default_factory=list)
    missing: dict[str, int] = field(default_factory=lambda: dict.fromkeys(FEATURES, 0))
    first: dict[str, int] = field(default_factory=dict)
    distinct: dict[str, Distinct] = field(
        default_factory=lambda: {name: Distinct() for name in CATEGORIES}
    )

    def note(self, piece: CriteoPiece) -> None:
        """Take one more piece into account."""
        self.n_rows += piece.frame.height
        self.n_bad += len(piece.bad_lines)
        self.first_bad += piece.bad_lines[: LINES_TO_NAME - len(self.first_bad)].tolist()
        for name in COLUMNS[1:]:
            column = piece.frame[name]
            present = column.drop_nulls()
            self.missing[name] += column.len() - present.len()
            if present.len():
                self.first.setdefault(name, int(present[0]))
                if name in self.distinct:
                    self.distinct[name].add(present.to_numpy())

    def gappy(self, share: float) -> tuple[str, ...]:
        """The columns of which more than ``share`` is missing."""
        return tuple(n for n in FEATURES if self.missing[n] > share * self.n_rows)
