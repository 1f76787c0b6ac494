"""The columns of Criteo's train file as polars types and as text.

Integers stay integers.  A category is written as eight hexadecimal digits and kept as the 32-bit
number they spell, a quarter of the room, in the same order.  An empty field is null.
"""

import polars as pl

from vfbandits.datasets.criteo.columns import CATEGORIES, COLUMNS, LABEL, NUMBERS

DIGITS = 8

AS_TEXT = pl.Schema(dict.fromkeys(COLUMNS, pl.String))
AS_WRITTEN = pl.Schema(
    [
        (LABEL, pl.Int8()),
        *((name, pl.Int64()) for name in NUMBERS),
        *((name, pl.String()) for name in CATEGORIES),
    ]
)
AS_KEPT = pl.Schema({**AS_WRITTEN, **dict.fromkeys(CATEGORIES, pl.UInt32())})


def from_written(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series | None]:
    """Columns typed ``AS_WRITTEN`` to final ones, and which rows are good; None if all are."""
    typed = frame.with_columns(_as_number(pl.col(name)) for name in CATEGORIES)
    if _is_all_good(frame, typed):
        return typed, None
    return from_text(frame)


def from_text(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
    """40 columns of text, or of types that can be cast, to final ones, and which rows are good."""
    text = frame.with_columns(
        pl.when(pl.col(name) != "").then(pl.col(name)).alias(name)
        for name, dtype in frame.schema.items()
        if dtype == pl.String
    )
    typed = text.with_columns(
        _as_number_of_8_digits(pl.col(name))
        if name in CATEGORIES and text.schema[name] == pl.String
        else pl.col(name).cast(AS_KEPT[name], strict=False)
        for name in COLUMNS
    )
    return typed, _good_rows(text, typed)


def _as_number(column: pl.Expr) -> pl.Expr:
    return column.str.to_integer(base=16, dtype=pl.UInt32, strict=False)


def _as_number_of_8_digits(column: pl.Expr) -> pl.Expr:
    """Null, too, for what is not eight hexadecimal digits; ``_good_rows`` distinguishes them."""
    number = pl.when(column.str.len_bytes() == DIGITS).then(_as_number(column))
    return number.alias(column.meta.output_name())


def _is_all_good(before: pl.DataFrame, after: pl.DataFrame) -> bool:
    lengths = before.select(pl.col(name).str.len_bytes().eq(DIGITS).all() for name in CATEGORIES)
    labels = after[LABEL]
    return (
        before.null_count().equals(after.null_count())
        and all(lengths.row(0))
        and labels.null_count() == 0
        and labels.is_between(0, 1).all()
    )


def _good_rows(before: pl.DataFrame, after: pl.DataFrame) -> pl.Series:
    kept = [before[name].is_null() == after[name].is_null() for name in COLUMNS]
    good = after[LABEL].is_between(0, 1).fill_null(value=False)
    for column in kept:
        good &= column
    return good
