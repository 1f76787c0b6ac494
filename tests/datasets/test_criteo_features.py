"""The recipe, against numbers worked out by hand and against itself written the slow way."""

import hashlib
from collections import Counter

import numpy as np
import polars as pl
import pytest
from numpy.testing import assert_allclose
from polars.testing import assert_frame_equal

from vfbandits.datasets.criteo import table as criteo_table
from vfbandits.datasets.criteo.columns import CATEGORIES, NUMBERS
from vfbandits.datasets.criteo.features import REFERENCE_DROPPED, Recipe, featurise
from vfbandits.datasets.criteo.file import CriteoFile
from vfbandits.datasets.criteo.label import bucket_of, cantor, label_of
from vfbandits.datasets.criteo.table import CriteoTable
from vfbandits.errors import DatasetError


def parts(table):
    return pl.concat([pl.read_parquet(p) for p in sorted(table.folder.glob("part-*.parquet"))])


@pytest.fixture
def by_hand(tmp_path, line):
    r"""Codes: C1 is 2 2 0 1 2 (a gap filled forward), C2 is 1 1 0 0 1 (one filled backward).

    md5 mod 3 of codes 0, 1, 2 is 1, 1, 0.  So counts are (1,1,0) (1,1,0) (0,2,0) (0,2,0) (1,1,0);
    ⟨1,1⟩ = 4, ⟨4,0⟩ = 10, ⟨4,10⟩ = 115 and ⟨0,2⟩ = 5, ⟨5,0⟩ = 15, ⟨5,15⟩ = 225.
    """
    path = tmp_path / "train.txt"
    rows = [
        line(label=1, I2=3, C1="0000000c"),
        line(label=0, C2="0000000f"),
        line(label=0, I2=7, C1="0000000a", C2="0000000e"),
        line(label=1, C1="0000000b", C2="0000000e"),
        line(label=1, I2=-1, C1="0000000c", C2="0000000f"),
    ]
    path.write_text("\n".join(rows))
    return path


def test_the_recipe_gives_what_is_worked_out_by_hand(tmp_path, by_hand):
    table = featurise(CriteoFile(by_hand), tmp_path / "out", recipe=Recipe(n_arms=2))
    assert [bucket_of(code) for code in range(3)] == [1, 1, 0]
    assert [(a.label, a.triple, a.n_rows, a.n_clicks) for a in table.facts.arms] == [
        (115, (1, 1, 0), 3, 2),
        (225, (0, 2, 0), 2, 1),
    ]
    assert table.facts.columns == ("I2",)
    (rounds,) = table.rounds()
    assert_allclose(rounds.users[:, 0], [0.5, 0.5, 1.0, 1.0, 0.0])  # 3 3 7 7 −1, scaled
    assert rounds.arms.tolist() == [0, 0, 1, 1, 0]
    assert rounds.clicks.tolist() == [1.0, 0.0, 0.0, 1.0, 1.0]
    assert table.arm_features.tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_factors_and_logarithm_apply_when_rows_are_read(tmp_path, by_hand):
    table = featurise(CriteoFile(by_hand), tmp_path / "out", recipe=Recipe(n_arms=2))
    (rounds,) = table.rounds(factors=(3.0,), log=True)
    assert_allclose(rounds.users[:, 0], 3.0 * np.log([5, 5, 9, 9, 1]) / np.log(9))
    with pytest.raises(DatasetError, match="a factor for each of 1 features, got 2"):
        next(table.rounds(factors=(1.0, 2.0)))


def slow_way(lines, n_arms):
    """The recipe with the whole file in memory, field by field."""
    table = np.array([line.split("\t") for line in lines], dtype=object)
    names = ("label", *NUMBERS, *CATEGORIES)
    filled = {}
    for name, column in zip(names, table.T, strict=True):
        if sum(value == "" for value in column) > 0.4 * len(column):
            continue
        last = next(value for value in column if value)
        filled[name] = [last := value or last for value in column]
    counts = [[0, 0, 0] for _ in lines]
    for name in CATEGORIES:
        codes = {value: n for n, value in enumerate(sorted(set(filled.get(name, ()))))}
        for row, value in enumerate(filled.get(name, ())):
            digest = hashlib.md5(str(codes[value]).encode(), usedforsecurity=False).hexdigest()
            counts[row][int(digest, 16) % 3] += 1
    labels = [label_of(tuple(count)) for count in counts]
    ranked = sorted(Counter(labels).items(), key=lambda item: (-item[1], item[0]))[:n_arms]
    arms = [label for label, _ in ranked]
    kept = [
        {name: int(column[row]) for name, column in filled.items() if name[0] == "I"}
        | {"click": int(filled["label"][row]), "arm": arms.index(label)}
        for row, label in enumerate(labels)
        if label in arms
    ]
    return pl.DataFrame(kept), arms


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [2_000, 1 << 20])
def test_the_recipe_is_the_slow_way_whatever_the_size_of_a_piece(
    tmp_path, random_lines, monkeypatch, seed, size
):
    monkeypatch.setattr(criteo_table, "PART_ROWS", 37)
    lines = random_lines(150, seed=seed)
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines))
    table = featurise(CriteoFile(path, size), tmp_path / "out", recipe=Recipe(n_arms=10))
    expected, labels = slow_way(lines, 10)
    assert_frame_equal(parts(table), expected, check_dtypes=False)
    assert [arm.label for arm in table.facts.arms] == labels
    assert table.facts.minima == expected.select(table.facts.columns).min().row(0)
    assert table.facts.maxima == expected.select(table.facts.columns).max().row(0)


def test_day_0_has_8289_rows_in_its_40_most_common_labels(tmp_path, shared_data):
    source = CriteoFile(shared_data / "criteo" / "day_0.part.txt.gz", 100_000)
    table = featurise(source, tmp_path)
    assert (table.facts.n_rows_read, table.facts.n_bad_lines) == (10_000, 0)
    assert table.facts.n_rows == 8_289
    assert table.facts.dropped == ("I4", "I5", "I11", "C14", "C16", "C17", "C23")
    assert len(table.facts.arms) == 40


def test_the_reference_columns_can_be_dropped_instead(tmp_path, random_lines):
    path = tmp_path / "train.txt"
    path.write_text("\n".join(random_lines(100, seed=0)))
    recipe = Recipe(n_arms=3, dropped=REFERENCE_DROPPED)
    assert featurise(CriteoFile(path), tmp_path / "out", recipe=recipe).facts.dropped == (
        REFERENCE_DROPPED
    )


def test_a_folder_is_opened_again_and_made_again(tmp_path, by_hand, random_lines):
    out = tmp_path / "out"
    other = tmp_path / "other.txt"
    other.write_text("\n".join(random_lines(100, seed=0)))
    featurise(CriteoFile(other), out, recipe=Recipe(n_arms=5))
    table = featurise(CriteoFile(by_hand), out, recipe=Recipe(n_arms=2))
    assert CriteoTable.open(out) == table
    assert parts(table).height == 5
    assert sorted(path.name for path in out.iterdir()) == ["facts.json", "part-00000.parquet"]


def test_too_few_labels_are_refused_and_nothing_is_left_behind(tmp_path, by_hand):
    out = tmp_path / "out"
    with pytest.raises(DatasetError, match="wanted 40 different labels for the arms, got 2"):
        featurise(CriteoFile(by_hand), out)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_arms": 1}, "n_arms must be at least 2, got 1"),
        ({"max_missing": 1.5}, "max_missing must be between 0 and 1, got 1.5"),
        ({"dropped": ("I14",)}, "dropped must name columns"),
    ],
    ids=["arms", "share", "column"],
)
def test_a_recipe_that_makes_no_arms_is_refused(settings, message):
    with pytest.raises(DatasetError, match=message):
        Recipe(**settings)


def test_a_column_that_stays_needs_a_value(tmp_path, by_hand):
    with pytest.raises(DatasetError, match="wanted a value in every column that stays"):
        featurise(CriteoFile(by_hand), tmp_path / "out", recipe=Recipe(dropped=("I1",)))


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(DatasetError, match="wanted a folder that featurise wrote"):
        CriteoTable.open(tmp_path)


def test_stages_report_their_rows(tmp_path, random_lines):
    path = tmp_path / "train.txt"
    path.write_text("\n".join(random_lines(100, seed=0)))
    heard = {}
    featurise(
        CriteoFile(path, 5_000),
        tmp_path / "out",
        recipe=Recipe(n_arms=3),
        on_rows=heard.__setitem__,
    )
    assert heard == {"read": 100, "label": 100, "write": 100}


def test_every_pair_and_every_triple_has_a_number_of_its_own():
    assert sorted(cantor(x, y) for x in range(20) for y in range(20 - x)) == list(range(210))
    triples = [(a, b, c) for a in range(27) for b in range(27 - a) for c in [26 - a - b, 21]]
    assert len({label_of(triple) for triple in triples}) == len(set(triples))
