"""Each attack on data where it must succeed, and on spherical Gaussian data where it must not."""

import numpy as np
import pytest
from audit_tables import (
    correlated,
    flags_and_counts,
    names,
    skewed,
    spherical,
    standard,
    view_of,
)

from vfbandits.audit.absent import absent_users, rows_alone
from vfbandits.audit.components import (
    CONTRASTS,
    best_match,
    chance_of_components,
    gaussian_distance,
    independent_components,
    with_evidence,
)
from vfbandits.audit.disclosure import disclosure
from vfbandits.audit.discrete import discrete_columns
from vfbandits.audit.ica import component_errors, independent_columns
from vfbandits.audit.known_pairs import known_pairs
from vfbandits.audit.moments import second_moments, second_moments_by_halves
from vfbandits.audit.planted import planted_users
from vfbandits.audit.reidentify import reidentify
from vfbandits.audit.released_means import mean_errors, released_means
from vfbandits.audit.repeated_asks import repeated_asks
from vfbandits.audit.repeated_widths import repeated_widths
from vfbandits.audit.result import Level, Severity
from vfbandits.audit.returning import returning_users, single_changes
from vfbandits.audit.shown_arms import shown_arms, visit_errors
from vfbandits.audit.view import look
from vfbandits.core.arrays import PlainBlock

LEVELS = [Level.MASK, Level.SUM]


def rng():
    return np.random.default_rng(5)


def mean(result):
    return float(np.mean(list(result.errors.values())))


class TestDisclosure:
    def test_it_counts_what_is_hidden_and_what_is_not(self):
        result = disclosure(view_of(spherical, n=2000))
        assert "6,000 numbers were sent; the mask hides 15 of them" in result.facts[0]
        assert "discloses 5,985" in result.facts[0]
        assert result.severity is Severity.AMBER

    def test_lengths_give_away_a_heavy_column(self):
        def one_heavy(rng, n, d):
            return np.column_stack([rng.pareto(2.5, n), 0.01 * rng.standard_normal((n, d - 1))])

        values = one_heavy(rng(), 8000, 4)
        view = look(values, names(4), level=Level.MASK, rng=rng())
        assert disclosure(view).errors["c0"] < 0.3
        assert disclosure(view).severity is Severity.RED

    def test_duplicates_show(self):
        values = np.repeat(spherical(rng(), 100, 3), 4, axis=0)
        view = look(values, names(3), level=Level.MASK, rng=rng())
        assert any("rows equal another row" in fact for fact in disclosure(view).facts)

    def test_a_single_column_is_sent_as_it_is_but_for_a_sign(self):
        view = view_of(skewed, d=1)
        assert "a rotation of one number is a sign" in disclosure(view).facts[-1]

    def test_spherical_rows_give_no_column_away(self):
        assert disclosure(view_of(spherical)).best > 0.9


class TestKnownPairs:
    @pytest.mark.parametrize("level", LEVELS)
    def test_as_many_insiders_as_numbers_open_everything(self, level):
        view = view_of(spherical, level=level)
        result = known_pairs(view)
        assert result.exact == view.columns
        assert result.curve.at[-1] == view.dim

    def test_few_insiders_and_a_public_covariance_open_correlated_columns(self):
        result = known_pairs(view_of(correlated), counts=(2,))
        assert mean(result) < 0.3

    def test_few_insiders_do_not_open_spherical_rows(self):
        result = known_pairs(view_of(spherical, d=20), counts=(2,))
        assert result.best > 0.5
        (error,) = result.curve.lines["minimum norm"]
        assert error == pytest.approx(np.sqrt(1.0 - 2 / 20), abs=0.02)


class TestIndependentComponents:
    @pytest.mark.parametrize("level", LEVELS)
    def test_it_opens_independent_columns_that_are_not_gaussian(self, level):
        result = independent_columns(view_of(skewed, level=level), seed=0)
        assert mean(result) < 0.15
        assert result.severity is Severity.RED

    def test_columns_of_like_marginals_are_open_without_their_names(self):
        def alike(rng, n, d):
            return rng.laplace(size=(n, d))

        result = independent_columns(view_of(alike, n=20_000), seed=0)
        assert mean(result) < 0.15
        assert "without their name" in result.facts[-1]

    def test_public_marginals_name_and_orient_components(self):
        result = independent_columns(view_of(skewed, n=20_000), seed=0)
        assert result.facts[0].startswith("6 of 6 columns")

    def test_columns_that_depend_linearly_on_others_are_no_error(self):
        def dependent(rng, n, d):
            values = skewed(rng, n, d)
            values[:, -1] = values[:, 0] + values[:, 1]
            return values

        assert independent_columns(view_of(dependent), seed=0).best < 0.3

    @pytest.mark.parametrize("contrast", CONTRASTS)
    def test_components_of_spherical_rows_follow_no_column(self, contrast):
        view = view_of(spherical, d=20)
        components = independent_components(view.masked, contrast=contrast, seed=0)
        assert best_match(components, view.plain).min() > 0.3

    @pytest.mark.parametrize("shape", [(20_000, 20), (4000, 6), (500, 30), (100, 4)])
    def test_components_of_other_gaussian_rows_are_no_evidence(self, shape):
        chance = chance_of_components(*shape, seed=0)
        for seed in (1, 2, 3):
            rows = np.random.default_rng(seed).standard_normal(shape)
            found = independent_components(rows, contrast="logcosh", seed=seed)
            assert gaussian_distance(found).max() < chance

    @pytest.mark.parametrize("seed", range(10))
    def test_gaussian_columns_are_answered_with_the_mean(self, seed):
        named_errors, unnamed = component_errors(view_of(spherical, n=2000, seed=seed), seed=seed)
        assert (named_errors == 1.0).all()
        assert (unnamed == 1.0).all()

    def test_a_component_that_looks_gaussian_is_answered_with_the_mean(self):
        view = view_of(skewed)
        mixed = spherical(rng(), *view.public.shape)
        guesses = np.column_stack([standard(view.public)[:, :3], mixed[:, 3:]])
        kept = with_evidence(guesses, np.ones(6, dtype=bool), chance=0.01)
        assert np.array_equal(kept[:, :3], guesses[:, :3])
        assert not kept[:, 3:].any()

    def test_columns_that_are_nearly_gaussian_are_open_if_there_are_many_rows(self):
        def logistic(rng, n, d):
            return rng.logistic(size=(n, d))

        assert independent_columns(view_of(logistic, n=40_000), seed=0).severity is Severity.RED

    @pytest.mark.parametrize("level", LEVELS)
    def test_it_opens_no_spherical_rows(self, level):
        assert independent_columns(view_of(spherical, level=level), seed=0).best > 0.9


class TestSecondMoments:
    def test_cross_moments_open_columns_that_the_attacker_can_almost_compute(self):
        values = standard(correlated(rng(), 20_000, 12))
        view = look(values[:, 6:], names(6), level=Level.MASK, rng=rng(), own=values[:, :6])
        assert mean(second_moments(view, seed=0)) < 0.3

    def test_halves_of_a_table_stand_for_the_attackers_columns(self):
        values = standard(correlated(rng(), 20_000, 12))
        result = second_moments_by_halves(values, names(12), level=Level.SUM, rng=rng())
        assert tuple(result.errors) == names(12)
        assert result.severity is Severity.RED

    def test_a_single_column_has_no_halves(self):
        values = skewed(rng(), 1000, 1)
        result = second_moments_by_halves(values, names(1), level=Level.MASK, rng=rng())
        assert result.best < 0.3  # a rotation of one number is a sign

    def test_skewness_orients_principal_axes_without_them(self):
        assert second_moments(view_of(correlated, n=40_000, d=4), seed=0).severity is Severity.RED

    @pytest.mark.parametrize("level", LEVELS)
    def test_they_open_no_spherical_rows(self, level):
        values = spherical(rng(), 8000, 12)
        own = spherical(np.random.default_rng(6), 8000, 6)
        view = look(values, names(12), level=level, rng=rng(), own=own)
        result = second_moments(view, seed=0)
        assert result.severity is Severity.TRIED
        assert mean(result) == pytest.approx(1.0, abs=0.02)

    @pytest.mark.parametrize("d", [1, 2, 4, 8])
    def test_luck_with_few_spherical_columns_is_not_red(self, d):
        for seed in range(5):
            values = spherical(np.random.default_rng(seed), 2000, d)
            result = second_moments_by_halves(values, names(d), level=Level.MASK, rng=rng())
            assert result.severity is not Severity.RED

    def test_a_sum_whose_columns_share_few_factors_is_partly_open(self):
        draw = rng()
        common = draw.standard_normal((20_000, 12)) @ draw.standard_normal((12, 60))
        values = standard(common + np.sqrt(3.0) * draw.standard_normal(common.shape))
        own, block, others = np.split(values, [12, 24], axis=1)
        view = look(block, names(12), level=Level.SUM, rng=rng(), others=others, own=own)
        assert mean(second_moments(view, seed=0)) < 0.6


class TestDiscreteColumns:
    @pytest.mark.parametrize("level", LEVELS)
    def test_flags_groups_and_counts_are_exact_with_a_certificate(self, level):
        result = discrete_columns(view_of(flags_and_counts, level=level, d=9), seed=0)
        assert {"c0", "c1", "c5"} <= set(result.exact)
        assert {"c2", "c3", "c4"} & set(result.exact)
        assert "rows that were not used for fitting" in result.certificate
        assert not {"c6", "c7", "c8"} & set(result.exact)

    def test_raw_flags_are_found_as_well_as_scaled_ones(self):
        values = flags_and_counts(rng(), 4000, 8)
        view = look(values, names(8), level=Level.MASK, rng=rng())
        assert {"c0", "c1", "c5"} <= set(discrete_columns(view, seed=0).exact)

    def test_a_flag_is_found_beside_an_income_that_was_not_scaled(self):
        values = flags_and_counts(rng(), 4000, 8)
        values[:, 6] = 1e6 * rng().gamma(2.0, size=4000)
        view = look(values, names(8), level=Level.MASK, rng=rng())
        assert {"c0", "c1"} <= set(discrete_columns(view, seed=0).exact)

    def test_a_table_of_flags_only_is_exact(self):
        values = (rng().random((4000, 5)) < [0.5, 0.4, 0.3, 0.2, 0.1]).astype(float)
        view = look(values, names(5), level=Level.MASK, rng=rng())
        assert discrete_columns(view, seed=0).exact == names(5)

    @pytest.mark.parametrize("level", LEVELS)
    def test_spherical_rows_have_no_grid(self, level):
        result = discrete_columns(view_of(spherical, level=level), seed=0)
        assert (result.severity, result.certificate) == (Severity.TRIED, None)


class TestReidentify:
    def test_a_noisy_table_finds_its_people_and_opens_the_mask(self):
        result = reidentify(view_of(correlated), rng=rng(), noises=(0.1,))
        (linked,) = result.curve.lines["people linked"]
        assert linked > 0.8
        assert mean(result) < 0.1

    def test_it_finds_nobody_among_spherical_rows(self):
        result = reidentify(view_of(spherical, d=12), rng=rng(), noises=(0.1, 0.3))
        assert max(result.curve.lines["people linked"]) < 0.02
        assert result.severity is Severity.TRIED


class TestReturningUsers:
    @pytest.mark.parametrize("level", LEVELS)
    def test_single_changes_show_the_mask_column_by_column(self, level):
        view = view_of(skewed, level=level, n=4000)
        result = returning_users(view, single_changes(view, rng=rng()))
        assert result.exact == view.columns
        assert "6 lines are shared" in result.certificate

    @pytest.mark.parametrize("level", LEVELS)
    def test_rows_that_change_in_all_features_show_nothing(self, level):
        view = view_of(spherical, level=level, n=4000)
        later = view.share.mask(PlainBlock(rng().standard_normal(view.joint.shape)))
        result = returning_users(view, later)
        assert (result.severity, result.certificate) == (Severity.TRIED, None)

    def test_rows_that_do_not_change_show_nothing(self):
        view = view_of(spherical, n=1000)
        assert returning_users(view, view.masked).severity is Severity.TRIED


class TestAbsentUsers:
    def test_they_turn_the_sum_into_this_participants_masked_rows(self):
        view = view_of(skewed, level=Level.SUM)
        result = absent_users(view, rows_alone(view, rng=rng()), seed=0)
        assert "12 such rows have rank 6 of 12" in result.facts[0]
        assert mean(result) < 0.15

    def test_too_few_of_them_open_nothing(self):
        view = view_of(skewed, level=Level.SUM)
        result = absent_users(view, rows_alone(view, rng=rng(), count=6), seed=0)
        assert result.severity is Severity.TRIED

    def test_users_whom_others_know_too_open_nothing(self):
        view = view_of(skewed, level=Level.SUM)
        assert absent_users(view, view.masked[:40], seed=0).severity is Severity.TRIED

    def test_spherical_rows_stay_masked(self):
        view = view_of(spherical, level=Level.SUM)
        result = absent_users(view, rows_alone(view, rng=rng()), seed=0)
        assert result.best > 0.9
        assert result.severity is Severity.AMBER  # the sum is open, the mask is not


class TestReleasedMeans:
    def play(self, table, arms):
        values = standard(table(rng(), 6000, 5))
        halves = values[:3000], values[3000:]
        return released_means(
            halves[0], names(5), public=halves[1], rng=rng(), arms=arms, rounds=3000
        )

    def test_as_many_arms_as_features_open_them(self):
        result = self.play(skewed, (2, 8))
        few, many = result.curve.lines["names given"]
        assert many < 0.3
        assert few > 0.6
        assert (result.severity, result.level) == (Severity.RED, Level.STATISTICS)

    def test_arm_features_in_layout_outer_open_them_as_arms_in_disjoint_do(self):
        values = standard(skewed(rng(), 6000, 4))
        few, many = (
            mean_errors(
                values[:3000], values[3000:], n_arms=p, rng=rng(), rounds=3000, layout="outer"
            )
            for p in (2, 6)
        )
        assert many[1].mean() < 0.4
        assert few[1].mean() > 0.5

    def test_gaussian_features_stay_mixed(self):
        assert self.play(spherical, (8,)).severity is Severity.TRIED


class TestRepeatedAsks:
    def test_as_many_visits_as_features_open_a_row(self):
        result = repeated_asks(skewed(rng(), 1000, 8), names(8), rng=rng(), visits=(1, 16))
        assert result.exact == names(8)
        assert result.curve.lines["rounded to 0.001"][-1] > 0.01

    def test_one_visit_opens_no_spherical_row(self):
        result = repeated_asks(spherical(rng(), 1000, 16), names(16), rng=rng(), visits=(1,))
        (error,) = result.curve.lines["rounded to 1e-11"]
        assert error == pytest.approx(np.sqrt(1.0 - 1 / 16), abs=0.02)


class TestPlantedUsers:
    def play(self, level, n_arms=6):
        here, there = np.split(standard(skewed(rng(), 4000, 4)), 2)
        return planted_users(
            here, names(4), level=level, public=there, rng=rng(), n_arms=n_arms, rounds=3000
        )

    def test_means_open_features_and_the_arm_hardly_does(self):
        means, arm = self.play(Level.STATISTICS), self.play(Level.ARM)
        assert means.curve.lines["means (LinTS)"][-1] < 0.5
        assert arm.curve.lines["the arm (LinTS)"][-1] > 0.8
        assert means.severity is Severity.RED
        assert arm.severity is Severity.AMBER

    def test_widths_beside_the_arm_tell_more(self):
        lines = self.play(Level.ARM).curve.lines
        assert lines["the arm and widths (LinUCB)"][-1] < lines["the arm (LinTS)"][-1] - 0.1

    def test_an_arm_that_is_always_the_same_tells_nothing(self):
        result = self.play(Level.ARM, n_arms=1)
        assert result.curve.lines["the arm (LinTS)"][-1] == pytest.approx(1.0, abs=0.01)


class TestShownArms:
    def test_more_visits_tell_more_and_do_not_open_a_row(self):
        here, there = np.split(spherical(rng(), 1000, 5), 2)
        result = shown_arms(here, names(5), public=there, rng=rng(), visits=(1, 16))
        (few, many) = result.curve.lines["10 arms"]
        assert 0.4 < many < few < 1.0
        assert result.level is Level.ARM

    def test_one_arm_tells_nothing(self):
        here, there = np.split(spherical(rng(), 1000, 3), 2)
        errors = visit_errors(here, there, 4, n_arms=1, rng=rng())
        assert errors == pytest.approx(np.ones(3), abs=0.1)


class TestRepeatedWidths:
    def test_twice_as_many_visits_as_features_open_a_row(self):
        result = repeated_widths(standard(skewed(rng(), 500, 5)), names(5), rng=rng())
        errors = dict(zip(result.curve.at, result.curve.lines["widths (LinUCB)"], strict=True))
        assert errors[1.0] == errors[2.0] == 1.0
        assert errors[10.0] < 0.1
        assert (result.severity, result.is_universal) == (Severity.RED, True)


def test_the_same_seed_gives_the_same_result():
    first, second = (independent_columns(view_of(skewed), seed=1) for _ in range(2))
    assert first == second
