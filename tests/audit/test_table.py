"""Raw columns to a block: what is used, what is left out and said, what is refused."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vfbandits.audit.table import prepare, without_constants
from vfbandits.errors import FeatureError, SettingError

N = 200


def raw(**more):
    rng = np.random.default_rng(0)
    return {"age": rng.gamma(9.0, 5.0, N), "pay": rng.standard_normal(N), **more}


def prepared(columns, **how):
    return prepare(columns, **{"rows": 1000, "seed": 0, **how})


def test_numbers_are_standardised():
    table = prepared(raw())
    assert table.columns == ("age", "pay")
    assert_allclose(table.values.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(table.values.std(axis=0), 1.0)


def test_categories_become_columns_of_zero_and_one():
    table = prepared(raw(city=["Rome", "Bern"] * (N // 2)))
    assert table.columns == ("age", "pay", "city=Bern", "city=Rome")
    assert table.values[:2, 2:].tolist() == [[0.0, 1.0], [1.0, 0.0]]


@pytest.mark.parametrize(
    ("name", "column", "reason"),
    [
        ("row", np.arange(N) + 7.0, "a different whole number in every row, like an id"),
        ("user_id", np.arange(N) * 1e6, "a different whole number in every row, like an id"),
        ("name", [f"n{i}" for i in range(N)], "text with 200 different values"),
        ("gone", np.full(N, np.nan), "no value in any row"),
        ("blank", [None] * N, "no value in any row"),
        ("rare", np.where(np.arange(N) < 150, np.nan, 1.5), "empty in 150 of 200 rows"),
        ("flat", np.full(N, 3.0), "the same value in every row"),
    ],
)
def test_a_column_without_a_use_is_left_out_and_named(name, column, reason):
    table = prepared(raw(**{name: column}))
    assert table.columns == ("age", "pay")
    assert f"column {name} was left out: {reason}" in table.notes


def test_whole_numbers_that_differ_but_are_no_ids_stay():
    table = prepared(raw(income=np.random.default_rng(1).permutation(N) * 1000.0 + 1.0))
    assert "income" in table.columns


def test_rows_with_an_empty_cell_are_left_out_and_counted():
    columns = raw()
    columns["age"][:7] = np.nan
    columns["pay"][7] = np.inf
    table = prepared(columns)
    assert len(table.values) == N - 8
    assert "8 rows with an empty cell were left out" in table.notes


def test_at_most_so_many_rows_are_drawn_by_the_seed():
    first, second = (prepared(raw(), rows=100, seed=3) for _ in range(2))
    assert first.values.shape == (100, 2)
    assert "100 of 200 rows were drawn" in first.notes
    assert np.array_equal(first.values, second.values)


def test_chosen_columns_are_used_even_if_they_look_like_ids():
    table = prepared(raw(user=np.arange(N) + 0.0), chosen=("user", "pay"))
    assert table.columns == ("user", "pay")


@pytest.mark.parametrize(
    ("columns", "chosen", "message"),
    [
        ({}, ("height",), "must have the columns height, got none called height"),
        ({"name": [f"n{i}" for i in range(N)]}, ("name",), "'name' must hold numbers or categ"),
        ({"gone": np.full(N, np.nan)}, ("gone",), "got no value in any row"),
    ],
)
def test_chosen_columns_without_a_use_are_refused(columns, chosen, message):
    with pytest.raises(FeatureError, match=message):
        prepared(raw(**columns), chosen=chosen)


def test_a_table_without_a_usable_column_is_refused():
    with pytest.raises(FeatureError, match="columns of numbers or categories, got none among 1"):
        prepared({"name": [f"n{i}" for i in range(N)]})
    with pytest.raises(FeatureError, match="got none among 0 columns"):
        prepared({})
    with pytest.raises(FeatureError, match="differs between rows, got none among 2"):
        without_constants(np.ones((N, 2)), ("a", "b"))


@pytest.mark.parametrize("n", [1, 39])
def test_too_few_rows_are_refused(n):
    columns = {name: column[:n] for name, column in raw().items()}
    with pytest.raises(SettingError, match=f"at least 40 complete rows, got {n}"):
        prepared(columns)


def test_fewer_rows_than_columns_are_refused():
    columns = {f"c{j}": np.random.default_rng(j).random(50) for j in range(60)}
    with pytest.raises(SettingError, match="60 columns needs at least 300 complete rows, got 50"):
        prepared(columns)
