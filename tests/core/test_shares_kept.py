"""Roles of secret shares that are kept between two windows go on word for word."""

import numpy as np
import pytest
from shares_world import local_shares, small_terms, split_rows, unit_rows

from vfbandits.core.shares.active import ActiveServer
from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.helper import Helper
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import WindowDeal, read_message
from vfbandits.errors import SharesError, SnapshotError, WireError

FORMS = [{}, {"reads": "widths", "beta": 0.5, "posterior_scale": 0.0}]


def again(kept):
    return Kept.from_bytes(kept.to_bytes())


def run_rounds(local, rng, n):
    """Decisions, of which three in four get their reward: as many as a window has slots for."""
    seen = []
    for k in range(n):
        X = unit_rows(rng, 3, local.terms.dim)
        opened = local.decide(split_rows(X, local.terms))
        event = local.pick(opened, opened.arm)
        seen.append((event, opened.arm))
        if k % 4:
            local.learn(event, 0.5)
    return seen


@pytest.mark.parametrize("form", FORMS)
def test_kept_roles_go_on_as_if_they_had_not_been(form):
    terms = small_terms(**form)
    local, other = (local_shares(terms, seed=3) for _ in range(2))
    for shares in (local, other):
        run_rounds(shares, np.random.default_rng(1), 8)
        assert (shares.active.needs_deal, shares.active.window) == (True, 2)
    local.dealer = Dealer.restore(terms, again(local.dealer.snapshot()))
    for name, kind in (("active", ActiveServer), ("helper", Helper)):
        role = getattr(local, name)
        secrets = getattr(local.dealer, f"{name}_secrets")()
        contexts = list(role.open_contexts().items())
        assert contexts
        setattr(
            local, name, kind.restore(terms, secrets, again(role.snapshot()), contexts=contexts)
        )
    rounds = [run_rounds(shares, np.random.default_rng(2), 12) for shares in (local, other)]
    assert rounds[0] == rounds[1]
    for mine, theirs in ((local.active, other.active), (local.helper, other.helper)):
        for a, b in zip(mine.held(), theirs.held(), strict=True):
            assert a.tobytes() == b.tobytes()


def test_a_role_is_not_kept_within_a_window():
    local = local_shares(small_terms())
    run_rounds(local, np.random.default_rng(0), 1)
    for role in (local.active, local.helper):
        with pytest.raises(SharesError, match="between two windows"):
            role.snapshot()


@pytest.mark.parametrize("form", FORMS)
def test_a_dealt_window_comes_back_from_its_bytes(form):
    data = Dealer(small_terms(**form)).deal().to_bytes()
    assert WindowDeal.from_bytes(data).to_bytes() == data
    for cut in (3, 20, len(data) // 2, len(data) - 1):
        with pytest.raises(WireError):
            WindowDeal.from_bytes(data[:cut])


def test_what_is_cut_short_or_of_other_terms_is_refused():
    kept = Dealer(small_terms()).snapshot()
    data = kept.to_bytes()
    for cut in (0, 2, 30, len(data) - 8):
        with pytest.raises(SnapshotError, match="secret shares"):
            Kept.from_bytes(data[:cut])
    with pytest.raises(SnapshotError, match="other terms"):
        Dealer.restore(small_terms(widths=(2, 2)), kept)
    with pytest.raises(WireError):
        read_message(b"\xee")


def test_no_secret_is_in_a_repr():
    dealer = Dealer(small_terms())
    kept = dealer.snapshot()
    assert repr(kept) == "Kept()"
    secret = dealer.active_secrets().own.to_bytes().hex()
    assert secret in kept.header["secrets"]
    assert secret not in repr(dealer) + repr(dealer.active_secrets())
