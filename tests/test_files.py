"""Files are written whole or not at all, and replace nothing but files."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from vfbandits.files import PART, write_whole


def write(path, data=b"new"):
    return write_whole(path, lambda file: file.write(data), mode=0o600)


def test_a_file_is_replaced_in_one_step_and_for_its_owner_only(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    assert write(path).read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [*tmp_path.iterdir()] == [path]


def test_a_write_that_fails_leaves_the_older_file_and_no_part(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_whole(path, fail, mode=0o600)
    assert path.read_bytes() == b"old"
    assert not [*tmp_path.glob(f"*{PART}")]


def test_two_threads_may_write_the_same_file(tmp_path):
    path = tmp_path / "file"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: write(path, b"%d" % k * 1_000), range(200)))
    assert path.read_bytes() in [b"%d" % k * 1_000 for k in range(200)]
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("through_link", [False, True])
def test_a_device_or_a_pipe_is_never_replaced_by_a_file(tmp_path, through_link):
    pipe = path = tmp_path / "pipe"
    os.mkfifo(pipe)
    if through_link:
        path = tmp_path / "link"
        path.symlink_to(pipe)
    with pytest.raises(OSError, match="is not a regular file"):
        write(path)
    assert stat.S_ISFIFO(path.stat().st_mode)
    assert not [*tmp_path.glob(f"*{PART}")]


def test_a_folder_is_not_replaced(tmp_path):
    with pytest.raises(OSError, match="is not a regular file"):
        write(tmp_path)
