"""Databases: types of keys and cells, one statement, deadlines, and a server that comes back."""

import time
import uuid

import numpy as np
import pytest
import servers
import sqlalchemy as sa
from feature_tables import write_table
from numpy.testing import assert_array_equal
from sqlalchemy.dialects import postgresql

from vfbandits.errors import FeatureError
from vfbandits.features.scaling import Scaling
from vfbandits.features.sql import SqlStore

SCALING = Scaling.identity(["a", "b"])
ROWS = {("u1",): (1.5, 2.0), ("u2",): (3.0, 4.0)}
WANTED = [[1.5, 2.0], [0.0, 0.0]]
ASKED = [("u1",), ("u9",)]


@pytest.fixture
def postgres():
    return servers.postgres()


@pytest.fixture
def engine(postgres):
    engine = sa.create_engine(postgres.url)
    yield engine
    engine.dispose()


def make(engine, *columns, rows, schema=None):
    """A table of these columns and rows; its name."""
    table = sa.Table(f"t{uuid.uuid4().hex}", sa.MetaData(schema=schema), *columns)
    with engine.begin() as connection:
        table.create(connection)
        names = [column.name for column in table.columns]
        connection.execute(table.insert(), [dict(zip(names, row, strict=True)) for row in rows])
    return table.name


@pytest.fixture
def store_of():
    """Opens stores, and closes them after the test."""
    opened = []

    def store_of(server, table, *, key=("user",), scaling=SCALING, timeout_s=10.0):
        url = getattr(server, "url", server)
        opened.append(SqlStore(url, table=table, key=key, scaling=scaling, timeout_s=timeout_s))
        return opened[-1]

    yield store_of
    for store in opened:
        store.close()


@pytest.fixture
def filled(postgres):
    name = f"t{uuid.uuid4().hex}"
    write_table(postgres.url, name, ROWS, key=("user",), scaling=SCALING)
    return name


def refused(store, keys=ASKED):
    start = time.monotonic()
    with pytest.raises(FeatureError) as caught:
        store.rows(keys)
    seconds = time.monotonic() - start
    for (user,) in ASKED:
        assert user not in f"{caught.value} {caught.value.__cause__}"
    return str(caught.value), seconds


def double(*names):
    return [sa.Column(name, sa.Double) for name in names]


def test_a_batch_is_one_statement_and_needs_no_transaction(postgres, filled, store_of):
    store = store_of(postgres, filled)
    store.check()
    statements = []

    def note(_connection, _cursor, statement, *_):
        statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        answer = store.rows([("u1",), ("u2",), ("u1",), ("u9",)])
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)
    assert answer.missing == 1
    assert len(statements) == 1
    assert "u1" not in statements[0]  # keys are parameters


def test_a_killed_server_is_one_error_and_a_restarted_one_answers_again(postgres, filled, store_of):
    store = store_of(postgres, filled)
    assert_array_equal(store.rows(ASKED).values, WANTED)
    postgres.kill()
    try:
        for _ in range(3):
            message, seconds = refused(store)
            assert "must be readable within 10 s, got OperationalError" in message
            assert postgres.password not in message
            assert seconds < 20.0
        with pytest.raises(FeatureError, match="got OperationalError"):
            store.check()
        never_connected = store_of(postgres, filled)
        refused(never_connected)
    finally:
        postgres.start()
    assert_array_equal(store.rows(ASKED).values, WANTED)
    assert_array_equal(never_connected.rows(ASKED).values, WANTED)


def test_a_restart_between_two_lookups_is_not_noticed(postgres, filled, store_of):
    store = store_of(postgres, filled)
    store.rows(ASKED)
    postgres.kill()
    postgres.start()
    assert_array_equal(store.rows(ASKED).values, WANTED)


def test_a_frozen_server_is_an_error_in_time_and_answers_when_it_is_back(
    postgres, filled, store_of
):
    store = store_of(postgres, filled, timeout_s=1.0)
    store.rows(ASKED)
    postgres.freeze()
    try:
        _, seconds = refused(store)
        assert 0.9 < seconds < 20.0
        _, seconds = refused(store)  # has to connect first: two seconds at least
        assert seconds < 20.0
    finally:
        postgres.thaw()
    assert_array_equal(store.rows(ASKED).values, WANTED)


def test_a_statement_that_takes_too_long_is_ended_by_the_server(postgres, engine, store_of):
    name = f"v{uuid.uuid4().hex}"
    with engine.begin() as connection:
        connection.exec_driver_sql(
            f"create view {name} as select 'u1'::text as user_id, 1.0::float as a, "  # noqa: S608
            "2.0::float as b from pg_sleep(20)"
        )
    message, seconds = refused(store_of(postgres, name, key=("user_id",), timeout_s=0.3))
    assert "QueryCanceled" in message or "OperationalError" in message  # whoever was first
    assert seconds < 15.0  # and not 20
    running = sa.text("select count(*) from pg_stat_activity where state = 'active' and query ~ :v")
    limit = time.monotonic() + 15.0
    with engine.connect() as connection:
        while connection.scalar(running, {"v": f"FROM {name}"}):
            assert time.monotonic() < limit
            time.sleep(0.05)


def test_keys_may_be_whole_numbers(postgres, engine, store_of):
    name = make(engine, sa.Column("user", sa.BigInteger), *double("a", "b"),
                rows=[(7, 1.0, 2.0), (-8, 3.0, 4.0)])  # fmt: skip
    keys = ["7", "-8", "007", "+7", " 7", "7.0", "", "-", "٧", "9" * 25, "9223372036854775808"]
    answer = store_of(postgres, name).rows([(key,) for key in keys])
    assert_array_equal(answer.values[:2], [[1.0, 2.0], [3.0, 4.0]])
    assert answer.missing == len(keys) - 2


def test_keys_may_be_uuids_and_names_of_an_enumeration(postgres, engine, store_of):
    user = uuid.uuid4()
    arm = postgresql.ENUM("tea", "milk", name=f"e{uuid.uuid4().hex}")
    name = make(engine, sa.Column("user", sa.Uuid), sa.Column("arm", arm), *double("a", "b"),
                rows=[(user, "tea", 1.0, 2.0)])  # fmt: skip
    keys = [(str(user), "tea"), (str(user), "milk"), (str(user), "rum"), ("ann", "tea")]
    answer = store_of(postgres, name, key=("user", "arm")).rows(keys)
    assert_array_equal(answer.values[0], [1.0, 2.0])
    assert answer.missing == 3


@pytest.mark.parametrize("kind", [sa.CHAR(5), sa.Double(), sa.Date(), sa.Boolean()])
def test_keys_with_more_than_one_spelling_are_refused(postgres, engine, kind, store_of):
    name = make(engine, sa.Column("user", kind), *double("a", "b"), rows=[(None, 1.0, 2.0)])
    message, _ = refused(store_of(postgres, name))
    assert "key column 'user' must hold text, whole numbers or UUIDs, got " in message


def test_every_kind_of_number_counts(postgres, engine, store_of):
    name = make(engine, sa.Column("user", sa.Text), sa.Column("a", sa.Numeric(10, 2)),
                sa.Column("b", sa.Boolean), rows=[("u1", 1.25, True)])  # fmt: skip
    assert_array_equal(store_of(postgres, name).rows([("u1",)]).values, [[1.25, 1.0]])


def test_categories_may_be_whole_numbers(postgres, engine, store_of):
    name = make(engine, sa.Column("user", sa.Text), sa.Column("code", sa.Integer),
                rows=[("u1", 12)])  # fmt: skip
    scaling = Scaling("none", (), np.zeros(0), np.ones(0), {"code": ("11", "12")})
    assert_array_equal(store_of(postgres, name, scaling=scaling).rows([("u1",)]).values, [[0, 1]])


@pytest.mark.parametrize("bad", [None, float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused_by_column_and_count(
    postgres, engine, bad, store_of
):
    name = make(engine, sa.Column("user", sa.Text), *double("a", "b"),
                rows=[("u1", 77.125, bad), ("u2", 77.125, bad), ("u3", 1.0, 2.0)])  # fmt: skip
    store = store_of(postgres, name)
    message, _ = refused(store, [("u1",), ("u2",), ("u3",)])
    assert message == (
        f"column 'b' of table {name!r} must hold finite numbers, "
        "got 2 of 3 rows of this lookup that do not"
    )
    assert_array_equal(store.rows([("u3",)]).values, [[1.0, 2.0]])


def test_text_where_a_number_belongs_is_refused(postgres, engine, store_of):
    name = make(engine, sa.Column("user", sa.Text), sa.Column("a", sa.Text), *double("b"),
                rows=[("u1", "12", 1.0)])  # fmt: skip
    message, _ = refused(store_of(postgres, name))
    assert "column 'a'" in message
    assert "12" not in message.replace(name, "")


def test_a_category_that_is_null_is_refused(postgres, engine, store_of):
    name = make(engine, sa.Column("user", sa.Text), sa.Column("city", sa.Text),
                rows=[("u1", None)])  # fmt: skip
    scaling = Scaling("none", (), np.zeros(0), np.ones(0), {"city": ("Rome",)})
    message, _ = refused(store_of(postgres, name, scaling=scaling))
    assert "column 'city'" in message
    assert "must hold text or whole numbers" in message


def test_a_key_that_comes_twice_is_refused(postgres, engine, store_of):
    name = make(engine, sa.Column("user", sa.Text), *double("a", "b"),
                rows=[("u1", 1.0, 2.0), ("u1", 1.0, 2.0), ("u2", 1.0, 2.0)])  # fmt: skip
    message, _ = refused(store_of(postgres, name))
    assert "must have each key once, got 1 rows too many for this lookup" in message


def test_missing_tables_and_columns_are_named(postgres, filled, store_of):
    message, _ = refused(store_of(postgres, "nowhere"))
    assert message == "the database must have the table 'nowhere', got none"
    scaling = Scaling.identity(["a", "height"])
    message, _ = refused(store_of(postgres, filled, scaling=scaling, key=("uid",)))
    assert "must have the columns uid, a, height, got none called uid, height" in message


def test_names_are_quoted_whatever_they_are(postgres, engine, store_of):
    odd = 'x"; drop table y; --'
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema("Odd Schema", if_not_exists=True))
    name = make(engine, sa.Column(odd, sa.Text), sa.Column("select", sa.Double),
                rows=[("u1", 5.0)], schema="Odd Schema")  # fmt: skip
    scaling = Scaling.identity(["select"])
    store = store_of(postgres, f"Odd Schema.{name}", key=(odd,), scaling=scaling)
    assert_array_equal(store.rows(ASKED).values, [[5.0], [0.0]])


def test_a_wrong_password_is_refused_without_telling_it(postgres, filled, store_of):
    wrong = postgres.url.replace(postgres.password, "not-the-password")
    store = store_of(wrong, filled)
    message, _ = refused(store)
    assert "got OperationalError" in message
    assert "not-the-password" not in f"{message} {store.describe()} {store!r}"


def test_a_missing_sqlite_file_is_refused_and_not_made(tmp_path, store_of):
    path = tmp_path / "no such.db"
    store = store_of(f"sqlite:///{path}", "t")
    message, _ = refused(store)
    assert "got OperationalError" in message
    assert not path.exists()


def test_a_sqlite_file_with_an_odd_name_is_read(tmp_path, store_of):
    url = f"sqlite:///{tmp_path}/o d%d#é.db"
    write_table(url, "t", ROWS, key=("user",), scaling=SCALING)
    store = store_of(url, "t")
    assert_array_equal(store.rows(ASKED).values, WANTED)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("no url:hidden", "must be like postgresql://host/name"),
        ("postgresql://me:hidden@host:port/x", "must be like postgresql://host/name"),
        ("nosuch://me:hidden@host/x", "must be like postgresql://host/name"),
        ("mysql+pymysql://me:hidden@host/x", "must be installed, got none called 'pymysql'"),
    ],
)
def test_a_url_that_no_driver_takes_is_refused_without_telling_it(url, says, store_of):
    with pytest.raises(FeatureError, match=says) as caught:
        store_of(url, "t")
    assert "hidden" not in str(caught.value)
