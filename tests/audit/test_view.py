"""Views: a mask that is one, halves that do not meet, and what the sum shows."""

import numpy as np
import pytest
from audit_tables import names, spherical, view_of
from numpy.testing import assert_allclose, assert_array_equal

from vfbandits.audit.result import Level
from vfbandits.audit.view import look, simulate_others
from vfbandits.core.arrays import PlainBlock
from vfbandits.core.mask import deal_dense
from vfbandits.errors import SettingError


@pytest.mark.parametrize("level", [Level.MASK, Level.SUM])
def test_inner_products_are_seen_as_they_are(level):
    view = view_of(spherical, level=level, n=100)
    assert_allclose(view.masked @ view.masked.T, view.joint @ view.joint.T, atol=1e-10)
    assert view.dim == (6 if level is Level.MASK else 12)
    assert len(view.masked) + len(view.public) == 100


def test_a_sum_shows_what_dense_masks_with_the_active_participants_part_taken_out_show():
    view = view_of(spherical, level=Level.SUM, n=100)
    shares = deal_dense([4, 6, 6], entropy=np.random.default_rng(1).bytes)
    blocks = np.split(view.joint, 2, axis=1)
    seen = sum(
        share.mask(PlainBlock(np.ascontiguousarray(block)))
        for share, block in zip(shares[1:], blocks, strict=True)
    )
    assert_allclose(seen @ seen.T, view.masked @ view.masked.T, atol=1e-10)


def test_the_same_seed_gives_the_same_view():
    first, second = (view_of(spherical, level=Level.SUM, n=100, seed=3) for _ in range(2))
    assert_array_equal(first.masked, second.masked)


def test_the_others_may_have_any_number_of_columns():
    values = spherical(np.random.default_rng(0), 200, 6)
    for count in (0, 4, 20):
        others = simulate_others(values, count, rng=np.random.default_rng(1))
        assert others.shape == (200, count)
        view = look(values, names(6), level=Level.SUM, rng=np.random.default_rng(2), others=others)
        assert view.dim == 6 + count


@pytest.mark.parametrize(("n", "d", "wanted"), [(39, 3, 40), (99, 20, 100), (0, 2, 40)])
def test_a_table_of_few_rows_is_refused(n, d, wanted):
    with pytest.raises(SettingError, match=f"{d} columns needs at least {wanted} .*, got {n}"):
        look(np.zeros((n, d)), names(d), level=Level.MASK, rng=np.random.default_rng(0))
