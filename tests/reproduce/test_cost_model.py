"""The paper's cost model against counts made by hand."""

import pytest

from vfbandits.reproduce.catalogue import experiments_folder
from vfbandits.reproduce.folder_module import load_module


@pytest.fixture(scope="module")
def model():
    return load_module(experiments_folder() / "fig5_cost", "model")


def test_masking_counts_every_product_and_every_sum(model):
    # d = 4 over two participants of 2: each makes a (4, 2) product, 8 times and 4 plus; then the
    # two are added, 4 plus: 28 for an arm.
    assert model.masking(4, 3, 2) == 3 * (2 * (8 + 4) + 4)
    assert model.masking(4, 3, 4) == model.masking(4, 3, 2)  # M drops out


def test_linucb_of_two_features_and_one_arm(model):
    rewards = 2 + 1
    inverse = 8
    widths = (4 + 2) + (2 + 1) + 3  # Λ⁻¹x, x'(…), then root, times β, plus reward
    argmax = 1
    update = (4 + 4) + (2 + 2) + (4 + 2)  # Λ + xx', u + rx, Λ⁻¹u
    assert model.linucb(2, 1) == rewards + inverse + widths + argmax + update


def test_lints_of_two_features_and_one_arm(model):
    sample = 4 + 8 + 2 + (4 + 2) + 2  # v²Λ⁻¹, Cholesky, normals, factor times them, plus θ
    assert model.lints(2, 1) == sample + 3 + 1 + 8 + 18


def test_relative_cost_spreads_the_drawing_of_the_mask_over_all_rounds(model):
    ratio = model.relative(100, dim=2, n_arms=1, n_participants=2, horizon=10)
    assert ratio == pytest.approx((12 + 10 * 6 + 10 * 100) / 1000)


def test_communication_is_the_papers_formula_and_not_its_larger_number(model):
    assert model.bytes_per_step(1000, 1000, 5) == 40_000_000  # the paper's 0.04 GB
    assert model.bytes_per_step(5000, 1000, 5) == 200_000_000  # where it says 6.25 GB
    assert model.bytes_in_all(10, 3, 2, 7) == 8 * (100 + 7 * 3 * 2 * 10)
