"""Redis: one pipeline, clear refusals, and a server that dies, freezes and comes back."""

import time

import numpy as np
import pytest
import servers
from feature_tables import write_hashes
from numpy.testing import assert_array_equal
from redis import Redis
from redis.connection import Connection

from vfbandits.errors import FeatureError
from vfbandits.features.redis_hash import RedisStore
from vfbandits.features.scaling import Scaling

SCALING = Scaling("none", ("a", "b"), np.zeros(2), np.ones(2), {"city": ("Bern", "Rome")})
ROWS = {("u1",): (1.5, 2.0, "Rome"), ("u2",): (3.0, 4.0, "Bern")}
WANTED = [[1.5, 2.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]
ASKED = [("u1",), ("u9",)]


@pytest.fixture
def open_store():
    """Opens stores, and closes them after the test."""
    opened = []

    def open_store(server):
        url = getattr(server, "url", server)
        opened.append(RedisStore(url, prefix="bank", scaling=SCALING, timeout_s=1.5))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


@pytest.fixture(scope="module")
def mortal():
    """A server of this module alone, which may be killed."""
    server = servers.Redis()
    yield server
    server.discard()


@pytest.fixture
def server(mortal):
    write_hashes(mortal.url, "bank", ROWS, columns=SCALING.columns)
    return mortal


def refused(store, keys=ASKED):
    start = time.monotonic()
    with pytest.raises(FeatureError) as caught:
        store.rows(keys)
    return str(caught.value), time.monotonic() - start


def test_a_batch_is_one_message_to_the_server(server, monkeypatch, open_store):
    store = open_store(server)
    store.check()
    sent = []
    send = Connection.send_packed_command

    def spy(connection, command, **more):
        sent.append(command)
        return send(connection, command, **more)

    monkeypatch.setattr(Connection, "send_packed_command", spy)
    store.rows([("u1",), ("u2",), ("u1",), ("u9",)])
    assert len(sent) == 1
    assert b"".join(sent[0]).count(b"HMGET") == 3  # a key that comes twice is asked for once


def test_a_killed_server_is_one_error_and_a_restarted_one_answers_again(server, open_store):
    store = open_store(server)
    assert_array_equal(store.rows(ASKED).values, WANTED)
    server.kill()
    try:
        for _ in range(3):
            message, seconds = refused(store)
            assert "must answer within 1.5 s, got ConnectionError" in message
            assert server.password not in message
            assert seconds < 15.0
        with pytest.raises(FeatureError, match="got ConnectionError"):
            store.check()
    finally:
        server.start()
    write_hashes(server.url, "bank", ROWS, columns=SCALING.columns)
    assert_array_equal(store.rows(ASKED).values, WANTED)


def test_a_restart_between_two_lookups_is_not_noticed(server, open_store):
    store = open_store(server)
    store.rows(ASKED)
    server.kill()
    server.start()
    write_hashes(server.url, "bank", ROWS, columns=SCALING.columns)
    assert_array_equal(store.rows(ASKED).values, WANTED)


def test_a_frozen_server_is_an_error_in_time_and_its_late_answers_are_never_taken(
    server, open_store
):
    store = open_store(server)
    store.rows(ASKED)
    server.freeze()
    try:
        for _ in range(2):
            message, seconds = refused(store, [("u2",)])
            assert "got TimeoutError" in message
            assert 1.4 < seconds < 15.0
    finally:
        server.thaw()
    assert_array_equal(store.rows(ASKED).values, WANTED)


def test_a_wrong_password_is_refused_without_telling_it(server, open_store):
    wrong = server.url.replace(server.password, "not-the-password")
    store = open_store(wrong)
    message, _ = refused(store)
    assert "AuthenticationError" in message
    assert "not-the-password" not in f"{message} {store.describe()} {store!r}"


@pytest.mark.parametrize(
    "cells",
    [
        {"a": "1", "city": "Rome"},
        {"a": "1", "b": "old", "city": "Rome"},
        {"a": "1", "b": "", "city": "Rome"},
        {"a": "1", "b": "nan", "city": "Rome"},
        {"a": "1", "b": "-inf", "city": "Rome"},
        {"a": "1", "b": "1_0", "city": "Rome"},
    ],
)
def test_a_number_that_is_none_is_refused_by_column_and_count(server, cells, open_store):
    with Redis.from_url(server.url) as client:
        client.delete("bank:bad")
        client.hset("bank:bad", mapping=cells)
    message, _ = refused(open_store(server), [("u1",), ("bad",)])
    assert message == (
        "column 'b' of the Redis store must hold finite numbers, "
        "got 1 of 2 rows of this lookup that do not"
    )


@pytest.mark.parametrize("city", [None, b"\xff"])
def test_a_category_that_is_no_text_is_refused(server, city, open_store):
    with Redis.from_url(server.url) as client:
        client.delete("bank:bad")
        client.hset("bank:bad", mapping={"a": "1", "b": "2"} | ({"city": city} if city else {}))
    message, _ = refused(open_store(server), [("bad",)])
    assert "column 'city' of the Redis store must hold text or whole numbers" in message


def test_a_key_that_is_no_hash_is_refused(server, open_store):
    with Redis.from_url(server.url) as client:
        client.set("bank:text", "1,2")
    message, _ = refused(open_store(server), [("u1",), ("text",)])
    assert message.endswith("got ResponseError")


def test_a_url_of_another_kind_is_refused_without_telling_it():
    with pytest.raises(FeatureError, match="must be like redis://") as caught:
        RedisStore("http://me:hidden@host", prefix="p", scaling=SCALING)
    assert "hidden" not in str(caught.value)
    assert caught.value.__cause__ is None
