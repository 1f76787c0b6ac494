"""LoggedBandit: what it takes, and what it refuses with the round named."""

import numpy as np
import pytest

from vfbandits.errors import ArmError, ContextError, RewardError, SettingError
from vfbandits.evaluate import LoggedBandit

GOOD = {
    "contexts": [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]],
    "chosen": [0, 1, 1],
    "rewards": [0.0, 1.0, 2.0],
    "probabilities": [0.5, 0.5, 0.5],
    "arms": ["tea", "coffee"],
}


def make(**changes):
    given = {**GOOD, **changes}
    return LoggedBandit.of(given.pop("contexts"), given.pop("chosen"), **given)


def test_a_log_knows_its_size_value_and_whether_it_is_uniform():
    log = make()
    assert (len(log), log.n_arms, log.dim, log.value, log.is_uniform) == (3, 2, 2, 1.0, True)
    assert not make(probabilities=[0.5, 0.5, 0.4]).is_uniform


def test_selected_rounds_keep_arms_and_owners():
    log = make(owners=["shop", "bank"]).select(slice(1, None))
    assert (len(log), log.value, log.widths) == (2, 1.5, {"shop": 1, "bank": 1})


def test_blocks_gather_an_owners_columns_wherever_they_stand():
    log = make(contexts=np.arange(9.0).reshape(3, 3), owners=["shop", "bank", "shop"])
    blocks = log.blocks(log.contexts[1])
    assert {name: list(block) for name, block in blocks.items()} == {"shop": [3, 5], "bank": [4]}
    assert log.widths == {"shop": 2, "bank": 1}


def test_a_repr_shows_no_features():
    assert "3.0" not in repr(make())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"contexts": [[1.0, np.nan]] * 3}, ContextError, r"NaN or infinity .* first at \(0, 1\)"),
        ({"contexts": [1.0, 2.0, 3.0]}, ContextError, r"must have shape"),
        ({"contexts": np.ones((3, 0))}, ContextError, "at least one column"),
        ({"contexts": [["a"], ["b"], ["c"]]}, ContextError, "must hold real numbers"),
        ({"rewards": [0.0, np.inf, 1.0]}, RewardError, "finite, got inf in round 1"),
        ({"rewards": ["a", "b", "c"]}, RewardError, "rewards must be numbers"),
        ({"rewards": [0.0, 1.0]}, SettingError, "rewards must have one entry per round, 3, got 2"),
        ({"probabilities": [0.5, 0.0, 1]}, SettingError, r"in \(0, 1\], got 0.0 in round 1"),
        ({"probabilities": [0.5, 1, 1.01]}, SettingError, r"in \(0, 1\], got 1.01 in round 2"),
        ({"probabilities": [0.5, np.nan, 1]}, SettingError, "finite, got nan in round 1"),
        ({"chosen": [0, 2, 1]}, ArmError, "positions from 0 to 1, got 2 in round 1"),
        ({"chosen": [0, 1, -1]}, ArmError, "got -1 in round 2"),
        ({"chosen": [0.0, 1.0, 1.0]}, ArmError, "positions in arms"),
        ({"arms": []}, ArmError, "at least one"),
        ({"arms": ["tea", "tea"]}, ArmError, "different ids"),
        ({"layout": "round"}, SettingError, "layout must be one of"),
        ({"layout": "outer"}, ArmError, "layout is 'outer', got none"),
        ({"arm_features": [[1.0], [2.0]]}, ArmError, "layout is 'disjoint', got some"),
        ({"layout": "outer", "arm_features": [[1.0]]}, ArmError, "each of 2 arms, got 1"),
        ({"layout": "outer", "arm_features": [[1.0], [np.nan]]}, ContextError, "arm_features must"),
        ({"layout": "per_arm", "contexts": np.ones((3, 4, 2))}, ContextError, "each of 2 arms"),
        ({"owners": ["shop"]}, SettingError, "each of 2 columns, got 1"),
        (
            {"contexts": np.ones((0, 2)), "chosen": np.array([], int), "rewards": [],
             "probabilities": []},
            SettingError,
            "at least one round",
        ),
    ],
)  # fmt: skip
def test_a_bad_log_is_refused_with_the_place_named(changes, error, message):
    with pytest.raises(error, match=message):
        make(**changes)


def test_a_log_without_owners_has_no_federation():
    with pytest.raises(SettingError, match="got a log without owners"):
        make().widths  # noqa: B018
