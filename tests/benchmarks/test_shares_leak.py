"""The attack on widths reads features where they are opened, and nothing where they are masked."""

from benchmarks.shares_leak import error_of_attack

SIZE = {"own": 2, "unknown": 3, "planted": 6}


def test_planted_users_would_read_the_features_of_a_user_from_opened_widths():
    assert error_of_attack(sees="widths", victims=3, **SIZE) < 1e-3


def test_without_planted_users_one_width_does_not_tell_three_features():
    assert error_of_attack(sees="widths", victims=9, **{**SIZE, "planted": 0}) > 0.3


def test_what_the_active_participant_sees_does_no_better_than_a_guess():
    assert error_of_attack(sees="messages", victims=9, **SIZE) > 0.9
