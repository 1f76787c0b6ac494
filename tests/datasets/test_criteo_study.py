"""In the simulator the effect of more features can be seen, and outer addition's lack of it."""

import pickle

import pytest

import vfbandits as vfb
from vfbandits.datasets.criteo.study import CriteoWorldCell, play_in_world, world_cells


@pytest.mark.parametrize("context", ["addition", "product"])
def test_a_cell_gives_the_same_row_after_a_journey(context):
    cell = CriteoWorldCell(vfb.LinTS(posterior_scale=0.1), 0.8, 3, 100, context)
    assert play_in_world(pickle.loads(pickle.dumps(cell))) == play_in_world(cell)  # noqa: S301


def test_with_the_product_more_features_bring_more_clicks():
    few, many = (
        play_in_world(CriteoWorldCell(vfb.LinUCB(beta=0.3), ratio, horizon=3_000))
        for ratio in (0.2, 1.0)
    )
    assert few.relative_ctr + 0.1 < many.relative_ctr < many.best_relative_ctr
    assert (few.random, few.optimum) == (many.random, many.optimum)  # the same rounds


def test_with_addition_they_do_not():
    few, many = (
        play_in_world(CriteoWorldCell(vfb.LinUCB(beta=0.3), ratio, 0, 3_000, "addition"))
        for ratio in (0.2, 1.0)
    )
    assert max(few.relative_ctr, many.relative_ctr) < 1.15
    assert abs(few.relative_ctr - many.relative_ctr) < 0.1


def test_the_grid_has_every_context_ratio_and_seed():
    grid = list(world_cells(n_seeds=2))
    assert len(grid) == len(set(grid)) == 2 * 3 * 2
