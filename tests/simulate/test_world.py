"""The synthetic worlds are what they say they are, and the same each time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from vfbandits.errors import SettingError
from vfbandits.simulate import world as world_module
from vfbandits.simulate.world import World, WorldSettings, children, even_widths

LAYOUTS = ("per_arm", "outer", "disjoint")
WIDTHS = {"shop": 2, "bank": 3, "news": 1}


def make(layout="per_arm", seed=0, **settings):
    return World(
        WorldSettings(WIDTHS, n_arms=4, layout=layout, arm_dim=3, **settings),
        np.random.SeedSequence(seed),
    )


def same(one, other):
    assert_array_equal(one.contexts, other.contexts)
    assert_array_equal(one.rewards, other.rewards)
    assert_array_equal(one.expected, other.expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_contexts_arm_features_and_theta_star_have_unit_length(layout):
    world = make(layout)
    for given_round in world.rounds(20):
        assert_allclose(np.linalg.norm(given_round.contexts, axis=-1), 1.0, atol=1e-14)
    assert_allclose(np.linalg.norm(world.theta_star, axis=-1), 1.0, atol=1e-14)
    if layout == "outer":
        assert_allclose(np.linalg.norm(world.arm_features, axis=1), 1.0, atol=1e-14)


def test_expected_rewards_are_context_times_theta_star():
    world = make("per_arm")
    for one in world.rounds(10):
        assert_allclose(one.expected, [x @ world.theta_star for x in one.contexts], atol=1e-14)


def test_expected_rewards_in_layout_outer_are_user_times_arm_times_theta_star():
    world = make("outer")
    for one in world.rounds(10):
        rows = [np.kron(one.contexts, w) for w in one.arm_features]
        assert_allclose(one.expected, [x @ world.theta_star for x in rows], atol=1e-14)


def test_expected_rewards_in_layout_disjoint_have_a_theta_star_for_each_arm():
    world = make("disjoint")
    for one in world.rounds(10):
        assert one.arms == (0, 1, 2, 3)
        assert_allclose(one.expected, [one.contexts @ t for t in world.theta_star], atol=1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_blocks_side_by_side_are_the_contexts(layout):
    for one in make(layout).rounds(5):
        assert list(one.blocks) == list(WIDTHS)
        assert_array_equal(np.concatenate(list(one.blocks.values()), axis=-1), one.contexts)


def test_noise_is_a_standard_deviation_and_independent_from_arm_to_arm():
    residuals = np.array([r.rewards - r.expected for r in make(noise=0.05).rounds(20_000)])
    assert_allclose(residuals.std(), 0.05, rtol=0.02)
    assert_allclose(residuals.mean(), 0.0, atol=0.001)
    assert abs(np.corrcoef(residuals[:, 0], residuals[:, 1])[0, 1]) < 0.03


def test_directions_are_uniform_on_the_sphere():
    contexts = np.array([one.contexts for one in make().rounds(20_000)]).reshape(-1, 6)
    assert_allclose(contexts.T @ contexts / len(contexts), np.eye(6) / 6, atol=0.005)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_world_asked_twice_yields_the_very_same_rounds(layout):
    world = make(layout)
    for one, other, again in zip(
        world.rounds(50), world.rounds(50), make(layout).rounds(50), strict=True
    ):
        same(one, other)
        same(one, again)


@given(short=st.integers(1, 40), seed=st.integers(0, 2**32))
def test_a_longer_run_begins_with_the_shorter_one(short, seed):
    world = make(seed=seed)
    for one, other in zip(world.rounds(short), world.rounds(60), strict=False):
        same(one, other)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_how_many_rounds_are_made_at_once_does_not_change_them(layout, monkeypatch):
    by_default = list(make(layout).rounds(30))
    monkeypatch.setattr(world_module, "NUMBERS_PER_BATCH", 7 * 4 * 6)
    for one, other in zip(by_default, make(layout).rounds(30), strict=True):
        assert_array_equal(one.contexts, other.contexts)
        assert_allclose(one.rewards, other.rewards, atol=1e-14)  # products may round otherwise


def test_different_seeds_make_different_worlds():
    one, other = make(seed=1), make(seed=2)
    assert np.abs(one.theta_star - other.theta_star).max() > 0.01
    contexts = [next(w.rounds(1)).contexts for w in (one, other)]
    assert np.abs(contexts[0] - contexts[1]).max() > 0.01


def test_making_a_world_leaves_its_seed_as_it_was():
    seed = np.random.SeedSequence(3)
    one, other = World(WorldSettings(WIDTHS), seed), World(WorldSettings(WIDTHS), seed)
    assert_array_equal(one.theta_star, other.theta_star)
    assert seed.n_children_spawned == 0


def test_children_of_a_seed_are_those_that_numpy_would_spawn():
    ours = children(np.random.SeedSequence(5), 3)
    theirs = np.random.SeedSequence(5).spawn(3)
    assert [c.spawn_key for c in ours] == [c.spawn_key for c in theirs]
    assert [c.generate_state(2).tolist() for c in ours] == [
        c.generate_state(2).tolist() for c in theirs
    ]


def test_rounds_are_made_as_they_are_asked_for():
    assert next(make().rounds(10**12)).contexts.shape == (4, 6)


@given(n_participants=st.integers(1, 20), extra=st.integers(0, 50))
def test_even_widths_add_up_and_differ_by_one_at_most(n_participants, extra):
    widths = list(even_widths(n_participants + extra, n_participants).values())
    assert sum(widths) == n_participants + extra
    assert max(widths) - min(widths) <= 1
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_arms": 0}, "arms must be a whole number from 1, got 0"),
        ({"n_arms": 2.0}, "arms must be a whole number from 1, got 2.0"),
        ({"noise": -0.1}, "noise must be a number of at least 0, got -0.1"),
        ({"noise": float("nan")}, "noise must be"),
        ({"layout": "round"}, "layout must be one of per_arm, outer, disjoint, got 'round'"),
        ({"layout": "outer", "arm_dim": 0}, "arm_dim must be a whole number from 1, got 0"),
        ({"widths": {"shop": 1}}, "needs an active and a passive participant, got 1"),
        ({"widths": {"shop": 1, "bank": 0}}, "width of 'bank'"),
    ],
)
def test_settings_that_make_no_world_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        WorldSettings(**{"widths": WIDTHS, **settings})


def test_no_rounds_at_all_are_refused():
    with pytest.raises(SettingError, match="rounds must be a whole number from 1, got 0"):
        make().rounds(0)


def test_more_participants_than_features_are_refused():
    with pytest.raises(SettingError, match="each of 5 participants a feature, got 3"):
        even_widths(3, 5)
