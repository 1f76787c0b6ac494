"""The attack that docs/shares.md warns of reads features while q is opened."""

from benchmarks.shares_leak import error_of_attack


def test_planted_users_read_the_features_of_a_user_from_the_widths_at_rewards():
    assert error_of_attack(own=2, unknown=3, planted=6, victims=3) < 1e-3


def test_without_planted_users_one_width_does_not_tell_three_features():
    assert error_of_attack(own=2, unknown=3, planted=0, victims=9) > 0.3
