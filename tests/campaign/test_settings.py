"""Settings of a campaign, built and changed from Python."""

import math

import pytest

from vfbandits import LinUCB
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.errors import SettingError

WRONG = [None, "60", True, math.nan, math.inf, [1.0]]
CASES = [
    (name, value)
    for name in ("reward_wait_s", "activation_wait_s", "reward_min", "reward_max", "default_reward")
    for value in WRONG
    if value is not None or name not in ("reward_wait_s", "default_reward")
]


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_value_that_is_no_number_is_named_and_changes_nothing(name, value):
    before = CampaignSettings(LinUCB())
    with pytest.raises(SettingError) as refused:
        before.changed({name: value})
    assert name in str(refused.value)
    assert repr(value) in str(refused.value)
    assert before == CampaignSettings(LinUCB())


@pytest.mark.parametrize("name", ["reward_wait_s", "default_reward"])
def test_settings_that_may_be_absent_take_none(name):
    assert getattr(CampaignSettings(LinUCB()).changed({name: None}), name) is None
