"""Policy against holdback: what enters, in which order, and how often it is wrong."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from vfbandits.campaign import comparison
from vfbandits.campaign.comparison import FIRST_EVENTS, MIN_EVENTS, Comparison
from vfbandits.core.anytime import standard_errors
from vfbandits.core.snapshot import Record
from vfbandits.errors import SnapshotError

N_EVENTS = 100_000


def compared(is_policy, rewards, *, holdback):
    """In the order of decisions, one after the other."""
    made = Comparison()
    for place, (of_policy, reward) in enumerate(zip(is_policy, rewards, strict=True), start=1):
        made.enter(place, holdback=holdback, is_policy=bool(of_policy), at=1.0)
        made.settle(place, float(reward))
    return made


def vectorised(is_policy, rewards, *, holdback):
    """Mean and standard error of the difference after each event, of many runs at once."""

    def running(values):
        return np.cumsum(values, axis=1)

    sides = []
    for of_group in (is_policy, ~is_policy):
        n = running(of_group)
        mean = running(np.where(of_group, rewards, 0.0)) / np.maximum(n, 1)
        squares = running(np.where(of_group, rewards**2, 0.0)) - n * mean**2
        sides.append((n, mean, np.maximum(squares, 0.0) / np.maximum(n - 1, 1)))
    (n1, mean1, variance1), (n0, mean0, variance0) = sides

    def before(values):
        return np.pad(values, ((0, 0), (1, 0)))[:, :-1]

    m1, m0 = before(mean1), before(mean0)
    of_event = (
        m1 - m0 + np.where(is_policy, (rewards - m1) / (1.0 - holdback), -(rewards - m0) / holdback)
    )
    counts = before(np.minimum(n1, n0)) >= FIRST_EVENTS
    n = running(counts)
    mean = running(np.where(counts, of_event, 0.0)) / np.maximum(n, 1)
    variance = np.maximum(variance1, variance0) / (holdback * (1.0 - holdback))
    return n, mean, np.sqrt(variance / np.maximum(n, 1)), np.minimum(n1, n0) >= MIN_EVENTS


def widths(n_events, alpha):
    return np.array([1e300, *(standard_errors(n, alpha=alpha) for n in range(1, n_events + 1))])


def first_alarms(draw, *, holdback, n_runs, seed=5, alpha=0.05, n_events=N_EVENTS):
    """The event after which each run is stopped; ``n_events`` for one that never is."""
    rng = np.random.default_rng(seed)
    z = widths(n_events, alpha / 2.0)
    alarms = []
    for _ in range(0, n_runs, 10):
        is_policy = rng.random((10, n_events)) >= holdback
        rewards = draw(rng, is_policy)
        n, mean, error, is_enough = vectorised(is_policy, rewards, holdback=holdback)
        stops = (mean + z[n] * error < 0.0) & is_enough
        alarms += [int(run.argmax()) if run.any() else n_events for run in stops]
    return np.array(alarms)


def conversions(rate, *, worse=1.0):
    return lambda rng, is_policy: (
        rng.random(is_policy.shape) < np.where(is_policy, rate * worse, rate)
    ).astype(float)


def drifting(rng, is_policy):
    """A baseline common to both groups, which swings between 5 % and 25 %."""
    rate = 0.05 + 0.2 * np.abs(np.sin(np.arange(is_policy.shape[1]) / 8_000.0))
    return (rng.random(is_policy.shape) < rate).astype(float)


def heavy(rng, is_policy):
    return np.exp(1.5 * rng.standard_normal(is_policy.shape))


def rare_and_heavy(rng, is_policy):
    return conversions(0.01)(rng, is_policy) * np.exp(rng.standard_normal(is_policy.shape))


NO_LOSS = {
    "1 % conversions": conversions(0.01),
    "10 % conversions": conversions(0.1),
    "drifting baseline": drifting,
    "heavy tail": heavy,
    "rare and heavy": rare_and_heavy,
}


def test_a_policy_that_does_not_lose_is_seldom_stopped_in_a_hundred_thousand_events():
    alarms = first_alarms(conversions(0.01), holdback=0.05, n_runs=40)
    assert (alarms < N_EVENTS).sum() <= 2


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("holdback", [0.05, 0.2, 0.5])
@pytest.mark.parametrize("name", NO_LOSS)
def test_false_alarms_stay_below_five_of_a_hundred_whatever_the_rewards(name, holdback):
    alarms = first_alarms(NO_LOSS[name], holdback=holdback, n_runs=100)
    assert (alarms < N_EVENTS).sum() <= 5


@pytest.mark.parametrize(("rate", "holdback", "within"), [(0.5, 0.1, 5_000), (0.1, 0.2, 30_000)])
def test_a_policy_that_is_a_fifth_worse_is_stopped(rate, holdback, within):
    alarms = first_alarms(conversions(rate, worse=0.8), holdback=holdback, n_runs=20)
    assert np.median(alarms) <= within
    assert (alarms < N_EVENTS).all()


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), holdback=st.sampled_from([0.05, 0.3, 0.7]))
def test_one_by_one_it_is_what_the_formula_says_of_all(seed, holdback):
    rng = np.random.default_rng(seed)
    is_policy = rng.random((1, 1_500)) >= holdback
    rewards = 1e6 + rng.standard_normal((1, 1_500))
    made = compared(is_policy[0], rewards[0], holdback=holdback)
    n, mean, error, is_enough = vectorised(is_policy, rewards - 1e6, holdback=holdback)
    found = made.difference(min_events=MIN_EVENTS)
    assert (found is not None) == is_enough[0, -1]
    if found is not None:
        half = standard_errors(int(n[0, -1])) * error[0, -1]
        assert_allclose(found.difference, mean[0, -1], atol=1e-6)
        assert_allclose(found.high - found.difference, half, rtol=1e-6)


@given(
    n_events=st.integers(1, 40),
    order=st.randoms(use_true_random=False),
    left_out=st.sets(st.integers(1, 40)),
)
def test_the_order_of_rewards_does_not_matter_only_that_of_decisions(n_events, order, left_out):
    places = [*range(1, n_events + 1)]
    rewards = {place: order.random() for place in places}
    straight, mixed = Comparison(), Comparison()
    for made in (straight, mixed):
        for place in places:
            made.enter(place, holdback=0.4, is_policy=place % 3 > 0, at=float(place))
    shuffled = [*places]
    order.shuffle(shuffled)
    for made, some in ((straight, places), (mixed, shuffled)):
        for place in some:
            if place in left_out:
                made.end(place, None)
            else:
                made.settle(place, rewards[place])
    assert mixed.pack() == straight.pack()
    assert len(mixed) == 0
    assert sum(mixed.whole.n_events) == len([p for p in places if p not in left_out])


def test_an_event_waits_for_all_that_were_decided_before_it():
    made = Comparison()
    for place in (1, 2, 3):
        made.enter(place, holdback=0.5, is_policy=True, at=7.0)
    made.settle(3, 1.0)
    made.settle(2, 1.0)
    assert (made.whole.n_events, len(made)) == ((0, 0), 3)
    made.settle(1, 1.0)
    assert (made.whole.n_events, len(made), made.since) == ((3, 0), 0, 7.0)


def test_only_so_many_events_wait_to_enter_and_the_first_of_them_stay(monkeypatch):
    monkeypatch.setattr(comparison, "MAX_WAITING", 3)
    made = Comparison()
    for place in range(1, 6):
        made.enter(place, holdback=0.5, is_policy=True, at=1.0)
    for place in (5, 4, 3, 2, 1):
        made.settle(place, 1.0)
    assert (made.whole.n_events, len(made)) == ((3, 0), 0)


def test_in_the_order_of_rewards_a_policy_that_converts_sooner_would_be_stopped():
    """Same conversions in both groups; those of the holdback come late within the wait."""
    rng = np.random.default_rng(8)
    wrong = right = 0
    for _ in range(10):
        n = 40_000
        is_policy = rng.random(n) >= 0.2
        rewards = (rng.random(n) < 0.1).astype(float)
        wait = 8_000.0
        delay = np.where(rewards == 0.0, wait, np.where(is_policy, 0.0, 0.95 * wait))
        order = np.argsort(np.arange(n) + delay, kind="stable")
        z = widths(n, 0.025)
        for by_reward in (True, False):
            some = order if by_reward else np.arange(n)
            runs = (is_policy[some][None], rewards[some][None])
            count, mean, error, is_enough = vectorised(*runs, holdback=0.2)
            is_stopped = bool(((mean + z[count] * error < 0.0) & is_enough).any())
            wrong += is_stopped and by_reward
            right += is_stopped and not by_reward
    assert wrong >= 8
    assert right == 0


def test_a_policy_that_breaks_after_it_has_won_for_long_is_stopped_in_the_next_stretch(monkeypatch):
    monkeypatch.setattr(comparison, "RECENT_EVENTS", 2_000)
    rng = np.random.default_rng(2)
    is_policy = rng.random(9_000) >= 0.3
    rates = np.where(is_policy, np.where(np.arange(9_000) < 6_000, 0.9, 0.1), 0.5)
    rewards = rng.random(9_000) < rates
    made = compared(is_policy, rewards, holdback=0.3)
    assert made.difference().low > 0.0  # in all it still wins
    loss = made.loss(margin=0.0, alpha=0.05, min_events=100)
    assert loss is not None
    assert loss.n_policy + loss.n_holdback < 2_000
    assert loss.alpha < 0.05 / 10


def test_a_margin_is_tolerated():
    rng = np.random.default_rng(4)
    is_policy = rng.random(20_000) >= 0.5
    made = compared(is_policy, rng.random(20_000) < np.where(is_policy, 0.4, 0.5), holdback=0.5)
    rules = {"alpha": 0.05, "min_events": 100}
    assert made.loss(margin=0.0, **rules) is not None
    assert made.loss(margin=0.2, **rules) is None


def test_a_snapshot_brings_all_of_it_back():
    made = compared([True, False] * 300, [0.5, 0.25] * 300, holdback=0.5)
    made.enter(2_000, holdback=0.1, is_policy=True, at=3.0)
    made.enter(2_001, holdback=0.1, is_policy=False, at=3.0)
    made.note(2_000, 4.0)
    made.settle(2_001, 2.0)
    again = Comparison.unpack(Record(made.pack()), made.pack_waiting())
    for one in (made, again):
        one.end(2_000, None)
    assert again.pack() == made.pack()
    assert again.difference() == made.difference()
    assert again.whole.n_events == (301, 301)


@pytest.mark.parametrize(
    ("change", "waiting"),
    [
        ({"whole": [1.0]}, np.zeros((0, 4))),
        ({"recent": ["a"] * 9}, np.zeros((0, 4))),
        ({"since": "noon"}, np.zeros((0, 4))),
        ({}, np.zeros((1, 3))),
        ({}, np.full((1, 4), np.nan)),
        ({}, np.array([[2.0, 0, 0, 0.5], [1.0, 0, 0, 0.5]])),
    ],
)
def test_a_comparison_that_is_not_one_makes_a_bad_snapshot(change, waiting):
    with pytest.raises(SnapshotError):
        Comparison.unpack(Record({**Comparison().pack(), **change}), waiting)
