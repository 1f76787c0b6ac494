"""Keys of encrypted logs: for their owner only, never shown, never overwritten."""

import os
import stat

import pytest

from vfbandits.errors import JournalError
from vfbandits.journal.crypto import JournalKey, key_from_environment, read_key, write_key

SECRET = bytes(range(100, 132))


def test_a_key_comes_back_from_its_file_which_is_for_its_owner_only(tmp_path):
    path = tmp_path / "log.key"
    key = JournalKey.generate()
    write_key(path, key)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key(path).secret == key.secret
    assert JournalKey.generate().secret != key.secret


def test_a_file_that_is_there_is_left_alone(tmp_path):
    path = tmp_path / "log.key"
    path.write_text("mine")
    with pytest.raises(JournalError, match=r"a key needs a new file, got .*: File exists"):
        write_key(path, JournalKey(SECRET))
    assert path.read_text() == "mine"
    with pytest.raises(JournalError, match="No such file"):
        write_key(tmp_path / "nowhere" / "log.key", JournalKey(SECRET))


@pytest.mark.parametrize(
    "content", [SECRET, SECRET.hex().encode(), b"  " + SECRET.hex().upper().encode() + b"\r\n"]
)
def test_a_key_may_be_bytes_or_digits(tmp_path, content):
    path = tmp_path / "log.key"
    path.write_bytes(content)
    path.chmod(0o400)
    assert read_key(path).secret == SECRET


@pytest.mark.parametrize(
    "content", [b"", b"word", SECRET[:31], SECRET.hex().encode()[:-1], b"\xff" * 64, b"zz" * 32]
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path, content):
    path = tmp_path / "log.key"
    path.write_bytes(content)
    path.chmod(0o600)
    wanted = f"must be 64 hexadecimal digits, got {len(content)} bytes that are not, in"
    with pytest.raises(JournalError, match=wanted) as caught:
        read_key(path)
    assert not content or content.decode("latin-1") not in str(caught.value)
    assert caught.value.__context__ is None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_key_that_others_could_read_is_refused(tmp_path, mode):
    path = tmp_path / "log.key"
    write_key(path, JournalKey(SECRET))
    path.chmod(mode)
    with pytest.raises(JournalError, match=f"for its owner only, .* mode 0{mode:o}: chmod 600 it"):
        read_key(path)


def test_a_key_that_is_not_there_is_a_journal_error(tmp_path):
    with pytest.raises(JournalError, match=r"wanted the key of a journal, got .*No such file"):
        read_key(tmp_path / "log.key")


def test_a_key_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("LOG_KEY", SECRET.hex())
    assert key_from_environment("LOG_KEY").secret == SECRET
    monkeypatch.setenv("LOG_KEY", "hunter2")
    with pytest.raises(JournalError, match="got 7 bytes that are not, in LOG_KEY") as caught:
        key_from_environment("LOG_KEY")
    assert "hunter2" not in str(caught.value)
    monkeypatch.delenv("LOG_KEY")
    with pytest.raises(JournalError, match="in the environment as LOG_KEY, got none"):
        key_from_environment("LOG_KEY")


@pytest.mark.parametrize("secret", [b"", bytes(31), bytes(33), "a" * 32, None])
def test_a_key_has_32_bytes(secret):
    with pytest.raises(JournalError, match="must be 32 bytes"):
        JournalKey(secret)


def test_a_key_shows_nothing_and_its_check_is_of_one_log():
    key, one, other = JournalKey(SECRET), os.urandom(16), os.urandom(16)
    assert repr(key) == "JournalKey()"
    assert key.check(one) == JournalKey(SECRET).check(one) != key.check(other)
    assert SECRET not in key.check(one)
