"""Files of features: what is read, and what is refused without telling a value."""

import gzip

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from vfbandits.errors import FeatureError
from vfbandits.features.own_table import choose_columns
from vfbandits.features.table_file import read_table
from vfbandits.features.whole_table import read_whole_table

AGE = "77.125"
GOOD = {"user": ["a", "b", "c"], "age": [1.0, 2.0, float(AGE)], "city": ["x", "y", "x"]}


@pytest.fixture(params=["csv", "csv.gz", "parquet"])
def write(request, tmp_path):
    def write(columns):
        path = tmp_path / f"bank.{request.param}"
        frame = pl.DataFrame(columns, strict=False)
        if request.param == "parquet":
            frame.write_parquet(path)
        else:
            text = frame.write_csv().encode()
            path.write_bytes(gzip.compress(text) if request.param == "csv.gz" else text)
        return path

    return write


def read(path, *, key=("user",), numbers=("age",), categories=("city",)):
    return read_table(path, key=key, numbers=numbers, categories=categories)


def refused(path, **more):
    with pytest.raises(FeatureError) as caught:
        read(path, **more)
    assert AGE not in str(caught.value)
    assert caught.value.__cause__ is None  # no other error that might quote a cell
    return str(caught.value)


def whole_refused(path):
    with pytest.raises(FeatureError) as caught:
        read_whole_table(path)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_numbers_texts_and_keys_come_back(write):
    table = read(write(GOOD))
    assert table.keys == [("a",), ("b",), ("c",)]
    assert_array_equal(table.raw.numbers, [[1.0], [2.0], [float(AGE)]])
    assert table.raw.texts == (["x", "y", "x"],)
    assert AGE not in repr(table)


def test_other_columns_are_not_looked_at(write):
    assert len(read(write({**GOOD, "junk": [None, "?", "NaN"]})).keys) == 3


def test_whole_numbers_are_keys_and_categories_by_their_text(write):
    table = read(write({**GOOD, "user": [7, -8, 900], "city": [1, 2, 1]}))
    assert table.keys == [("7",), ("-8",), ("900",)]
    assert table.raw.texts == (["1", "2", "1"],)


def test_keys_of_a_csv_keep_their_zeros(tmp_path):
    path = tmp_path / "bank.csv"
    path.write_text("user,age\n007,1\n7,2\n")
    assert read(path, categories=()).keys == [("007",), ("7",)]


def test_every_kind_of_number_counts(tmp_path):
    path = tmp_path / "bank.parquet"
    columns = {
        "user": ["a", "b"],
        "i": pl.Series([1, 2], dtype=pl.Int16),
        "f": pl.Series([0.5, 0.25], dtype=pl.Float32),
        "b": [True, False],
        "d": pl.Series(["1.50", "2.25"]).cast(pl.Decimal(10, 2)),
    }
    pl.DataFrame(columns).write_parquet(path)
    table = read(path, numbers=("i", "f", "b", "d"), categories=())
    assert_array_equal(table.raw.numbers, [[1.0, 0.5, 1.0, 1.5], [2.0, 0.25, 0.0, 2.25]])


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert "must exist, got none at" in refused(tmp_path / "no.csv")


def test_another_ending_is_refused(tmp_path):
    assert "ends in .csv, .csv.gz, .parquet, got 'bank.xlsx'" in refused(tmp_path / "bank.xlsx")


@pytest.mark.parametrize("name", ["broken.parquet", "broken.csv"])
def test_a_file_that_is_no_table_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(b"user,age,city\na,1,x\nb," + AGE.encode() + b",y,z,z\n\xff\xfe,,\n")
    assert "must be a table to read, got " in refused(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("\ufeffuser;age;city\r\na;1,5;x\r\n", "must be separated by commas, got semicolons"),
        ("user\tage\tcity\na\t1.5\tx\n", "must be separated by commas, got tabs"),
        ("", "must be a table to read, got an empty file"),
        ("user,age,city\na,1,x,y,z\n", "are rows as long as the first"),
        ("user,age,city,age\na,1,x,2\n", "must be named once, got 'age' twice"),
    ],
)
@pytest.mark.parametrize("reader", [refused, whole_refused])
def test_what_a_spreadsheet_may_have_written_is_named(tmp_path, content, said, reader):
    path = tmp_path / "bank.csv"
    path.write_text(content, encoding="utf-8", newline="")
    assert said in reader(path)


@pytest.mark.parametrize("reader", [refused, whole_refused])
def test_a_table_in_utf_16_is_named(tmp_path, reader):
    path = tmp_path / "bank.csv"
    path.write_text("user,age,city\na,1,x\n", encoding="utf-16")
    assert "bank.csv must be in UTF-8, got UTF-16" in reader(path)


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    path = tmp_path / "bank.csv"
    path.write_text("\ufeffuser,age,city\r\na,1.5,x\r\n", encoding="utf-8", newline="")
    assert read(path).keys == [("a",)]
    assert [*read_whole_table(path)] == ["user", "age", "city"]


def test_columns_of_a_table_without_rows_cannot_be_chosen(write):
    path = write({"user": [], "age": []})
    with pytest.raises(FeatureError, match="must have rows, got none below its column names"):
        choose_columns(path, others=("user",))


def test_a_column_with_empty_cells_is_named_with_what_to_do(write):
    path = write({**GOOD, "age": [1.0, None, 2.0]})
    said = "got 1 row with an empty cell, text, NaN or infinity; fill them in, or leave the column"
    assert said in refused(path)


def test_missing_columns_are_named(write):
    path = write({"user": ["a"], "age": [1.0]})
    assert "got none called city" in refused(path)
    assert "got none called uid" in refused(path, key=("uid",), categories=())
    assert "got none called height, size" in refused(path, numbers=("height", "size", "age"),
                                                     categories=())  # fmt: skip


def test_a_column_named_twice_is_refused(write):
    assert "must be named once" in refused(write(GOOD), numbers=("age", "age"))
    assert "must be named once" in refused(write(GOOD), numbers=("age", "user"))


def test_a_table_without_a_key_is_refused(write):
    assert "at least one key column, got none" in refused(write(GOOD), key=())


def test_keys_that_come_twice_are_counted(write):
    path = write({**GOOD, "user": ["a", "a", "a"]})
    assert "each key of 'user' once, got 2 rows with a key of another" in refused(path)
    pairs = read(write({**GOOD, "user": ["a", "a", "b"], "arm": ["t", "m", "t"]}),
                 key=("user", "arm"))  # fmt: skip
    assert pairs.keys == [("a", "t"), ("a", "m"), ("b", "t")]


def test_a_key_that_is_empty_is_refused(write):
    text = refused(write({**GOOD, "user": ["a", None, "c"]}))
    assert "'user'" in text
    assert "no empty cell, got 1 row with one" in text


def test_a_category_that_is_empty_is_refused(write):
    text = refused(write({**GOOD, "city": ["x", None, None]}))
    assert "'city'" in text
    assert "got 2 rows" in text


@pytest.mark.parametrize("bad", [None, np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_and_counted(write, bad):
    text = refused(write({**GOOD, "age": [bad, float(AGE), bad]}))
    assert "column 'age'" in text
    assert "finite numbers, got 2 rows" in text


def test_columns_without_numbers_are_refused(write):
    text = refused(write({**GOOD, "age": ["old", "young", AGE]}))
    assert "column 'age'" in text
    assert "numbers, got " in text
    assert " rows" in text


def test_keys_and_categories_with_more_than_one_spelling_are_refused(tmp_path):
    path = tmp_path / "bank.parquet"
    pl.DataFrame({**GOOD, "user": [0.5, 1.5, float(AGE)]}).write_parquet(path)
    assert "'user' of bank.parquet must hold text or whole numbers, got Float64 in 3 rows" in (
        refused(path)
    )
    pl.DataFrame({**GOOD, "city": [True, False, True]}).write_parquet(path)
    assert "'city' of bank.parquet must hold text or whole numbers, got Boolean" in refused(path)
