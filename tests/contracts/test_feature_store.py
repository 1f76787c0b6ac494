"""What every feature store must do: files, a database in a file, PostgreSQL and Redis."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import servers
import sqlalchemy as sa
from feature_tables import KINDS, fill, plain, write_hashes
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from worlds import MORE

from vfbandits.errors import FeatureError
from vfbandits.features import redis_hash, sql
from vfbandits.features.scaling import Scaling

SCALING = Scaling(
    "standard",
    ("age", "in come"),
    np.array([40.0, 2.0]),
    np.array([10.0, 0.3]),
    {"city": ("Bern", "Rome", "Zürich")},
)
USERS = {
    ("u1",): (41.5, 0.1, "Rome"),
    ("u2",): (-3.0, 1e-300, "Zürich"),
    ("u 3",): (40.0, 2.0, "Oslo"),  # the mean, and a category that was never fitted
    ("007",): (1e17, -7.25, "Bern"),
    ("a:b%c",): (0.1 + 0.2, 1 / 3, "Bern"),
    ("é\n'\"; --",): (5.0, 6.0, "Rome"),
}
PAIRS = {
    ("u1", "tea"): (1.0, 2.0, "Rome"),
    ("u1", "milk"): (3.0, 4.0, "Bern"),
    ("u2", "tea"): (5.0, 6.0, "Oslo"),
    ("u1:tea", "x"): (7.0, 8.0, "Rome"),
    ("u1", "tea:x"): (9.0, 10.0, "Rome"),
    ("u1%3Atea", "x"): (11.0, 12.0, "Rome"),
}
TABLES = {("user",): USERS, ("user", "arm"): PAIRS}


@pytest.fixture(scope="module", params=KINDS)
def stores(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("features")
    opened = {
        key: fill(request.param, folder, rows, key=key, scaling=SCALING)
        for key, rows in TABLES.items()
    }
    yield opened
    for store in opened.values():
        store.close()
        store.close()


def assert_answers(store, rows, keys):
    answer = store.rows(keys)
    values, missing = plain(rows, keys, SCALING)
    assert_array_equal(answer.values, values)  # exact
    assert answer.values.shape == (len(keys), SCALING.width)
    assert answer.values.dtype == np.float64
    assert answer.values.flags.c_contiguous
    assert (answer.missing, answer.clipped) == (missing, 0)


@pytest.mark.parametrize("key", TABLES)
def test_every_row_comes_scaled_and_in_the_order_asked_for(stores, key):
    rows = TABLES[key]
    assert_answers(stores[key], rows, list(rows))
    assert_answers(stores[key], rows, list(reversed(rows)))
    for one in rows:
        assert_answers(stores[key], rows, [one])


@pytest.mark.parametrize("key", TABLES)
def test_missing_keys_are_zeros_and_counted(stores, key):
    unknown = ("nobody", "tea")[: len(key)]
    assert_answers(stores[key], TABLES[key], [unknown])
    assert_answers(stores[key], TABLES[key], [unknown, next(iter(TABLES[key])), unknown])


def test_no_keys_give_no_rows(stores):
    assert_answers(stores["user",], USERS, [])


texts = st.one_of(
    st.sampled_from(sorted({part for key in (*USERS, *PAIRS) for part in key})),
    st.sampled_from(["", "7", "U1", "u1 ", "\0", "u1\0", "\ud800", "%", "*", "1_0", "9" * 30]),
    st.text(max_size=5),
)


@given(data=st.data())
@settings(max_examples=25 * MORE)
def test_any_keys_in_any_order_with_repeats_are_what_a_dictionary_gives(stores, data):
    key = data.draw(st.sampled_from(list(TABLES)))
    some = st.one_of(st.sampled_from(list(TABLES[key])), st.tuples(*[texts] * len(key)))
    keys = data.draw(st.lists(some, max_size=30))
    assert_answers(stores[key], TABLES[key], keys)


def test_a_large_batch_with_unknown_keys_is_answered_whole(stores):
    keys = [(f"x{i}",) for i in range(1_300)]
    keys[700:700] = list(USERS)
    assert_answers(stores["user",], USERS, keys)
    pairs = [(f"x{i}", f"arm{i}") for i in range(1_300)]
    pairs[700:700] = list(PAIRS)
    assert_answers(stores["user", "arm"], PAIRS, pairs)


def test_keys_of_another_shape_are_refused(stores):
    with pytest.raises(FeatureError, match=r"must have 1 part, got 2"):
        stores["user",].rows([("u1",), ("u1", "tea")])
    with pytest.raises(FeatureError, match=r"must have 2 parts, got 1"):
        stores["user", "arm"].rows([("u1",)])


def test_an_answer_is_the_callers_own(stores):
    store = stores["user",]
    store.rows([("u1",)]).values[:] = 99.0
    assert_answers(store, USERS, [("u1",), ("nobody",)])


@pytest.mark.parametrize("key", TABLES)
def test_a_store_gives_every_user_as_a_lookup_finds_it(stores, key):
    assert {*stores[key].users()} == {one[0] for one in TABLES[key]}


def test_threads_get_their_own_answers(stores):
    store = stores["user",]
    keys = [[key, ("nobody",), key] for key in USERS] * 8
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(store.rows, keys))
    for asked, answer in zip(keys, answers, strict=True):
        assert_array_equal(answer.values, plain(USERS, asked, SCALING)[0])


def test_a_store_tells_its_columns_and_never_a_value(stores):
    store = stores["user",]
    store.check()
    assert store.columns == ("age", "in come", "city")
    assert store.width == 5
    facts = store.describe()
    assert facts["columns"] == ["age", "in come", "city"]
    assert facts["kind"] in ("file", "sql", "redis")
    told = f"{facts} {store!r} {store.rows([('u1',)])!r}"
    for secret in ("41.5", "Rome", "0.15", "://"):
        assert secret not in told


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_users_are_read_a_page_at_a_time(kind, tmp_path, monkeypatch):
    monkeypatch.setattr(sql, "PAGE", 7)
    monkeypatch.setattr(redis_hash, "PAGE", 7)
    rows = {(f"user-{k}", arm): (1.0, 2.0, "Rome") for k in range(30) for arm in ("a", "b")}
    store = fill(kind, tmp_path, rows, key=("user", "arm"), scaling=SCALING)
    assert {*store.users()} == {f"user-{k}" for k in range(30)}
    store.close()


def test_users_that_are_numbers_or_uuids_are_spelt_as_lookups_want_them(tmp_path):
    url = f"sqlite:///{tmp_path / 'numbers.db'}"
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("create table t (user integer primary key, age float)"))
        connection.execute(sa.text("insert into t values (7, 1.0), (-12, 2.0), (100, 3.0)"))
    engine.dispose()
    store = sql.SqlStore(url, table="t", key=["user"], scaling=Scaling.identity(["age"]))
    assert [*store.users()] == ["-12", "7", "100"]
    assert store.rows([(user,) for user in store.users()]).missing == 0
    store.close()


def test_other_names_in_redis_are_no_users(tmp_path):
    """Neither of another prefix, nor of a pattern that the prefix might be taken for."""
    url = servers.redis().url
    rows = {("u1",): (1.0, 2.0, "Rome")}
    for prefix in ("b*nk", "bank", "b*nk2", "[x]"):
        write_hashes(url, prefix, rows if prefix != "bank" else {("u2",): (1.0, 2.0, "Bern")},
                     columns=SCALING.columns)  # fmt: skip
    store = redis_hash.RedisStore(url, prefix="b*nk", scaling=SCALING, timeout_s=5.0)
    assert {*store.users()} == {"u1"}
    store.close()


@pytest.mark.parametrize("kind", KINDS)
def test_without_consent_a_row_is_zeros_and_told_apart_from_a_missing_one(kind, tmp_path):
    """An empty cell is no consent, and the column is no feature."""
    given = {("u1",): True, ("u2",): False, ("u 3",): None}
    rows = {key: USERS[key] for key in given}
    store = fill(kind, tmp_path, rows, key=("user",), scaling=SCALING, consents=given)
    asked = [("u2",), ("u1",), ("nobody",), ("u 3",)]
    answer = store.rows(asked)
    values, _ = plain({("u1",): USERS["u1",]}, asked, SCALING)
    assert_array_equal(answer.values, values)
    assert (list(answer.refused), list(answer.absent)) == ([0, 3], [2])
    assert (store.width, store.columns) == (SCALING.width, SCALING.columns)
    (only,) = store.sample(10)
    assert_array_equal(only, answer.values[1])
    store.close()


def test_a_sample_has_scaled_rows_of_the_table_and_no_more_than_wanted(stores):
    for key, rows in TABLES.items():
        known = {tuple(row) for row in plain(rows, list(rows), SCALING)[0]}
        for count in (1, 3, 100):
            sample = stores[key].sample(count)
            assert 0 < len(sample) <= count
            assert {tuple(row) for row in sample} <= known
        assert len(stores[key].sample(100)) == len(rows)
