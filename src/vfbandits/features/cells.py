"""What stores behind a server share: cells to raw rows, and found rows to an answer."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import FeatureError
from vfbandits.features.base import Lookup
from vfbandits.features.consent import is_given
from vfbandits.features.scaling import RawRows, Scaling

Named = TypeVar("Named", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CellReader:
    """How one kind of store spells numbers and categories, and the scaling of its rows.

    ``number`` gives NaN, and ``text`` None, for any other cell.  ``where`` names the
    store in errors.  With ``has_consent`` the last cell of a row is the consent of its user.
    """

    where: str
    scaling: Scaling
    number: Callable[[object], float]
    text: Callable[[object], str | None]
    has_consent: bool = False

    def lookup(
        self, wanted: Sequence[Named | None], found: Mapping[Named, Sequence[object]]
    ) -> Lookup:
        """Scaled rows in the order of ``wanted``, zeros where ``found`` has no cells."""
        without: set[Named | None] = set()
        if self.has_consent:
            without.update(key for key, cells in found.items() if not is_given(cells[-1]))
            found = {key: cells[:-1] for key, cells in found.items() if key not in without}
        known: dict[Named | None, int] = {key: row for row, key in enumerate(found)}
        last = len(known)  # of the row of zeros below the others
        rows = np.zeros((last + 1, self.scaling.width))
        rows[:-1] = self.scaling.apply(self._raw(list(found.values())))
        places = [known.get(key, last) for key in wanted]
        absent = [row for row, place in enumerate(places) if place == last]
        refused = [row for row in absent if wanted[row] in without] if without else []
        absent = [row for row in absent if wanted[row] not in without] if without else absent
        return Lookup(PlainBlock(rows.take(places, axis=0)), absent, refused=refused)

    def sample(self, cells: Sequence[Sequence[object]]) -> PlainBlock:
        """Scaled rows of all cells that may be looked up."""
        found = dict(enumerate(cells))
        answer = self.lookup([*found], found)
        return PlainBlock(np.delete(answer.values, [*answer.refused], axis=0))

    def _raw(self, cells: Sequence[Sequence[object]]) -> RawRows:
        n = len(self.scaling.numbers)
        numbers = np.array([[self.number(cell) for cell in row[:n]] for row in cells])
        numbers = numbers.reshape(len(cells), n)
        if not np.isfinite(numbers).all():
            bad = (~np.isfinite(numbers)).sum(axis=0)
            first = int(np.flatnonzero(bad)[0])
            name, count = self.scaling.numbers[first], int(bad[first])
            raise self._refusal(name, "finite numbers", count=count, n_rows=len(cells))
        return RawRows(numbers, tuple(self._texts(cells)))

    def _texts(self, cells: Sequence[Sequence[object]]) -> list[list[str]]:
        columns = []
        for place, name in enumerate(self.scaling.text_columns, start=len(self.scaling.numbers)):
            texts = [self.text(row[place]) for row in cells]
            known = [text for text in texts if text is not None]
            if len(known) < len(texts):
                count = len(texts) - len(known)
                raise self._refusal(name, "text or whole numbers", count=count, n_rows=len(texts))
            columns.append(known)
        return columns

    def _refusal(self, name: str, wanted: str, *, count: int, n_rows: int) -> FeatureError:
        return FeatureError(
            f"column {name!r} of {self.where} must hold {wanted}, "
            f"got {count} of {n_rows} rows of this lookup that do not"
        )
