"""The data sets have the rows, classes and owners that their READMEs say."""

import gzip

import numpy as np
import pytest
from numpy.testing import assert_allclose

from vfbandits.datasets import digits as digits_module
from vfbandits.datasets.bank_marketing import BANK_MARKETING
from vfbandits.datasets.encode import Column, encode
from vfbandits.datasets.letter import LETTER
from vfbandits.datasets.owned import balanced, standardised
from vfbandits.datasets.owners import LOADERS, NAMES, available, load_owned
from vfbandits.errors import DatasetError

FACTS = {
    "default_credit": (
        [6_636] * 2,
        {"demographics": 14, "credit line": 1, "bills and payments": 12, "repayment status": 6},
    ),
    "bank_marketing": ([4_640] * 2, {"client": 34, "contact": 18, "history": 5, "economy": 5}),
    "landsat": (
        [1_533, 703, 1_358, 626, 707, 1_508],
        {"band 1": 9, "band 2": 9, "band 3": 9, "band 4": 9},
    ),
    "mfeat": ([200] * 10, {"fac": 216, "fou": 76, "kar": 64, "mor": 6, "pix": 240, "zer": 47}),
    "letter": (None, {"box": 5, "moments": 4, "correlations": 3, "edges": 4}),
}


@pytest.mark.parametrize("name", LOADERS)
def test_rows_classes_and_owners_are_those_of_the_readme(shared_data, name):
    counts, widths = FACTS[name]
    data = load_owned(name, folder=shared_data)
    found = np.bincount(data.labels)
    if counts is not None:
        assert found.tolist() == counts
    assert data.n_arms == len(found)
    assert data.widths == widths
    assert data.features.shape == (len(data.labels), sum(widths.values()))
    assert "CC BY 4.0" in data.licence
    assert data.citation
    for part in data.owners.values():
        assert_allclose((data.features[:, part] ** 2).sum(axis=1).mean(), 1.0)
    assert_allclose(data.features.mean(axis=0), 0.0, atol=1e-10)


def test_letter_has_26_classes_of_nearly_equal_size(shared_data):
    shares = np.bincount(load_owned("letter", folder=shared_data).labels) / 20_000
    assert len(shares) == 26
    assert (shares.min(), shares.max()) == (pytest.approx(0.0367), pytest.approx(0.04065))


def test_landsat_bands_hold_every_fourth_column(shared_data):
    data = load_owned("landsat", folder=shared_data)
    lines = []
    for name in ("sat.trn.gz", "sat.tst.gz"):
        with gzip.open(shared_data / "landsat" / name, "rt") as file:
            lines += file.readlines()
    raw = np.loadtxt(lines)
    for band in range(4):
        owned = data.features[:, data.owners[f"band {band + 1}"]]
        for pixel in range(9):
            assert np.corrcoef(owned[:, pixel], raw[:, 4 * pixel + band])[0, 1] > 1 - 1e-12


def test_duration_belongs_to_nobody(shared_data):
    with gzip.open(shared_data / "bank_marketing" / "bank-additional-full.csv.gz", "rt") as file:
        header = file.readline().replace('"', "").strip().split(";")
    owned = {column.name for columns in BANK_MARKETING.owners.values() for column in columns}
    assert set(header) - owned == {"duration", "y"}


def test_digits_need_no_folder():
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    data = load_owned("digits")
    assert data.features.shape == (1_797, 64)
    assert list(data.widths.values()) == [16] * 4
    assert "digits" in available()


def test_without_scikit_learn_the_digits_name_the_extra(monkeypatch):
    def absent(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(digits_module.importlib, "import_module", absent)
    with pytest.raises(DatasetError, match=r"vfbandits\[experiments\]"):
        load_owned("digits")


def test_a_file_that_is_not_the_known_one_is_refused(tmp_path):
    path = tmp_path / LETTER.path
    path.parent.mkdir()
    path.write_bytes(gzip.compress(b"A,1,2\n"))
    with pytest.raises(DatasetError, match="wanted sha256 2b89f3602c"):
        load_owned("letter", folder=tmp_path)


def test_a_damaged_gzip_file_is_refused(tmp_path):
    path = tmp_path / LETTER.path
    path.parent.mkdir()
    packed = bytearray(gzip.compress(b"A,1,2\n" * 1_000))
    packed[12] ^= 255  # in the deflated data, behind the header
    path.write_bytes(packed)
    with pytest.raises(DatasetError, match="wanted a gzipped data file"):
        load_owned("letter", folder=tmp_path)


def test_a_file_that_was_not_gzipped_is_read_as_it_is(tmp_path, shared_data):
    path = tmp_path / LETTER.path
    path.parent.mkdir()
    path.with_suffix("").write_bytes(gzip.decompress((shared_data / LETTER.path).read_bytes()))
    assert len(load_owned("letter", folder=tmp_path).labels) == 20_000


@pytest.mark.parametrize("name", LOADERS)
def test_the_error_says_where_an_absent_file_comes_from_and_what_it_is(tmp_path, name):
    wanted = (
        rf"wanted .*{name}.*\.gz or, .* sha256 [0-9a-f]{{64}} .* https://archive\.ics\.uci\.edu/"
    )
    with pytest.raises(DatasetError, match=wanted):
        load_owned(name, folder=tmp_path)


def test_an_absent_file_is_refused_and_not_available(tmp_path):
    with pytest.raises(DatasetError, match="got no such file"):
        load_owned("letter", folder=tmp_path)
    assert available(tmp_path) == ("digits",)


def test_an_unknown_set_is_refused_with_the_known_ones():
    with pytest.raises(DatasetError, match=f"one of {', '.join(NAMES)}, got 'iris'"):
        load_owned("iris")


def test_a_log_is_uniform_and_pays_for_the_class():
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    data = load_owned("digits")
    log = data.log(np.random.default_rng(0))
    assert log.clicks.mean() == pytest.approx(1 / data.n_arms, abs=0.02)
    assert np.bincount(log.arms).min() > 130
    assert len(log) == 1_797


def test_the_first_owners_come_in_order_and_there_are_only_so_many():
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    data = load_owned("digits")
    assert data.first_owners(2) == ("rows 1-2", "rows 3-4")
    with pytest.raises(DatasetError, match="digits has 1 to 4 owners, got 5"):
        data.first_owners(5)


def test_balanced_classes_are_as_large_as_the_rarest():
    labels = np.array([0, 0, 1, 0, 2, 2, 0, 1])
    rows = balanced(labels, np.random.default_rng(0))
    assert np.bincount(labels[rows]).tolist() == [2, 2, 2]
    assert len(set(rows.tolist())) == 6


def test_a_column_that_does_not_vary_becomes_zero():
    block = np.array([[1.0, 5.0], [3.0, 5.0]])
    assert standardised(block).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_money_keeps_its_sign_on_a_logarithmic_scale():
    read = encode(Column("bill", "money"), ["-99", "0", "9"])
    assert_allclose(read[:, 0], [-np.log(100.0), 0.0, np.log(10.0)])
