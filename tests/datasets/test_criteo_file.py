"""The reader gives the same rows from any kind of file, and names the lines it left out."""

import gzip

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from vfbandits.datasets.criteo.columns import COLUMNS
from vfbandits.datasets.criteo.file import CriteoFile
from vfbandits.errors import DatasetError

SIZES = (1, 300, 5_000, 1 << 20)


def read(path, size=1 << 20):
    pieces = list(CriteoFile(path, size).pieces())
    bad = [int(line) for piece in pieces for line in piece.bad_lines]
    return pl.concat([piece.frame for piece in pieces]), bad, sum(p.n_lines for p in pieces)


@pytest.fixture
def spoilt(random_lines):
    """Twenty lines, and below them what is wrong with some."""
    lines = [line.encode() for line in random_lines(20, seed=1)]
    lines[2] = b"hello"
    lines[5] = lines[5].replace(b"\t", b"\tx", 1)  # an integer that is none
    lines[7] = b"2" + lines[7][1:]  # a label that is none
    lines[8] = lines[8][1:]  # no label
    lines[11] += b"\t"  # 41 fields
    lines[12] = b""
    lines[14] = b"\xff" + lines[14]
    lines[16] = lines[16].rpartition(b"\t")[0] + b"\tg0000000"  # not hexadecimal
    lines[17] = lines[17].rpartition(b"\t")[0] + b"\t0abc"  # not eight digits
    return lines, [3, 6, 8, 9, 12, 13, 15, 17, 18]


@pytest.mark.parametrize("size", SIZES)
def test_bad_lines_are_left_out_and_named(tmp_path, spoilt, random_lines, size):
    lines, bad = spoilt
    path = tmp_path / "train.txt"
    path.write_bytes(b"\n".join(lines))
    frame, found, n_lines = read(path, size)
    assert (found, n_lines) == (bad, 20)
    whole = tmp_path / "whole.txt"
    good = [text for n, text in enumerate(random_lines(20, seed=1), start=1) if n not in bad]
    whole.write_text("\n".join(good) + "\n")
    assert_frame_equal(frame, read(whole)[0])


def test_fields_are_read_as_what_they_are(tmp_path, line):
    path = tmp_path / "train.txt"
    path.write_text(line(label=1, I2=-3, C26="05db9164") + "\n")
    frame, _, _ = read(path)
    row = frame.row(0, named=True)
    assert (row["label"], row["I1"], row["I2"], row["C1"]) == (1, None, -3, None)
    assert row["C26"] == 0x05DB9164


def test_text_gzip_and_parquet_give_the_same_rows(tmp_path, random_lines):
    text = "\n".join(random_lines(200, seed=2)) + "\n"
    plain, zipped, parquet = (tmp_path / name for name in ("a.tsv", "a.bin", "a.parquet"))
    plain.write_text(text)
    zipped.write_bytes(gzip.compress(text.encode()))
    frame, _, _ = read(plain)
    as_text = pl.DataFrame(
        [line.split("\t") for line in text.splitlines()], schema=list(COLUMNS), orient="row"
    )
    as_text.write_parquet(parquet, row_group_size=50)
    for path in (plain, zipped, parquet):
        for size in (10_000, 1 << 20):
            assert_frame_equal(read(path, size)[0], frame)


def test_parquet_may_name_columns_and_types_in_its_own_way(tmp_path, random_lines):
    plain, parquet = tmp_path / "a.tsv", tmp_path / "a.parquet"
    plain.write_text("\n".join(random_lines(50, seed=3)))
    frame, _, _ = read(plain)
    frame.rename({"I1": "integer_feature_1"}).write_parquet(parquet)  # categories as numbers
    assert_frame_equal(read(parquet)[0], frame)


def test_a_bad_row_of_parquet_is_left_out_and_named(tmp_path, random_lines):
    rows = [line.split("\t") for line in random_lines(5, seed=4)]
    rows[3][1] = "many"
    parquet = tmp_path / "a.parquet"
    pl.DataFrame(rows, schema=list(COLUMNS), orient="row").write_parquet(parquet)
    frame, bad, _ = read(parquet)
    assert (frame.height, bad) == (4, [4])


def test_line_ends_of_windows_change_nothing(tmp_path, random_lines):
    lines = random_lines(10, seed=5)
    unix, windows = tmp_path / "unix", tmp_path / "windows"
    unix.write_bytes("\n".join(lines).encode())
    windows.write_bytes("\r\n".join(lines).encode())
    assert_frame_equal(read(windows)[0], read(unix)[0])


def test_a_header_is_one_bad_line(tmp_path, random_lines):
    path = tmp_path / "train.txt"
    path.write_text("\t".join(COLUMNS) + "\n" + "\n".join(random_lines(3, seed=6)))
    frame, bad, _ = read(path)
    assert (frame.height, bad) == (3, [1])


@pytest.mark.parametrize("content", [b"", b"hello\nworld\n"], ids=["empty", "prose"])
def test_a_file_without_a_good_line_is_refused(tmp_path, content):
    path = tmp_path / "train.txt"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="wanted lines of 40 fields"):
        read(path)


def test_an_absent_file_is_refused(tmp_path):
    with pytest.raises(DatasetError, match="wanted Criteo's train file"):
        CriteoFile(tmp_path / "train.txt")


def test_a_torn_gzip_file_is_refused(tmp_path, random_lines):
    path = tmp_path / "train.txt.gz"
    path.write_bytes(gzip.compress("\n".join(random_lines(100, seed=7)).encode())[:-100])
    with pytest.raises(DatasetError, match="wanted a whole gzip file"):
        read(path)


def test_a_parquet_file_of_other_width_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"label": [1]}).write_parquet(path)
    with pytest.raises(DatasetError, match="wanted 40 columns, got 1"):
        read(path)
