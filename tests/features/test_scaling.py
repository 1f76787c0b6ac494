"""Scaling: equal to scikit-learn, kept as JSON, and never telling what it was fitted on."""

import json
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from worlds import MORE

from vfbandits.errors import FeatureError
from vfbandits.features.fit import fit_scaling
from vfbandits.features.scaling import RawRows, Scaling

numbers = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, -1.0, 1e-9, 3.0]))
matrices = st.tuples(st.integers(1, 20), st.integers(1, 4)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=numbers)
)
NAMES = ("a", "b", "c", "d")


def fitted(X, method, *, texts=()):
    names = NAMES[: X.shape[1]]
    categories = [f"t{i}" for i in range(len(texts))]
    return fit_scaling(RawRows(X, texts), numbers=names, categories=categories, method=method)


@given(X=matrices, constant=st.booleans())
@settings(max_examples=50 * MORE)
def test_standard_scaling_is_scikit_learns_to_the_last_bit(X, constant):
    if constant:
        X[:, 0] = X[0, 0]
    scaling = fitted(X, "standard")
    more = np.vstack([X, 2.0 * X + 1.0])
    assert_array_equal(scaling.apply(RawRows(more)), StandardScaler().fit(X).transform(more))
    assert scaling.apply(RawRows(more)).flags.c_contiguous


@given(X=matrices, constant=st.booleans())
@settings(max_examples=50 * MORE)
def test_minmax_scaling_is_scikit_learns_up_to_rounding(X, constant):
    if constant:
        X[:, 0] = X[0, 0]
    peer = MinMaxScaler(feature_range=(-1.0, 1.0)).fit(X)
    # Rounding of x·scale + shift, by how far from zero the line starts.
    tolerance = 1e-14 * (1.0 + np.abs(peer.min_) + np.abs(X).max(axis=0) * peer.scale_)
    ours = fitted(X, "minmax").apply(RawRows(X))
    assert (np.abs(ours - peer.transform(X)) <= tolerance).all()


def test_constant_columns_are_as_in_scikit_learn():
    X = np.array([[3.0, 1.0], [3.0, 2.0]])
    assert_array_equal(fitted(X, "standard").apply(RawRows(X)), [[0.0, -1.0], [0.0, 1.0]])
    assert_allclose(fitted(X, "minmax").apply(RawRows(X)), [[-1.0, -1.0], [-1.0, 1.0]])


@given(texts=st.lists(st.text(max_size=3), min_size=1, max_size=12), more=st.lists(st.text()))
@settings(max_examples=50 * MORE)
def test_one_hot_columns_are_scikit_learns_and_unknown_categories_are_zeros(texts, more):
    scaling = fitted(np.zeros((len(texts), 0)), "standard", texts=(texts,))
    asked = [*texts, *more, "never seen"]
    peer = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    peer.fit(np.array(texts, dtype=object)[:, None])
    ours = scaling.apply(RawRows(np.zeros((len(asked), 0)), (asked,)))
    assert_array_equal(ours, peer.transform(np.array(asked, dtype=object)[:, None]))
    assert not ours[-1].any()


def test_numbers_come_first_and_categories_after_them():
    X = np.array([[1.0], [3.0]])
    scaling = fitted(X, "standard", texts=(["x", "y"], ["p", "p"]))
    assert scaling.columns == ("a", "t0", "t1")
    assert scaling.width == 4
    assert_array_equal(
        scaling.apply(RawRows(X, (["y", "?"], ["p", "q"]))),
        [[-1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]],
    )


def test_none_changes_nothing():
    X = np.array([[1.5, -0.0], [1e149, 5e-324]])
    assert_array_equal(fitted(X, "none").apply(RawRows(X)), X)
    assert_array_equal(Scaling.identity(["a", "b"]).apply(RawRows(X)), X)


def test_no_rows_stay_no_rows():
    scaling = fitted(np.ones((2, 1)), "standard", texts=(["x", "y"],))
    assert scaling.apply(RawRows(np.empty((0, 1)), ([],))).shape == (0, 3)


@pytest.fixture
def saved(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 3)) * 17.0 + 1 / 3
    scaling = fitted(X, "standard", texts=([f"é{i % 3}\n" for i in range(50)],))
    return scaling, scaling.save(tmp_path / "scaling.json"), X


def test_a_saved_scaling_scales_to_the_last_bit_as_before(saved):
    scaling, path, X = saved
    again = Scaling.load(path)
    raw = RawRows(X, (["é0\n"] * 50,))
    assert_array_equal(again.apply(raw), scaling.apply(raw))
    assert again.digest == scaling.digest
    assert (again.columns, again.width) == (scaling.columns, scaling.width)


def test_the_file_is_its_owners_alone_and_replaced_in_one_step(saved):
    scaling, path, _ = saved
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    scaling.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["scaling.json"]


def test_the_file_holds_parameters_and_nothing_that_could_run(saved):
    document = json.loads(saved[1].read_text())
    assert set(document) == {"format", "version", "method", "fitted_rows", "salt", "numbers",
                             "one_hot", "digest"}  # fmt: skip
    assert document["numbers"][0].keys() == {"name", "centre", "spread"}
    assert len(document["digest"]) == 64


def test_the_digest_tells_nothing_that_could_be_guessed_at():
    X = np.array([[0.0], [1.0]])
    assert fitted(X, "standard").digest != fitted(X, "standard").digest
    same = [
        fit_scaling(RawRows(X), numbers=["a"], entropy=lambda n: b"s" * n).digest for _ in range(2)
    ]
    assert same[0] == same[1]


def test_a_scaling_does_not_show_its_facts(saved):
    scaling = saved[0]
    shown = repr(scaling)
    for fact in (str(scaling.centres[0]), str(scaling.spreads[0]), "é1", scaling.salt):
        assert fact not in shown
    assert "standard" in shown


def changed(path, **values):
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, **values}))
    return path


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"version": 2}, "version 1, got 'vfbandits scaling' of version 2"),
        ({"format": "snapshot"}, "must be a vfbandits scaling"),
        ({"method": "minmax"}, "digest of its content"),
        ({"method": "robust"}, "one of standard, unit, minmax, none, got 'robust'"),
        ({"salt": "00"}, "digest of its content"),
        ({"digest": "0" * 64}, "digest of its content"),
        ({"digest": None}, "digest must be text, got nothing"),
        ({"numbers": 3}, "numbers must be a list of tables, got 3"),
        ({"numbers": []}, "digest of its content"),
        ({"numbers": [{"name": "a", "centre": 0.0, "spread": 0.0}]}, "above 0"),
        ({"numbers": [{"name": "a", "centre": 0.0, "spread": float("nan")}]}, "a finite number"),
        ({"numbers": [{"name": "a", "centre": 10**400, "spread": 1.0}]}, "a finite number"),
        (
            {"numbers": [{"name": "a", "centre": "0", "spread": 1.0}]},
            r"numbers\[0\].centre must be a number, got text",
        ),
        ({"numbers": [{"name": "t0", "centre": 0.0, "spread": 1.0}]}, "each once"),
        ({"one_hot": [{"name": "t0", "categories": ["x", "x"]}]}, "each once"),
        ({"one_hot": [{"name": "t0", "categories": []}]}, "needs categories"),
        (
            {"one_hot": [{"name": "t0", "categories": [1]}]},
            r"one_hot\[0\].categories\[0\] must be text",
        ),
        ({"extra": 1}, "extra is not a key"),
    ],
)
def test_a_changed_file_is_refused(saved, values, says):
    with pytest.raises(FeatureError, match=says):
        Scaling.load(changed(saved[1], **values))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"3", b'{"format": 1}'])
def test_a_file_that_is_no_scaling_is_refused(tmp_path, content):
    path = tmp_path / "scaling.json"
    path.write_bytes(content)
    with pytest.raises(FeatureError, match=r"must (be|have)"):
        Scaling.load(path)


def test_a_file_that_cannot_be_read_or_written_is_refused(saved, tmp_path):
    with pytest.raises(FeatureError, match="cannot read the scaling"):
        Scaling.load(tmp_path / "no.json")
    with pytest.raises(FeatureError, match="cannot write the scaling"):
        saved[0].save(tmp_path / "no" / "scaling.json")


def test_rows_that_overflow_are_refused():
    scaling = Scaling("standard", ("a",), np.array([0.0]), np.array([1e-300]), {})
    with pytest.raises(FeatureError, match="must be finite, got 1 that are not"):
        scaling.apply(RawRows(np.array([[1e300], [0.0]])))


@pytest.mark.parametrize(
    ("X", "method", "says"),
    [
        (np.empty((0, 1)), "standard", "fitted on rows, got none"),
        (np.ones((2, 1)), "robust", "one of standard, unit, minmax, none, got 'robust'"),
        (np.array([[1e308], [-1e308]]), "standard", r"below 1e\+150, .* got 2 rows"),
        (np.array([[1e308], [-1.0]]), "minmax", r"below 1e\+150, .* got 1 rows"),
        (np.array([[np.nan], [1.0]]), "minmax", r"below 1e\+150, .* got 1 rows"),
        (np.ones((2, 0)), "standard", "needs columns"),
    ],
)
def test_what_cannot_be_fitted_is_refused(X, method, says):
    with pytest.raises(FeatureError, match=says):
        fitted(X, method)
