import numpy as np
import pytest
from benchmarks.peers.ckks_layout import SMALL_STEPS, Layout
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

layouts = st.builds(
    lambda n_arms, sixth: Layout(n_arms, 6 * sixth, n_arms * 26 * sixth + n_arms),
    st.integers(1, 4),
    st.integers(1, 9),
)


def rotate(slots, steps):
    return np.roll(slots, -steps)


def times(layout, diagonals, turned):
    """The encrypted evaluation on plain slots: multiplications, additions and rotations."""
    small = [rotate(turned, layout.n_arms * step) for step in range(SMALL_STEPS)]
    return sum(
        rotate(
            sum(x * p for x, p in zip(small, diagonals[step : step + SMALL_STEPS], strict=False)),
            layout.n_arms * step,
        )
        for step in layout.large_steps
    )


def padded(layout, slots):
    return np.pad(slots, (0, layout.n_slots - len(slots)))


def draw(layout, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((layout.n_arms, layout.dim))
    return rng, X, rng.standard_normal((layout.dim, layout.dim)), rng.standard_normal(layout.dim)


@given(layout=layouts, seed=st.integers(0, 2**32 - 1))
def test_slots_multiply_to_the_means_and_squared_widths_of_all_arms(layout, seed):
    rng, X, A, theta = draw(layout, seed)
    y = times(layout, layout.diagonals(A), layout.turned(X))
    theta_for_all = layout.between(np.tile(theta, (layout.n_arms, 1)))
    terms = (y + theta_for_all) * layout.upright(X) + layout.blinding(rng, amplitude=9.0)
    means, squared_widths = layout.sums(padded(layout, terms.real))
    assert_allclose(means, X @ theta, atol=1e-9)
    assert_allclose(squared_widths, np.einsum("ai,ij,aj->a", X, A, X), atol=1e-8)
    assert_allclose(layout.vectors(padded(layout, y.real)), X @ A.T, atol=1e-9)


@given(layout=layouts, seed=st.integers(0, 2**32 - 1))
def test_an_outer_product_of_slots_is_laid_out_as_diagonals(layout, seed):
    _, _, _, v = draw(layout, seed)
    for_all = np.tile(v, (layout.n_arms, 1))
    turned, windowed = layout.turned(for_all).conj(), layout.windowed(for_all)
    for shift, wanted in enumerate(layout.diagonals(np.outer(v, v))):
        large = shift // SMALL_STEPS * SMALL_STEPS
        moved = rotate(windowed, -layout.n_arms * large)
        made = rotate(turned, layout.n_arms * (shift - large)) * moved
        assert_allclose(made[: len(wanted)], wanted[: len(made)], atol=1e-12)


def test_one_arm_is_opened_and_no_other():
    layout = Layout(3, 12, 3 * 60)
    _, X, _, _ = draw(layout, 0)
    opened = layout.first_region((layout.upright(X) * layout.one_arm(1)).real)
    assert_allclose(opened, X * np.array([[0.0], [1.0], [0.0]]))


def test_blinding_hides_every_term():
    layout = Layout(2, 12, 2 * 60)
    blinding = layout.blinding(np.random.default_rng(0), amplitude=100.0)
    assert np.abs(blinding.real).min() > 0.0
    assert np.abs(blinding.imag).min() > 0.0


@pytest.mark.parametrize(
    ("dim", "n_slots", "message"),
    [(10, 4096, "multiple of 6, got 10"), (102, 4079, "4080 slots are wanted, got 4079")],
)
def test_sizes_that_do_not_fit_are_refused(dim, n_slots, message):
    with pytest.raises(ValueError, match=message):
        Layout(10, dim, n_slots)
