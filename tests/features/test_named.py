"""Features by name: the rows that a store would give, one clear error, and free-form ones."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from worlds import MORE

from vfbandits.errors import ContextError, FeatureError
from vfbandits.features.fit import fit_scaling, hash_scaling
from vfbandits.features.memory import MemoryStore
from vfbandits.features.named import NamedRows, flatten
from vfbandits.features.open import Features
from vfbandits.features.scaling import METHODS, RawRows, Scaling

NUMBERS = ("age", "pay")
CITIES = ("Bern", "Oslo", "Rome")
PEOPLE = st.lists(
    st.tuples(
        st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.sampled_from(CITIES), st.text(max_size=5)
    ),
    min_size=1,
    max_size=8,
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def fitted(people, method, **more):
    numbers = np.array([person[:2] for person in people])
    texts = tuple([person[place] for person in people] for place in (2, 3))
    raw = RawRows(numbers, texts)
    more = {"numbers": NUMBERS, "categories": ("city",), "hashed": {"page": 4}, **more}
    return fit_scaling(raw, method=method, **more), raw


def named(person):
    return dict(zip((*NUMBERS, "city", "page"), person, strict=True))


@given(people=PEOPLE, method=st.sampled_from(METHODS), clip=st.none() | st.floats(0.01, 10.0))
@settings(max_examples=40 * MORE)
def test_a_row_by_name_is_the_one_of_the_store_bit_for_bit(people, method, clip):
    scaling, raw = fitted(people, method)
    keys = [(str(number),) for number in range(len(people))]
    stored = Features(MemoryStore(keys, raw, scaling=scaling), scaling=scaling, clip_norm=clip)
    rows = NamedRows(scaling, clip_norm=clip).rows([*map(named, people)], of="the user")
    assert rows.tobytes() == stored.block(keys).values.tobytes()


@given(people=PEOPLE, method=st.sampled_from(METHODS), left_out=st.sets(st.sampled_from("abcd")))
@settings(max_examples=40 * MORE)
def test_a_name_that_is_left_out_or_null_is_zero_and_the_others_stay(people, method, left_out):
    scaling, _ = fitted(people, method)
    names = NamedRows(scaling)
    features = named(people[0])
    gone = {name for letter, name in zip("abcd", features, strict=True) if letter in left_out}
    whole = names.rows([features], of="the user")
    is_gone = np.isin(scaling.column_of_each, sorted(gone))
    without = {name: value for name, value in features.items() if name not in gone}
    for some in (without, features | dict.fromkeys(gone)):
        assert_array_equal(names.rows([some], of="the user"), np.where(is_gone, 0.0, whole))


SCALING = Scaling(
    "standard",
    ("age",),
    np.array([40.0]),
    np.array([10.0]),
    {"city": CITIES},
    hashed={"page": 8},
)


@pytest.mark.parametrize(
    ("features", "says"),
    [
        ({"agee": 1}, "the user: 'agee' is not a feature, but 'age' is; features are age, city,"),
        ({"x" * 300: 1}, "is not a feature; features are age, city, page"),
        ({"age": "31"}, "'age' must be a number, got text"),
        ({"age": 2 * 10**100}, "'age' must be within ±1e"),
        ({"city": 1.5}, "'city' must be text or a whole number, got a float"),
        ({"page": True}, "'page' must be text or a whole number, got true or false"),
    ],
)
def test_what_is_wrong_with_a_feature_is_one_error_without_its_value(features, says):
    with pytest.raises(ContextError, match=says) as caught:
        NamedRows(SCALING).rows([features], of="the user")
    assert "31" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_number_may_be_a_flag_and_a_category_a_whole_number():
    scaling = Scaling("none", ("vip",), np.zeros(1), np.ones(1), {"plan": ("1", "2")})
    assert_array_equal(
        NamedRows(scaling).rows([{"vip": True, "plan": 2}], of="the user"), [[1.0, 0.0, 1.0]]
    )


def test_hashed_places_and_signs_never_change():
    """Models that were learnt depend on them: these are constants of the format."""
    scaling = hash_scaling({"page": 8}, rest=8)
    rows = NamedRows(scaling).rows(
        [{"page": "/home"}, {"page": "/blåbær"}, {"os": "iOS"}, {"n": np.e - 1.0}], of="the user"
    )
    places = [(int(np.flatnonzero(row)[0]), round(float(row.sum()), 12)) for row in rows]
    assert places == [(3, 1.0), (2, -1.0), (11, 1.0), (15, 1.0)]


@given(st.sets(st.text(max_size=6), min_size=1, max_size=50), st.integers(1, 64))
def test_a_hashed_text_is_one_sign_in_its_own_columns(texts, width):
    scaling = hash_scaling({"a": 3, "page": width})
    rows = NamedRows(scaling).rows([{"page": text} for text in texts], of="the user")
    assert (np.abs(rows).sum(axis=1) == 1.0).all()
    assert not rows[:, :3].any()


def test_signs_and_places_are_spread_evenly():
    scaling = hash_scaling({"page": 16})
    rows = NamedRows(scaling).rows([{"page": f"/{i}"} for i in range(8_000)], of="the user")
    per_place = np.abs(rows).sum(axis=0)
    assert per_place.min() > 400  # 500 ± 22
    assert per_place.max() < 600
    assert abs(rows.sum()) < 500  # 0 ± 89


def test_hashing_is_kept_in_the_file_and_in_the_digest(tmp_path):
    scaling = hash_scaling({"page": 8}, rest=16)
    loaded = Scaling.load(scaling.save(tmp_path / "scaling.json"))
    assert (loaded.digest, loaded.hashed, loaded.rest) == (scaling.digest, {"page": 8}, 16)
    assert loaded.scaled_columns == scaling.scaled_columns
    document = json.loads((tmp_path / "scaling.json").read_text())
    document["rest"] = 17
    (tmp_path / "scaling.json").write_text(json.dumps(document))
    with pytest.raises(FeatureError, match="it was changed"):
        Scaling.load(tmp_path / "scaling.json")


@pytest.mark.parametrize(
    ("hashed", "rest", "says"),
    [
        ({}, 0, "a scaling needs columns"),
        ({"page": 0}, 0, "'page' needs a width from 1 to 65536, got 0"),
        ({}, 10**6, "rest needs a width from 0 to 65536, got 1000000"),
        ({}, -1, "rest needs a width"),
    ],
)
def test_widths_of_hashing_are_checked(hashed, rest, says):
    with pytest.raises(FeatureError, match=says):
        hash_scaling(hashed, rest=rest)


def test_free_form_features_become_dotted_names():
    features = [
        {"age": 31, "device": {"os": "iOS", "sizes": [3, 4.5]}, "vip": True, "gone": None},
        {"tags": ["a", {"kind": "b"}, ["c"]], "_secret": "x", "deep": {"_no": 1, "yes": ""}},
        "loose",
    ]
    assert [*flatten(features)] == [
        ("age", 31),
        ("device.os", "iOS"),
        ("device.sizes.0", 3),
        ("device.sizes.1", 4.5),
        ("vip", 1.0),
        ("tags", "a"),
        ("tags.kind", "b"),
        ("tags", "c"),
        ("deep.yes", ""),
        ("", "loose"),
    ]


@given(tree=TREES, longest=st.floats(0.1, 100.0))
@settings(max_examples=100 * MORE)
def test_free_form_features_are_never_refused_and_never_long(tree, longest):
    scaling = Scaling("unit", ("age",), np.zeros(1), np.full(1, 1e-9), {"city": ("Bern",)}, rest=8)
    names = NamedRows(scaling)
    pairs = [*flatten(tree), *flatten({"age": tree, "city": tree})]
    rows = names.free_rows([pairs, []], longest=longest)
    assert np.isfinite(rows).all()
    assert (np.linalg.norm(rows, axis=1) <= longest * (1.0 + 1e-12)).all()
    assert not rows[1].any()
    assert rows.tobytes() == names.free_rows([pairs, []], longest=longest).tobytes()


def test_deep_nesting_is_walked_without_recursion():
    tree = "leaf"
    for _ in range(100_000):
        tree = [tree]
    assert [*flatten(tree)] == [("", "leaf")]


def test_long_names_are_kept_apart_and_short():
    tree = {"x" * 100_000: {str(i): i for i in range(1_000)}, "x" * 100_001: 1}
    names = [name for name, _ in flatten(tree)]
    assert len(set(names)) == 1_001
    assert max(map(len, names)) <= 256


def test_a_free_form_feature_that_fits_a_column_is_scaled_as_that_column():
    names = NamedRows(Scaling("none", ("a.n",), np.zeros(1), np.ones(1), {"c": ("x",)}, rest=4))
    (fits, other) = names.free_rows(
        [flatten({"a": {"n": 3}, "c": "x"}), flatten({"a": {"n": "3"}, "c": 1})], longest=100.0
    )
    assert_array_equal(fits, [3.0, 1.0, 0.0, 0.0, 0.0, 0.0])
    assert not other[:2].any()
    assert other[2:].any()
