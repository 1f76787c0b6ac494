"""Gaps filled forward, then backward, in a table that comes in pieces."""

import polars as pl


class Filler:
    """Fills gaps with the value before, across pieces; before the first value, with that one.

    That is "forward, then backward" for a file that is never in memory as a whole.
    """

    def __init__(self, first: dict[str, int]) -> None:
        self._last = dict(first)

    def fill(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The next piece without gaps; pieces must come in order and with the same columns."""
        full = frame.with_columns(
            pl.col(name).forward_fill().fill_null(self._last[name])
            for name in frame.columns
            if frame[name].null_count()
        )
        if full.height:
            self._last.update({name: full[name][-1] for name in full.columns})
        return full
