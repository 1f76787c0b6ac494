"""Logs by their address; a password in it is never shown."""

import traceback

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from journals import EVENTS, KEY, OnPostgres, numbers

from vfbandits.errors import JournalError
from vfbandits.journal.open import open_journal, open_reader
from vfbandits.journal.postgres.address import PostgresAddress


def test_a_file_is_named_by_a_path_or_a_url(tmp_path, monkeypatch):
    path = tmp_path / "log.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THE_LOG", f"sqlite:///{path}")
    names = [path, str(path), f"sqlite:///{path}", "sqlite:///log.db", "log.db", "env:THE_LOG"]
    for number, target in enumerate(names, start=1):
        journal = open_journal(target)
        assert journal.append(EVENTS[:1]) == number
        reader = open_reader(target)
        assert len(numbers(reader)) == number
        reader.close()
        journal.close()


def test_a_log_in_a_database_has_a_name(tmp_path, monkeypatch):
    place = OnPostgres(tmp_path, KEY)
    monkeypatch.setenv("THE_LOG", place.url)
    scheme = place.url.replace("postgresql://", "postgresql+psycopg://")
    for number, target in enumerate((place.url, "env:THE_LOG", scheme), start=1):
        journal = open_journal(target, name=place.name, key=KEY)
        assert journal.append(EVENTS[:1]) == number
        with pytest.raises(JournalError, match="one writer"):
            open_journal(target, name=place.name, key=KEY, wait_s=0.0)
        reader = open_reader(target, name=place.name, key=KEY)
        assert len(numbers(reader)) == number
        reader.close()
        journal.close()


def test_a_file_has_no_name(tmp_path):
    for opener in (open_journal, open_reader):
        with pytest.raises(JournalError, match=r"a file holds one journal, .* got the name 'shop'"):
            opener(tmp_path / "log.db", name="shop")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "target", ["", "mysql://u:hunter2@h/d", "sqlite://log.db", "sqlite:///", "postgresq://x"]
)
def test_other_addresses_are_refused_and_not_quoted(target):
    with pytest.raises(JournalError, match="must be a path, sqlite:///path or post") as caught:
        open_journal(target)
    assert "hunter2" not in str(caught.value)


def test_an_empty_variable_is_named(monkeypatch):
    with pytest.raises(JournalError, match="address of a journal in NO_SUCH_LOG, got none"):
        open_journal("env:NO_SUCH_LOG")
    monkeypatch.setenv("LOOP", "env:LOOP")
    with pytest.raises(JournalError, match="got 8 characters without a scheme"):
        open_journal("env:LOOP")


SPECIAL = st.sampled_from(list("/@:?#%&=[]\\ '\"<>|{}^~`+ä\u2603"))


@given(
    first=st.text("abc", min_size=6, max_size=9),
    special=st.lists(SPECIAL, min_size=1, max_size=4).map("".join),
    second=st.text("xyz", min_size=6, max_size=9),
)
@example(first="aaaaaa", special="@/", second="xxxxxx")
@example(first="123456", special="/", second="xxxxxx")
def test_no_error_shows_a_piece_of_a_password_however_it_is_spelt(first, special, second):
    """Nobody listens at port 1; what libpq takes for the host may be a part of the password."""
    try:
        open_reader(f"postgresql://ann:{first}{special}{second}@127.0.0.1:1/shop?connect_timeout=2")
    except JournalError as error:
        shown = "".join(traceback.format_exception(error))
        assert first not in shown
        assert second not in shown
    else:
        raise AssertionError("nobody should listen there")


def test_a_wrong_password_is_said_without_it(tmp_path):
    place = OnPostgres(tmp_path)
    user, _, rest = place.url.removeprefix("postgresql://").partition(":")
    host = rest.partition("@")[2]
    wrong = "-".join(["hunter", "2"])
    with pytest.raises(JournalError, match="password authentication failed") as caught:
        open_journal(f"postgresql://{user}:{wrong}@{host}")
    assert wrong not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("rest", ["", "/shop"])
def test_a_password_in_a_query_is_not_shown(rest):
    with pytest.raises(JournalError) as refused:
        PostgresAddress.of(f"postgresql://db{rest}?user=ann&password=aaaaaa@xxxxxx")
    assert "aaaaaa" not in str(refused.value)
    assert "xxxxxx" not in str(refused.value)


def test_a_name_with_an_at_sign_is_written_as_its_code():
    assert PostgresAddress.of("postgresql://ann:pw@db/a%40b").place == "db:5432/a@b"
    with pytest.raises(JournalError, match="special characters of the password and the name as"):
        PostgresAddress.of("postgresql://ann:pw@db/a@b")


def test_an_address_shows_its_place_only():
    address = PostgresAddress.of("postgresql://ann:hunter2@db.local:5433/shop?sslmode=require")
    assert repr(address) == "PostgresAddress(place='db.local:5433/shop')"
    assert "hunter2" in address.conninfo
    assert "sslmode=require" in address.conninfo
    assert PostgresAddress.of("postgresql:///shop").place == "localhost:5432/shop"
