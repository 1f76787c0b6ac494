"""Server A's stock of dealt windows: each is handed out once, whatever is restored."""

import json
import shutil

import pytest
from dealt_words import EPOCH
from durable_shares import DealtWorld

from vfbandits.errors import RollbackError, StockError
from vfbandits.protocol.dealt import window_name

OWNER = "aa"


@pytest.fixture
def world(tmp_path):
    return DealtWorld(tmp_path, windows=4)


def path_of(world, window):
    return world.folder / "out" / window_name("shop", EPOCH, window)


def test_windows_come_in_order_and_their_files_go(world):
    stock = world.stock()
    for window in range(3):
        assert stock.take(window, owner=OWNER).window == window
        assert json.loads((world.folder / "a" / "cursor").read_text())["window"] == window
        stock.finish(window)
        assert not path_of(world, window).exists()
    assert (world.folder / "a" / "cursor").stat().st_mode & 0o777 == 0o600
    assert stock.left().windows == 1


def test_what_is_left_is_counted_and_forecast(world):
    times = iter([0.0, 10.0, 10.0, 20.0, 40.0])
    stock = world.stock(clock=times.__next__, low_windows=3)
    assert stock.left().lasts_s is None
    stock.take(0, owner=OWNER)
    stock.take(1, owner=OWNER)
    left = stock.left()
    assert (left.windows, left.decisions, left.lasts_s, left.is_low) == (2, 12, 20.0, True)
    assert left.size_bytes == sum(path_of(world, window).stat().st_size for window in (2, 3))
    assert stock.left().lasts_s == 40.0  # at half the pace
    path_of(world, 2).unlink()
    assert stock.left().windows == 0  # a gap ends it


def test_only_the_state_that_began_a_window_takes_it_again(world):
    stock = world.stock()
    stock.take(0, owner=OWNER)
    stock.take(1, owner=OWNER)
    again = world.stock()  # after a restart
    assert again.take(1, owner=OWNER).window == 1
    with pytest.raises(RollbackError, match=r"that uses window 1, got one that asks for window 0"):
        again.take(0, owner=OWNER)
    with pytest.raises(RollbackError, match="an older copy or another one"):
        again.take(1, owner="bb")


def test_a_folder_that_is_put_back_brings_no_window_back(world):
    shutil.copytree(world.folder / "out", world.folder / "backup")
    stock = world.stock()
    for window in range(3):
        stock.take(window, owner=OWNER)
        stock.finish(window)
    shutil.copytree(world.folder / "backup", world.folder / "out", dirs_exist_ok=True)
    again = world.stock()
    with pytest.raises(RollbackError):
        again.take(0, owner=OWNER)
    assert again.take(3, owner=OWNER).window == 3
    assert [window for window in range(4) if path_of(world, window).exists()] == [3]


def test_a_missing_a_damaged_and_a_foreign_window_are_refused_before_they_are_begun(world):
    stock = world.stock()
    data = path_of(world, 0).read_bytes()
    path_of(world, 0).write_bytes(data[:-100])
    with pytest.raises(StockError, match="was not copied whole"):
        stock.take(0, owner=OWNER)
    path_of(world, 0).write_bytes(path_of(world, 1).read_bytes())
    with pytest.raises(StockError, match="another window: wanted 0, got '1'"):
        stock.take(0, owner=OWNER)
    path_of(world, 0).unlink()
    with pytest.raises(StockError, match=r"no dealt words are left.*vfb masks deal --windows"):
        stock.take(0, owner=OWNER)
    assert not (world.folder / "a" / "cursor").exists()
    path_of(world, 0).write_bytes(data)
    assert stock.take(0, owner=OWNER).window == 0


def test_a_cursor_of_another_deal_or_a_damaged_one_is_refused(world):
    world.stock().take(0, owner=OWNER)
    cursor = world.folder / "a" / "cursor"
    kept = json.loads(cursor.read_text())
    cursor.write_text(json.dumps({**kept, "deal": "cd" * 16}))
    with pytest.raises(StockError, match="each deal needs a cursor of its own"):
        world.stock()
    cursor.write_text("{")
    with pytest.raises(StockError, match="got a damaged file"):
        world.stock()


def test_no_word_is_in_a_repr(world):
    deal = world.stock().take(0, owner=OWNER)
    assert repr(deal) == "WindowDeal(window=0, attempt=0)"
    assert "key" not in repr(world.opener("shop")).replace("sealing_key", "").replace(
        "generator_key", ""
    )
