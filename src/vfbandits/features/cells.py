"""What stores behind a server share: cells to raw rows, and found rows to an answer."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import FeatureError
from vfbandits.features.base import Lookup
from vfbandits.features.scaling import RawRows, Scaling

Named = TypeVar("Named", bound=Hashable)


@dataclass(frozen=True, slots=True)
class CellReader:
    """How one kind of store spells numbers and categories, and the scaling of its rows.

    ``number`` gives NaN, and ``text`` None, for a cell that is no such thing.  ``where`` names the
    store in errors.
    """

    where: str
    scaling: Scaling
    number: Callable[[object], float]
    text: Callable[[object], str | None]

    def lookup(
        self, wanted: Sequence[Named | None], found: Mapping[Named, Sequence[object]]
    ) -> Lookup:
        """Scaled rows in the order of ``wanted``, zeros where ``found`` has no cells."""
        place: dict[Named | None, int] = {key: row for row, key in enumerate(found)}
        last = len(place)  # of the row of zeros below the others
        rows = np.zeros((last + 1, self.scaling.width))
        rows[:-1] = self.scaling.apply(self._raw(list(found.values())))
        places = [place.get(key, last) for key in wanted]
        return Lookup(PlainBlock(rows.take(places, axis=0)), places.count(last))

    def _raw(self, cells: Sequence[Sequence[object]]) -> RawRows:
        n = len(self.scaling.numbers)
        numbers = np.array([[self.number(cell) for cell in row[:n]] for row in cells])
        numbers = numbers.reshape(len(cells), n)
        if not np.isfinite(numbers).all():
            bad = (~np.isfinite(numbers)).sum(axis=0)
            first = int(np.flatnonzero(bad)[0])
            raise self._refusal(self.scaling.numbers[first], "finite numbers", int(bad[first]))
        return RawRows(numbers, tuple(self._texts(cells)))

    def _texts(self, cells: Sequence[Sequence[object]]) -> list[list[str]]:
        columns = []
        for place, name in enumerate(self.scaling.one_hot, start=len(self.scaling.numbers)):
            texts = [self.text(row[place]) for row in cells]
            known = [text for text in texts if text is not None]
            if len(known) < len(texts):
                raise self._refusal(name, "text or whole numbers", len(texts) - len(known))
            columns.append(known)
        return columns

    def _refusal(self, name: str, wanted: str, count: int) -> FeatureError:
        return FeatureError(
            f"column {name!r} of {self.where} must hold {wanted}, "
            f"got something else in {count} row{'s' * (count > 1)} of this lookup"
        )
