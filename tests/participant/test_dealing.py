"""The dealer of secret shares on a disk: killed, continued, refused; no name has two words."""

import errno
import random
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import dealt_words
import pytest
from dealt_words import EPOCH, NAMES, SEALING_KEYS, DealtFolder, make_key_dir, shares_roster
from fork_server import Popen

from vfbandits.errors import EnvelopeError, IdentityError, SettingError, SnapshotError, StockError
from vfbandits.participant import dealing
from vfbandits.participant.dealing import deal_windows, state_path
from vfbandits.protocol.dealt import DealOpener, secrets_name, window_name
from vfbandits.protocol.roster import Roster, Terms

TESTS = str(Path(dealt_words.__file__).parent)
CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from dealt_words import EPOCH, shares_roster
from vfbandits.participant.dealing import deal_windows
folder = Path(sys.argv[1])
deal_windows(shares_roster(), key_dir=folder / "pmg", epoch=EPOCH, out=folder / "out", windows=40)
"""


def read_window(world, number, folder="out"):
    path = world.folder / folder / window_name("shop", EPOCH, number)
    opened = world.opener("shop").window(path.read_bytes(), number, deal=world.deal_name)
    return opened.to_bytes()


def test_each_member_opens_its_own_secrets_and_no_other_s(tmp_path):
    world = DealtFolder(tmp_path, windows=2)
    assert Roster.from_bytes(world.roster.to_bytes()) == world.roster
    shop, bank, news = (world.secrets[name] for name in NAMES)
    assert (shop.server is None, bank.server is None, news.server is None) == (False, False, True)
    assert shop.server.own.to_bytes() != bank.server.own.to_bytes()
    for number, party in enumerate((shop, bank, news)):
        ours = party.participant
        assert ours.active.to_bytes() == shop.server.inputs[number].to_bytes()
        assert ours.helper.to_bytes() == bank.server.inputs[number].to_bytes()
    data = (tmp_path / "out" / secrets_name("bank", EPOCH)).read_bytes()
    with pytest.raises(EnvelopeError, match="another to"):
        world.opener("shop").secrets(data)
    thief = DealOpener(world.roster, EPOCH, "bank", SEALING_KEYS["shop"])
    with pytest.raises(IdentityError):
        thief.secrets(data)
    for party in (shop, bank, news):
        assert party.participant.active.to_bytes().hex() not in repr(party)


def test_files_are_for_their_owner_only(tmp_path):
    DealtFolder(tmp_path, windows=1)
    files = [*(tmp_path / "out").iterdir(), state_path(tmp_path / "pmg", EPOCH)]
    assert len(files) == len(NAMES) + 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_a_later_run_continues_with_the_next_windows(tmp_path):
    world = DealtFolder(tmp_path, windows=2)
    steps = []
    dealt = world.deal(3, on_step=steps.append)
    assert (dealt.first, dealt.next_window, dealt.secrets, dealt.decisions) == (2, 5, (), 18)
    assert steps == [1, 2, 3]
    sizes = [
        (tmp_path / "out" / window_name("shop", EPOCH, window)).stat().st_size
        for window in range(2, 5)
    ]
    assert dealt.size_bytes == sum(sizes)
    assert len({read_window(world, number) for number in range(5)}) == 5


def test_a_window_that_is_dealt_again_has_the_same_words(tmp_path):
    world = DealtFolder(tmp_path, windows=1)
    state = state_path(tmp_path / "pmg", EPOCH)
    before = state.read_bytes()
    world.deal(2)
    shutil.copytree(tmp_path / "out", tmp_path / "first")
    state.write_bytes(before)  # as if it had been killed before it noted anything
    world.deal(2)
    for number in (1, 2):
        assert read_window(world, number) == read_window(world, number, "first")


def test_a_killed_dealer_leaves_whole_windows_and_goes_on(tmp_path):
    make_key_dir(tmp_path / "pmg")
    rng = random.Random(0)  # noqa: S311
    n_killed, seen = 0, {}
    while n_killed < 6:
        process = Popen([sys.executable, "-c", CHILD, str(tmp_path), TESTS])
        wanted = len(list(tmp_path.glob("out/*.deal"))) + rng.randrange(6)
        while process.poll() is None and len(list(tmp_path.glob("out/*.deal"))) < wanted:
            time.sleep(0.001)
        process.kill()
        assert process.wait(60) in (0, -signal.SIGKILL)
        n_killed += process.returncode != 0
        if (tmp_path / "out" / secrets_name("news", EPOCH)).exists():
            world = DealtFolder(tmp_path)
            for number in range(len(list(tmp_path.glob("out/*.deal")))):
                words = read_window(world, number)
                assert seen.setdefault(number, words) == words
    world.deal(1)
    assert not list((tmp_path / "out").glob(".*"))
    assert read_window(world, world.deal(0).next_window - 1)
    assert len(seen) >= 6


def test_other_terms_a_lost_state_and_another_protection_are_refused(tmp_path):
    world = DealtFolder(tmp_path, windows=1)
    flags = {"key_dir": tmp_path / "pmg", "epoch": EPOCH, "out": tmp_path / "out"}
    with pytest.raises(StockError, match=r"max_arms 4 is 5 now.*Deal the next epoch"):
        deal_windows(shares_roster(max_arms=5), **flags)
    with pytest.raises(SettingError, match="words are dealt for protection 'shares'"):
        deal_windows(replace(world.roster, terms=Terms()), **flags)
    with pytest.raises(IdentityError, match="no signing key"):
        world.deal(1, key_dir=tmp_path / "out")
    state = state_path(tmp_path / "pmg", EPOCH)
    whole = state.read_bytes()
    state.write_bytes(whole[:-5])
    with pytest.raises(SnapshotError, match="not the whole state"):
        world.deal(1)
    state.write_bytes(b"something else")
    with pytest.raises(SnapshotError, match="wanted a 'vfbandits dealer state 1'"):
        world.deal(1)
    state.unlink()
    with pytest.raises(IdentityError, match=r"epoch 1 was dealt.*give --state, or deal the next"):
        world.deal(1)
    moved = tmp_path / "moved"
    moved.write_bytes(whole)
    assert world.deal(1, state=moved).first == 1
    with pytest.raises(StockError, match="wanted the state of epoch 2, got that of epoch 1"):
        world.deal(1, state=moved, epoch=2)


def test_a_full_disk_is_one_error_and_the_next_run_goes_on(tmp_path, monkeypatch):
    world = DealtFolder(tmp_path, windows=1)
    write = dealing.write_whole

    def fail(path, *args, **options):
        if path.name.endswith("00000002.deal"):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return write(path, *args, **options)

    monkeypatch.setattr(dealing, "write_whole", fail)
    with pytest.raises(StockError, match=r"No space left.*The 2 windows before are complete"):
        world.deal(5)
    monkeypatch.setattr(dealing, "write_whole", write)
    assert world.deal(1).first == 2


def test_two_dealers_do_not_share_a_state(tmp_path):
    world = DealtFolder(tmp_path, windows=1)

    def deal_meanwhile(_):
        with pytest.raises(StockError, match="in use by another dealer"):
            world.deal(1)

    assert world.deal(1, on_step=deal_meanwhile).next_window == 2
