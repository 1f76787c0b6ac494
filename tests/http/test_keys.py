"""API keys: only a hash at rest, one answer to every wrong one, and changes count at once."""

import json
import os
import stat
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import fork_server
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from vfbandits.errors import IdentityError, SettingError
from vfbandits.http.access.caller import RIGHTS, Caller
from vfbandits.http.access.key_file import add_key, read_history, read_keys, revoke_key
from vfbandits.http.access.keys import KeyRing, make_key
from vfbandits.http.refusals import Unauthorized, Unavailable

NOW = datetime(2031, 5, 1, tzinfo=UTC)


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.moment = 100.0

    def __call__(self):
        return self.moment


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keys"


@pytest.fixture
def clock():
    return Clock()


def add(path, name="web", **more):
    key = make_key(name, **{"scopes": ["rank"], **more})
    add_key(path, key.record)
    return key


def test_a_key_has_the_shape_that_scanners_know():
    key = make_key("web", scopes=["rank"], entropy=lambda count: b"\xff" * count)
    assert key.text == "vfb_77777777_" + "_" * 42 + "8"


def test_a_key_is_known_by_name_scopes_and_campaigns(path):
    key = add(path, "web", scopes=["rank", "reward", "rank"], campaigns=["a", "b"])
    everywhere = add(path, "ops", scopes=["admin"])
    ring = KeyRing.load(path)
    assert ring.check(key.text) == Caller(
        "web", frozenset({"rank", "reward"}), frozenset({"a", "b"})
    )
    assert ring.check(everywhere.text) == Caller("ops", frozenset({"admin"}))
    assert len(ring) == 2


def test_only_a_hash_is_at_rest_for_the_owner_only(path):
    key = add(path)
    secret = key.text.removeprefix(f"vfb_{key.record.id}_")
    written = path.read_bytes()
    assert secret.encode() not in written
    assert sha256(secret.encode()).hexdigest().encode() in written
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_is_never_shown_by_accident(path):
    key = add(path)
    ring = KeyRing.load(path)
    ring.check(key.text)
    secret = key.text[-43:]
    assert secret not in repr(key)
    assert secret not in repr(vars(ring))


def test_every_wrong_key_gets_the_same_answer(path):
    key, other = add(path), add(path, "other")
    ended = add(path, "ended", expires=datetime.now(UTC) - timedelta(seconds=1))
    ring = KeyRing.load(path)
    secret = key.text[-43:]
    wrong = [
        "",
        "vfb",
        key.text[:-1],
        key.text + "A",
        key.text + "\n",
        key.text.upper(),
        f"vfb_aaaaaaaa_{secret}",
        key.text[:-43] + "A" * 43,
        key.text[:-43] + other.text[-43:],
        ended.text,
    ]
    said = set()
    for text in wrong:
        with pytest.raises(Unauthorized) as caught:
            ring.check(text)
        said.add(str(caught.value))
    assert said == {"wanted a valid API key, got one that is not"}


def test_another_spelling_of_the_same_bytes_is_another_key(path):
    # The last of 43 characters has two bits to spare, which a decoder would drop.
    key = make_key("web", scopes=["rank"], entropy=lambda count: b"\0" * count)
    add_key(path, key.record)
    ring = KeyRing.load(path)
    ring.check(key.text)
    with pytest.raises(Unauthorized):
        ring.check(key.text[:-1] + "B")


@pytest.fixture(scope="module")
def lasting(tmp_path_factory):
    path = tmp_path_factory.mktemp("keys") / "keys"
    add(path)
    return KeyRing.load(path)


@given(text=st.text(st.characters(), max_size=80) | st.from_regex(r"vfb_[a-z2-7]{8}_.{43}"))
def test_any_text_is_refused_and_remembered_by_nobody(lasting, text):
    with pytest.raises(Unauthorized):
        lasting.check(text)
    assert len(lasting._seen) == 0  # noqa: SLF001  (else callers could fill our memory)


def test_lone_surrogates_are_refused(lasting):
    with pytest.raises(Unauthorized):
        lasting.check("\udcff")


def test_a_key_ends_at_its_moment_even_if_it_was_seen_before(path):
    now = Clock()
    now.moment = NOW.timestamp()
    key = add(path, expires=NOW + timedelta(days=1))
    ring = KeyRing(path, now=now)
    assert ring.check(key.text).name == "web"
    now.moment += 86_399
    assert ring.check(key.text).name == "web"
    now.moment += 1
    with pytest.raises(Unauthorized):
        ring.check(key.text)


def test_a_revoked_key_stops_working_within_a_second_without_a_restart(path, clock):
    key, kept = add(path), add(path, "kept")
    ring = KeyRing(path, clock=clock)
    ring.check(key.text)
    revoke_key(path, key.record.id)
    clock.moment += 1.0
    with pytest.raises(Unauthorized):
        ring.check(key.text)
    assert ring.check(kept.text).name == "kept"


def test_a_new_key_works_within_a_second_and_its_coming_is_logged(path, clock):
    add(path)
    ring = KeyRing(path, clock=clock)
    key = add(path, "new")
    clock.moment += 1.0
    with capture_logs() as lines:
        assert ring.check(key.text).name == "new"
    assert lines == [{"event": "keys_loaded", "count": 2, "log_level": "info"}]


def test_the_file_is_looked_at_once_a_second_at_most(path, clock):
    key = add(path)
    ring = KeyRing(path, clock=clock)
    revoke_key(path, key.record.id)
    clock.moment += 0.99
    assert ring.check(key.text).name == "web"


@pytest.mark.parametrize("harm", ["gone", "open", "damaged"])
def test_a_file_that_can_no_longer_be_read_opens_nothing_until_it_is_mended(path, clock, harm):
    key = add(path)
    whole = path.read_bytes()
    ring = KeyRing(path, clock=clock)
    ring.check(key.text)
    if harm == "gone":
        path.unlink()
    elif harm == "open":
        path.chmod(0o644)
    else:
        path.write_bytes(whole[:-5])
    clock.moment += 1.0
    with capture_logs() as lines, pytest.raises(Unavailable):
        ring.check(key.text)
    assert [line["event"] for line in lines] == ["keys_unreadable"]
    with pytest.raises(Unavailable):
        ring.check(key.text)
    path.write_bytes(whole)
    path.chmod(0o600)
    clock.moment += 1.0
    assert ring.check(key.text).name == "web"


def test_a_key_seen_before_costs_less_than_20_microseconds(path):
    key = add(path)
    ring = KeyRing.load(path)
    ring.check(key.text)
    took = []
    for _ in range(50):
        start = time.perf_counter()
        for _ in range(20):
            ring.check(key.text)
        took.append((time.perf_counter() - start) / 20)
    assert statistics.median(took) < 20e-6


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_may_use_is_refused(path, mode):
    add(path)
    path.chmod(mode)
    with pytest.raises(IdentityError, match=rf"for its owner only, got .*{mode:04o}: chmod 600"):
        KeyRing.load(path)
    with pytest.raises(IdentityError, match="for its owner only"):
        add(path)


def test_a_file_that_is_not_there_is_refused(path):
    with pytest.raises(IdentityError, match="No such file"):
        KeyRing.load(path)
    with pytest.raises(IdentityError, match="No such file"):
        revoke_key(path, "aaaaaaaa")
    assert not path.exists()


def test_a_folder_that_is_not_there_is_refused(path):
    with pytest.raises(IdentityError, match="wanted a folder"):
        add(path / "deeper" / "keys")


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b"not json",
        b"\xff",
        b'"\xff"',
        b'{"id": "short"}',
        b'{"id":"aaaaaaaa","name":"web","scopes":["rank"],"sha256":"%s",'
        b'"created":"2031-05-01T00:00:00","expires":null}' % (b"0" * 64),  # no time zone
        b'{"id":"aaaaaaaa","name":"web","scopes":["all"],"sha256":"%s",'
        b'"created":"2031-05-01T00:00:00Z"}' % (b"0" * 64),
        b'{"id":"aaaaaaaa","name":"web","scopes":["rank"],"sha256":"%s",'
        b'"created":"2031-05-01T00:00:00Z","expire":"2031-05-01T00:00:00Z"}' % (b"0" * 64),
    ],
)
def test_a_line_that_is_no_key_is_refused_by_its_number_and_nothing_is_changed(path, line):
    key = add(path)
    path.write_bytes(path.read_bytes() + b"\n" + line + b"\n")
    before = path.read_bytes()
    for attempt in (
        lambda: KeyRing.load(path),
        lambda: add(path),
        lambda: revoke_key(path, key.record.id),
    ):
        with pytest.raises(IdentityError, match="line 4"):
            attempt()
    assert path.read_bytes() == before


def test_an_id_is_there_once(path):
    key = add(path)
    with pytest.raises(IdentityError, match="wanted a new id"):
        add_key(path, key.record)
    head, line = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + 2 * line)
    with pytest.raises(IdentityError, match="twice"):
        KeyRing.load(path)


def test_only_a_known_id_can_be_revoked(path):
    key = add(path)
    with pytest.raises(IdentityError, match="wanted the id of a key"):
        revoke_key(path, "aaaaaaaa")
    assert read_keys(path) == (key.record,)
    revoke_key(path, key.record.id, by="ops@shop")
    assert read_keys(path) == ()
    with pytest.raises(IdentityError, match="wanted the id of a key"):
        revoke_key(path, key.record.id)
    (record,) = read_history(path)
    assert (record.id, record.revoked_by, record.revoked.tzinfo) == (key.record.id, "ops@shop", UTC)


def test_a_file_has_its_version_one_without_is_the_first_and_a_newer_one_is_refused(path, clock):
    key = add(path)
    head, line = path.read_bytes().splitlines(keepends=True)
    assert json.loads(head) == {"format": "vfbandits API keys", "version": 1}
    path.write_bytes(line)
    assert KeyRing(path, clock=clock).check(key.text).name == "web"
    path.write_bytes(head.replace(b"1", b"2") + line)
    with pytest.raises(
        IdentityError, match="must have version 1, got 2: it was written by a newer"
    ):
        read_keys(path)
    path.write_bytes(head.replace(b"API keys", b"recipes") + line)
    with pytest.raises(IdentityError, match="wanted a file of vfbandits API keys"):
        read_keys(path)
    assert json.loads(path.read_bytes().splitlines()[1])["id"] == key.record.id  # left alone


@pytest.mark.parametrize(
    "terms",
    [
        {"name": ""},
        {"name": "a\nb"},
        {"name": "web\n"},
        {"name": "\udcff"},
        {"name": "x" * 257},
        {"scopes": []},
        {"scopes": ["all"]},
        {"campaigns": [""]},
        {"expires": datetime(2031, 5, 1)},  # without a time zone
    ],
)
def test_a_key_that_could_not_be_read_back_is_not_made(terms):
    with pytest.raises(SettingError, match="such a key cannot be made"):
        make_key(**{"name": "web", "scopes": ["rank"], **terms})


@given(
    name=st.text(min_size=1, max_size=256).filter(str.isprintable),
    scopes=st.sets(st.sampled_from(RIGHTS), min_size=1),
    campaigns=st.sets(st.text("abc/ ", min_size=1, max_size=5), max_size=3),
    expires=st.none() | st.datetimes(timezones=st.just(UTC)),
)
def test_what_is_written_is_what_is_read(tmp_path_factory, name, scopes, campaigns, expires):
    path = tmp_path_factory.getbasetemp() / "keys-written-and-read"
    path.unlink(missing_ok=True)
    key = add(path, name, scopes=sorted(scopes), campaigns=sorted(campaigns), expires=expires)
    assert read_keys(path) == (key.record,)
    assert msgspec.structs.asdict(key.record)["campaigns"] == (tuple(sorted(campaigns)) or None)


def test_a_link_to_the_file_stays_a_link(path, tmp_path):
    add(path)
    link = tmp_path / "link"
    link.symlink_to(path)
    add(link, "more")
    assert link.is_symlink()
    assert [record.name for record in read_keys(path)] == ["web", "more"]


MAKE_SOME = """
import sys
from pathlib import Path
from vfbandits.http.access.key_file import add_key
from vfbandits.http.access.keys import make_key
print("ready", flush=True)
sys.stdin.readline()
for number in range(15):
    add_key(Path(sys.argv[1]), make_key(f"{sys.argv[2]} {number}", scopes=["rank"]).record)
"""


def test_keys_made_by_several_processes_at_once_are_all_there(path):
    makers = [
        fork_server.Popen(
            [sys.executable, "-c", MAKE_SOME, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in "abc"
    ]
    for maker in makers:  # without the lock, those that start together lose half of the keys
        assert maker.stdout.readline() == b"ready\n"
    for maker in makers:
        maker.stdin.write(b"go\n")
        maker.stdin.flush()
    for maker in makers:
        maker.communicate(timeout=60)
        assert maker.returncode == 0
    names = {record.name for record in read_keys(path)}
    assert names == {f"{name} {number}" for name in "abc" for number in range(15)}
    assert {found.name for found in path.parent.iterdir()} == {"keys", ".keys.lock"}


def test_a_failed_write_leaves_the_file_as_it_was(path, monkeypatch):
    key = add(path)

    def full(descriptor):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(IdentityError, match="No space left"):
        add(path)
    assert read_keys(path) == (key.record,)
    assert not list(Path(path.parent).glob("*.part"))
