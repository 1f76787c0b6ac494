"""Logs from files: three formats, joined tables, and errors that name row and column."""

import gzip
import sys

import numpy as np
import polars as pl
import pytest

from vfbandits.errors import ArmError, ContextError, RewardError, SettingError, VFBanditsError
from vfbandits.evaluate import LogFormat, read_log

ROWS = {
    "user": ["u1", "u2", "u1", "u3"],
    "arm": [10, 2, 10, 2],
    "reward": [0.0, 1.0, 0.5, 0.0],
    "probability": [0.5, 0.25, 0.5, 1.0],
    "x_age": [1.0, 2.0, 1.0, 3.0],
    "x_clicks": [0, 4, 0, 5],
    "note": ["a", "", "c", "d"],
}


def write(folder, ending=".csv", *, name="log", **changes):
    frame = pl.DataFrame({**ROWS, **changes}, strict=False)
    return write_frame(frame, folder / f"{name}{ending}")


def write_frame(frame, path):
    if path.suffix == ".parquet":
        frame.write_parquet(path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(frame.write_csv().encode()))
    else:
        frame.write_csv(path)
    return path


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".parquet"])
def test_every_format_gives_the_same_log(tmp_path, ending):
    log = read_log(write(tmp_path, ending))
    assert log.arms == (2, 10)
    assert log.chosen.tolist() == [1, 0, 1, 0]
    assert log.contexts.tolist() == [[1, 0], [2, 4], [1, 0], [3, 5]]
    assert (log.rewards.tolist(), log.probabilities.tolist()) == (
        ROWS["reward"],
        ROWS["probability"],
    )
    assert log.owners == ("active", "active")


def test_arms_may_be_text_and_columns_may_have_any_name(tmp_path):
    path = write(tmp_path, arm=["tea", "milk", "tea", "milk"])
    columns = LogFormat(reward="x_clicks", context=("x_age",))
    log = read_log(path, columns=columns, arms=["milk", "tea", "water"])
    assert (log.arms, log.chosen.tolist()) == (("milk", "tea", "water"), [1, 0, 1, 0])
    assert (log.dim, log.rewards.tolist()) == (1, [0, 4, 0, 5])


@pytest.fixture
def bank(tmp_path):
    frame = pl.DataFrame({"user": ["u3", "u1", "u2"], "income": [30, 10, 20], "debt": [3, 1, 2]})
    return write_frame(frame, tmp_path / "bank.parquet")


def test_tables_of_participants_are_joined_by_the_key_in_the_logs_order(tmp_path, bank):
    columns = LogFormat(active="shop", key="user", tables={"bank": bank})
    log = read_log(write(tmp_path), columns=columns)
    assert log.owners == ("shop", "shop", "bank", "bank")
    assert log.widths == {"shop": 2, "bank": 2}
    assert log.contexts[:, 2:].tolist() == [[10, 1], [20, 2], [10, 1], [30, 3]]


def test_arm_features_come_from_a_table_that_also_lists_the_arms(tmp_path):
    items = write_frame(
        pl.DataFrame({"arm": [2, 7, 10], "price": [1.0, 2.0, 3.0]}), tmp_path / "items.csv"
    )
    log = read_log(write(tmp_path), columns=LogFormat(arm_table=items), layout="outer")
    assert (log.arms, log.arm_features.tolist()) == ((2, 7, 10), [[1.0], [2.0], [3.0]])
    assert log.chosen.tolist() == [2, 0, 2, 0]


def test_columns_named_feature_at_arm_make_a_row_per_arm(tmp_path):
    wide = {"p_far@2": [1, 2, 3, 4], "p_far@10": [5, 6, 7, 8], "p_old@10": 0, "p_old@2": [9] * 4}
    path = write_frame(pl.DataFrame({**ROWS, **wide}), tmp_path / "log.csv")
    log = read_log(path, columns=LogFormat(context="p_"), layout="per_arm")
    assert (log.arms, log.contexts.shape) == ((2, 10), (4, 2, 2))
    assert log.contexts[1].tolist() == [[2, 9], [6, 0]]
    assert log.owners == ("active", "active")


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"reward": [0, 1, "much", 0]}, RewardError, "'reward' of log.csv .* got 'much' in row 3"),
        ({"reward": [0, None, 1, 0]}, RewardError, "finite numbers, got None in row 2"),
        ({"reward": [0, 1, 2, float("inf")]}, RewardError, "got 'inf' in row 4"),
        ({"probability": [1, 1, 1, 0]}, SettingError, r"in \(0, 1\], got 0.0 in row 4"),
        ({"probability": [1, 1.5, 1, 1]}, SettingError, r"in \(0, 1\], got 1.5 in row 2"),
        ({"probability": [1, "?", 1, 1]}, SettingError, r"finite numbers, got '\?' in row 2"),
        ({"x_age": [1, 2, "", 4]}, ContextError, "'x_age' of 'active' .* row 3 of log.csv"),
        ({"x_age": [1, float("nan"), 3, 4]}, ContextError, "row 2 of log.csv"),
        ({"arm": [2, None, 2, 2]}, ArmError, "known arms, 1 of them, got None in row 2"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        read_log(write(tmp_path, **changes))


def test_an_arm_that_is_not_in_the_list_is_named(tmp_path):
    with pytest.raises(ArmError, match="1 of them, got '10' in row 1"):
        read_log(write(tmp_path), arms=[2])


def test_an_error_holds_no_feature(tmp_path):
    with pytest.raises(ContextError) as caught:
        read_log(write(tmp_path, x_age=[1, "secret", 3, 4]))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (LogFormat(arm="item"), "must have the columns item, .* got none called item"),
        (LogFormat(context="z_"), "begin with 'z_', got user, arm"),
        (LogFormat(context=("x_age", "x_no")), "got none called x_no"),
        (LogFormat(key="id"), "got none called id"),
    ],
)
def test_a_missing_column_is_named(tmp_path, columns, message):
    with pytest.raises(SettingError, match=message):
        read_log(write(tmp_path), columns=columns)


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (["u1", "u2"], "bank.csv of 'bank' must have a row for every key .* none for row 4"),
        (["u1", "u2", "u3", "u2"], "every key once, got that of row 2 again"),
    ],
)
def test_a_table_must_have_each_key_once(tmp_path, users, message):
    frame = pl.DataFrame({"user": users, "income": [1.0] * len(users)})
    bank = write_frame(frame, tmp_path / "bank.csv")
    with pytest.raises(ContextError, match=message):
        read_log(write(tmp_path), columns=LogFormat(key="user", tables={"bank": bank}))


def test_a_gap_in_a_table_is_not_taken_for_a_missing_row(tmp_path):
    frame = pl.DataFrame({"user": ["u1", "u2", "u3"], "income": [1.0, None, 3.0]})
    bank = write_frame(frame, tmp_path / "bank.parquet")
    with pytest.raises(ContextError, match=r"'income' of 'bank' .* row 2 of log\.csv"):
        read_log(write(tmp_path), columns=LogFormat(key="user", tables={"bank": bank}))


@pytest.mark.parametrize(
    ("wide", "message"),
    [
        ({"p_a@2": 1.0, "p_a@10": 1.0, "p_b@2": 1.0}, "got none called 'p_b@10'"),
        ({"p_a": 1.0}, "must be named feature@arm, got 'p_a'"),
    ],
)
def test_a_row_per_arm_must_be_whole(tmp_path, wide, message):
    frame = pl.DataFrame(ROWS).with_columns(**{n: pl.lit(v) for n, v in wide.items()})
    path = write_frame(frame, tmp_path / "log.csv")
    with pytest.raises(ContextError, match=message):
        read_log(path, columns=LogFormat(context="p_"), layout="per_arm")


def test_settings_of_a_format_that_cannot_work_are_refused(tmp_path):
    with pytest.raises(SettingError, match="feature tables need a key"):
        LogFormat(tables={"bank": tmp_path})
    with pytest.raises(SettingError, match="got 'active' twice"):
        LogFormat(key="user", tables={"active": tmp_path})


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("log.txt", b"", r"must end in \.csv, \.csv\.gz, \.parquet, got 'log.txt'"),
        ("log.csv", None, "must be a table to read, got: "),
        ("journal.db", b"", "got 'journal.db'; vfb journal export writes one"),
        ("log.csv", b"", "must be a table to read, got: "),
        ("log.parquet", b"no parquet", "must be a table to read, got: "),
        ("log.csv", b"arm,reward,probability,x_a\n", "at least one round, got none"),
        ("log.csv", b"arm,reward,probability,x_a\n1,2,1,1,9\n", "must be a table to read, got"),
    ],
    ids=["ending", "absent", "journal", "empty", "damaged", "header_alone", "ragged"],
)
def test_a_file_that_is_no_log_is_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(VFBanditsError, match=message):
        read_log(tmp_path / name)


def test_without_polars_the_error_names_the_extra(tmp_path, monkeypatch):
    path = write(tmp_path)
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(VFBanditsError, match=r"pip install 'vfbandits\[experiments\]'"):
        read_log(path)


def test_a_long_log_keeps_its_order_through_a_join(tmp_path):
    n = 30_000
    rng = np.random.default_rng(0)
    users = rng.integers(1000, size=n)
    log = pl.DataFrame(
        {"user": users, "arm": users % 3, "reward": 1.0, "probability": 0.5, "x_a": users}
    )
    table = pl.DataFrame({"user": rng.permutation(1000)}).with_columns(twice=pl.col("user") * 2)
    bank = write_frame(table, tmp_path / "bank.csv.gz")
    columns = LogFormat(key="user", tables={"bank": bank})
    read = read_log(write_frame(log, tmp_path / "log.parquet"), columns=columns)
    np.testing.assert_array_equal(read.contexts, np.column_stack([users, 2 * users]))
    np.testing.assert_array_equal(read.chosen, users % 3)
