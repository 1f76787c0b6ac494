"""The arms on offer in each row of a journal's export, and what is known of them.

=================  =====================================================================
offered            a list of arm ids
offered_contexts   a list of numbers, arm by arm: masked contexts (layout "per_arm")
offered_features   the same of the arms' features (layout "outer")
=================  =====================================================================
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.core.decision import ArmId
from vfbandits.errors import ArmError, ContextError, SettingError
from vfbandits.evaluate.log import Indices, Keep
from vfbandits.evaluate.table import Table

if TYPE_CHECKING:
    import polars as pl

OFFERED = "offered"
OFFERED_CONTEXTS = "offered_contexts"
OFFERED_FEATURES = "offered_features"
_OF_LAYOUT = {"per_arm": OFFERED_CONTEXTS, "outer": OFFERED_FEATURES}


def is_export(table: Table) -> bool:
    """Whether a file says which arms were on offer, row by row."""
    import polars as pl  # noqa: PLC0415  (an extra)

    return isinstance(table.scan.collect_schema().get(OFFERED), pl.List)


def layout_of(table: Table) -> str:
    """The layout of a journal's export by its columns; "disjoint" for any other file."""
    found = [layout for layout, column in _OF_LAYOUT.items() if column in table.names]
    return found[0] if found and is_export(table) else "disjoint"


class Offers:
    """Reads those columns of one file; ``layout`` is the wanted layout of its contexts."""

    def __init__(self, table: Table, layout: str) -> None:
        self._kept = [column for column in _OF_LAYOUT.values() if column in table.names]
        wanted = _OF_LAYOUT.get(layout)
        self.column = wanted if wanted in self._kept else None
        self.columns = [OFFERED, *self._kept]
        self._table = table

    def complete(self, data: "pl.DataFrame") -> Keep:
        """Which rows have the contexts of all arms, (n,); at least one."""
        keep: Keep = np.ones(len(data), dtype=np.bool_)
        for column in self._kept:
            keep &= data[column].is_not_null().to_numpy()
        if not keep.any():
            raise SettingError(
                f"{self._table.path.name} must have rows with the contexts of all arms, got none: "
                'a campaign keeps them once it has log_contexts = "all"'
            )
        return keep

    def names(self, data: "pl.DataFrame") -> list[str]:
        """All arms that were on offer some time, each once."""
        return [name for name in data[OFFERED].explode().unique().to_list() if name is not None]

    def keep(self, data: "pl.DataFrame", ids: Sequence[ArmId]) -> Keep | None:
        """Which arms were on offer in each row, all in a row without a list; None if always all."""
        rows, places = self._cells(data, ids)
        keep = np.zeros((len(data), len(ids)), dtype=np.bool_)
        keep[rows, places] = True
        keep[data[OFFERED].is_null().to_numpy()] = True
        return None if keep.all() else keep

    def blocks(self, data: "pl.DataFrame", ids: Sequence[ArmId]) -> Matrix:
        """Numbers of all arms, (n, n_arms, width); zeros for arms that were not on offer."""
        rows, places = self._cells(data, ids)
        flat = self._flat(data, len(rows))
        blocks = np.zeros((len(data), len(ids), flat.shape[1]))
        blocks[rows, places] = flat
        return blocks

    def features(self, data: "pl.DataFrame", ids: Sequence[ArmId]) -> Matrix:
        """As ``blocks``, or (n_arms, width) where no arm's features ever change."""
        rows, places = self._cells(data, ids)
        flat = self._flat(data, len(rows))
        fixed = np.zeros((len(ids), flat.shape[1]))
        fixed[places] = flat
        return fixed if np.array_equal(fixed[places], flat) else self.blocks(data, ids)

    def _cells(self, data: "pl.DataFrame", ids: Sequence[ArmId]) -> tuple[Indices, Indices]:
        """Row and arm of each entry of all lists, in order."""
        place = {str(arm): at for at, arm in enumerate(ids)}
        lists = data[OFFERED].drop_nulls()
        counts = data[OFFERED].list.len().fill_null(0).to_numpy()
        arms = lists.explode().drop_nulls().to_list()
        if (unknown := next((arm for arm in arms if arm not in place), None)) is not None:
            raise ArmError(
                f"column {OFFERED!r} of {self._table.path.name} must hold known arms, {len(ids)} "
                f"of them, got {unknown!r}"
            )
        rows = np.repeat(np.arange(len(data), dtype=np.intp), counts)
        return rows, np.array([place[arm] for arm in arms], dtype=np.intp)

    def _flat(self, data: "pl.DataFrame", n_cells: int) -> Matrix:
        """One row for each arm on offer, (n_cells, width)."""
        lists = data[str(self.column)]
        flat = lists.explode().to_numpy().astype(np.float64)
        width = len(flat) // max(n_cells, 1)
        lengths = data[OFFERED].list.len() * width
        if not width or not (lists.list.len() == lengths).all():
            raise ContextError(
                f"column {self.column!r} of {self._table.path.name} must have the same number of "
                "numbers for each arm on offer, got lists of other lengths"
            )
        return flat.reshape(n_cells, width)
