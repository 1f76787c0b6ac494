"""Tables as blocks of a federation: columns, layouts, logs, and one error for each mistake."""

import gzip

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from three_tables import ARMS, write_tables

from vfbandits.demo.tables import Question, name_sources, read_owners
from vfbandits.errors import VFBanditsError

LOG = Question(reward="clicked")


@pytest.fixture
def tables(tmp_path):
    return [str(path) for path in write_tables(tmp_path / "data")]


def read(tables, question, tmp_path):
    return read_owners(name_sources(tables), question, tmp_path / "out")


def write(path, **columns):
    pl.DataFrame(columns).write_csv(path)
    return str(path)


def pairs(path, **columns):
    """A table of every user and arm."""
    users = [f"u{n}" for n in range(6) for _ in ARMS]
    rng = np.random.default_rng(len(path.name))
    return write(path, user=users, arm=[*ARMS] * 6, x=rng.normal(size=18), **columns)


def test_tables_of_users_are_disjoint_blocks_with_all_columns_that_can_be_features(
    tables, tmp_path
):
    owners = read(tables, LOG, tmp_path)
    assert owners.layout == "disjoint"
    shop, bank, news = owners.owners
    assert shop.scaling.columns == ("visits", "basket", "device")
    assert (bank.scaling.columns, bank.rows) == (("age", "income", "balance"), 180)
    assert news.scaling.columns == ("sport", "politics", "minutes")
    assert [owner.shared for owner in owners.owners] == [200, 180, 200]
    assert owners.bound == 64.0
    assert owners.example["arms"] == sorted(ARMS)
    assert owners.example["user"] in bank.users


def test_rows_of_the_log_keep_their_order_and_their_own_features(tables, tmp_path):
    owners = read(tables, LOG, tmp_path)
    frame = pl.read_csv(tables[0])
    assert owners.log.users == tuple(frame["user"])
    assert owners.log.arms == tuple(frame["arm"])
    assert_allclose(owners.log.rewards, frame["clicked"])
    basket = (frame["basket"] - frame["basket"].mean()) / frame["basket"].std(ddof=0)
    assert_allclose(owners.log.own[:, 1] * np.sqrt(3), basket)


def test_of_a_log_the_owner_keeps_the_last_row_of_each_user_and_neither_arm_nor_reward(tmp_path):
    log = write(tmp_path / "shop.csv", user=["a", "b", "a"], arm=["x", "y", "y"],
                clicked=[1, 0, 0], visits=[1.0, 2.0, 3.0])  # fmt: skip
    owners = read([log], LOG, tmp_path)
    kept = pl.read_csv(tmp_path / "out" / "shop" / "shop.csv")
    assert kept.to_dict(as_series=False) == {"user": ["b", "a"], "visits": [2.0, 3.0]}
    assert_allclose(owners.log.own.ravel(), [-3.0, -1.0, 1.0])  # of each row, not the last


def test_tables_of_users_and_arms_are_per_arm_blocks(tmp_path):
    tables = [pairs(tmp_path / "shop.csv"), pairs(tmp_path / "banks.csv")]
    owners = read(tables, Question(), tmp_path)
    assert owners.layout == "per_arm"
    assert [owner.key for owner in owners.owners] == [("user", "arm")] * 2
    assert owners.owners[1].rows == 18
    assert owners.example == {"user": "u0", "arms": sorted(ARMS)}


def test_keys_keep_their_leading_zeros_and_gzipped_files_are_read(tmp_path):
    write(tmp_path / "shop.csv", user=["007", "008"], x=[1.0, 2.0])
    packed = tmp_path / "bank.csv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "shop.csv").read_bytes()))
    owners = read([str(tmp_path / "shop.csv"), str(packed)], Question(), tmp_path)
    assert [owner.name for owner in owners.owners] == ["shop", "bank"]
    assert owners.owners[0].users == {"007", "008"}


def test_columns_that_cannot_be_features_are_left_out_with_a_reason(tmp_path):
    n = 60
    table = write(tmp_path / "shop.csv", user=[f"u{i}" for i in range(n)], x=np.arange(n),
                  mail=[f"{i}@example.org" for i in range(n)], land=["ch"] * n)  # fmt: skip
    (owner,) = read([table], Question(), tmp_path).owners
    assert owner.scaling.columns == ("x",)
    assert owner.left_out == {
        "mail": "text with 60 different values",
        "land": "the same in every row",
    }


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet"])
def test_true_and_false_are_features_in_every_format(tmp_path, ending):
    frame = pl.DataFrame({"user": ["a", "b", "c"], "old": [True, False, True], "x": [1, 2, 4]})
    path = tmp_path / f"shop.{ending}"
    if ending == "parquet":
        frame.write_parquet(path)
    else:
        text = frame.write_csv().encode()
        path.write_bytes(gzip.compress(text) if ending == "csv.gz" else text)
    (owner,) = read([str(path)], Question(), tmp_path).owners
    assert set(owner.scaling.columns) == {"old", "x"}


def test_columns_that_masks_do_not_hide_are_found_in_passive_tables_only(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"user": [f"u{i}" for i in range(300)], "pay": rng.normal(size=300),
               "member": rng.integers(2, size=300)}  # fmt: skip
    tables = [write(tmp_path / name, **columns) for name in ("shop.csv", "bank.csv")]
    shop, bank = read(tables, Question(), tmp_path).owners
    assert (shop.discrete, bank.discrete) == ((), ("member",))


def test_the_bound_of_masked_values_is_above_the_longest_row(tmp_path):
    values = np.zeros(20_000)
    values[0] = 1e9  # its standard score is the root of the number of rows
    table = write(tmp_path / "shop.csv", user=[f"u{i}" for i in range(len(values))], pay=values)
    owners = read([table], Question(), tmp_path)
    assert owners.owners[0].reach == pytest.approx(141.4, abs=0.1)
    assert owners.bound == 256.0


def mistakes(folder):
    """Tables and a question, each with the one thing that the error says."""
    good = write(folder / "good.csv", user=["a", "b"], x=[1.0, 2.0])
    log = write(folder / "log.csv", user=["a", "b"], arm=["s", "t"], clicked=[0, 1], x=[1.0, 2.0])
    (folder / "text.txt").write_text("user,x\na,1\n")
    (folder / "binary.csv").write_bytes(b"\x00\xff\xfe\x89PNG\r\n\x1a\n" * 50)
    (folder / "broken.parquet").write_bytes(b"PAR1 no table")
    (folder / "organiser.csv").write_text("user,x\na,1\nb,2\n")
    return {
        "no file": ([good, str(folder / "no.csv")], Question(), "must exist, got none at"),
        "ending": ([str(folder / "text.txt")], Question(), "a feature file ends in .csv"),
        "binary": ([str(folder / "binary.csv")], Question(), "binary.csv must be a table to read"),
        "parquet": ([str(folder / "broken.parquet")], Question(), "must be a table to read, got"),
        "key": ([good], Question(key="usr"), "--key must name a column of good.csv, got 'usr'; did "
                "you mean 'user'?"),
        "reward": ([log], Question(reward="click"), "--reward must name a column of log.csv, got "
                   "'click'; did you mean 'clicked'?"),
        "arm": ([good], Question(reward="x"), "--arm, the arm that was shown, must name a column"),
        "exclude": ([good], Question(exclude=("income",)), "--exclude must name a column of one"),
        "same": ([log], Question(arm="clicked", reward="clicked"), "must be different columns"),
        "twice": ([good, good], Question(), "different names, got 'good' twice"),
        "reserved": ([str(folder / "organiser.csv")], Question(), "'organiser' is a reserved name"),
        "name": ([f"a b={good}"], Question(), "letters, digits"),
        "duplicates": ([write(folder / "d.csv", user=["a", "a"], x=[1, 2])], Question(),
                       "d.csv must have each key of 'user' once, got 1 row"),
        "empty cell": ([write(folder / "e.csv", user=["a", "b", "c"], x=[1, None, 2])], Question(),
                       "column 'x' of e.csv must hold finite numbers, got 1 row"),
        "no user": ([write(folder / "n.csv", user=["a", None], x=[1, 2])], Question(),
                    "column 'user' of n.csv must have no empty cell, got 1 row"),
        "others": ([good, write(folder / "o.csv", user=["A", "B"], x=[1, 2])], Question(),
                   "o.csv must have users of the first table in column 'user', got 2 others"),
        "no feature": ([write(folder / "f.csv", user=["a", "b"], x=[1, 1])], Question(),
                       "f.csv must have a column that can be a feature, got none (x: the same"),
        "shown": ([log, write(folder / "s.csv", user=["a", "b"], x=[1, 2])], Question(),
                  "layout per_arm needs the column 'arm' in every table, got none in s.csv"),
        "one arm": ([write(folder / "one.csv", user=["a", "b"], arm=["s", "s"], clicked=[0, 1],
                           x=[1, 2])], LOG, "must have two arms at least, got 1"),
        "no reward": ([write(folder / "r.csv", user=["a", "b"], arm=["s", "t"], clicked=[0, None],
                             x=[1, 2])], LOG, "column 'clicked' of r.csv must hold finite numbers"),
    }  # fmt: skip


@pytest.mark.parametrize("case", [
    "no file", "ending", "binary", "parquet", "key", "reward", "arm", "exclude", "same", "twice",
    "reserved", "name", "duplicates", "empty cell", "no user", "others", "no feature", "shown",
    "one arm", "no reward",
])  # fmt: skip
def test_a_mistake_is_one_error_that_names_it(case, tmp_path):
    tables, question, says = mistakes(tmp_path)[case]
    with pytest.raises(VFBanditsError) as error:
        read(tables, question, tmp_path)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
