"""Parity trials: lossless in every layout, honest when a policy peeks."""

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.core.policy import Scored
from vfbandits.errors import SettingError
from vfbandits.simulate.parity import ParityRound, parity
from vfbandits.simulate.trial import ParityTrial
from vfbandits.simulate.world import WorldSettings, even_widths

POLICIES = [
    vfb.LinUCB(beta=0.5),
    vfb.LinTS(posterior_scale=0.1),
    vfb.LinGreedy(epsilon=0.1),
    vfb.InverseGap(),
]


class Peek:
    """Not blind: it scores by the first coordinate, which a mask mixes with the others."""

    def score(self, statistics, rng):
        del rng
        return Scored(statistics.X[:, 0].copy())


def trial(policy, *, layout="per_arm", n_arms=4, **settings):
    world = WorldSettings(even_widths(9, 4), n_arms=n_arms, layout=layout, arm_dim=2)
    return ParityTrial(policy, world, **{"horizon": 60, **settings})


@pytest.mark.parametrize("layout", ["per_arm", "outer", "disjoint"])
@pytest.mark.parametrize(
    ("mask", "aggregation"), [("blockwise", "plain"), ("dense", "plain"), ("dense", "secure")]
)
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
def test_masked_equals_plain_with_missing_participants_forgetting_and_a_floor(
    policy, layout, mask, aggregation
):
    report = trial(
        policy,
        layout=layout,
        mask=mask,
        aggregation=aggregation,
        discount=0.95,
        floor=0.1,
        missing=0.3,
    ).run()
    assert (report.equal, report.total, report.first_difference) == (60, 60, None)
    assert report.largest_score_difference < 1e-10
    assert report.masked_regret == report.plain_regret > 0.0


def test_a_policy_that_peeks_at_coordinates_is_caught():
    report = trial(Peek()).run()
    assert not report.lossless
    assert 0 <= report.first_difference < report.total
    assert report.masked_regret != report.plain_regret


def test_lints_with_more_arms_than_features_is_equal_once_its_draws_are_turned():
    report = trial(vfb.LinTS(posterior_scale=0.1), n_arms=12).run()
    assert report.lossless
    assert report.rotated_draws


def test_the_same_trial_gives_the_same_report_and_another_seed_another():
    one = trial(vfb.LinTS(), missing=0.5, seed=4)
    assert one.run() == one.run()
    assert one.run().plain_norm != trial(vfb.LinTS(), missing=0.5, seed=5).run().plain_norm


def test_every_round_is_told_of_in_order():
    heard = []
    trial(vfb.LinUCB()).run(on_round=heard.append)
    assert heard == list(range(60))


@pytest.mark.parametrize(("missing", "expected"), [(0.0, 4.0), (1.0, 1.0), (0.5, 2.5)])
def test_passive_participants_are_missing_as_often_as_wanted(missing, expected):
    rounds = list(trial(vfb.LinUCB(), missing=missing, horizon=4_000).rounds())
    assert all("p1" in one.blocks for one in rounds)
    assert np.mean([len(one.blocks) for one in rounds]) == pytest.approx(expected, abs=0.06)


def test_missing_participants_change_nobody_elses_features():
    everyone = trial(vfb.LinUCB()).rounds()
    for full, some in zip(everyone, trial(vfb.LinUCB(), missing=0.5).rounds(), strict=True):
        for name, block in some.blocks.items():
            np.testing.assert_array_equal(block, full.blocks[name])


def test_without_expected_rewards_a_report_claims_no_regret():
    rounds = [*trial(vfb.LinUCB()).rounds()]
    bare = ParityRound(rounds[0].blocks, rounds[0].rewards)
    federation = trial(vfb.LinUCB()).federation
    assert parity(federation, rounds[1:]).masked_regret is not None
    mixed = parity(federation, [bare, *rounds[1:]])
    assert (mixed.masked_regret, mixed.plain_regret) == (None, None)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 0}, "rounds must be a whole number from 1, got 0"),
        ({"missing": 1.5}, "missing must be between 0 and 1, got 1.5"),
        ({"missing": -0.1}, "missing must be a number of at least 0, got -0.1"),
        ({"seed": -1}, "seed must be a whole number from 0, got -1"),
    ],
)
def test_settings_that_make_no_trial_are_refused(settings, message):
    with pytest.raises(SettingError, match=message):
        trial(vfb.LinUCB(), **settings)
