"""Folders of the Open Bandit Dataset, as they are: the real ones where they are, and a tiny one."""

import gzip
from pathlib import Path

import numpy as np
import pytest

import vfbandits as vfb
from vfbandits.datasets.obd import load_obd
from vfbandits.errors import ArmError, ContextError, RewardError, SettingError
from vfbandits.evaluate import Bootstrap, EvaluationSettings, evaluate
from vfbandits.evaluate.evaluation import FrozenTarget

DATA = Path(__file__).parents[3] / "shared" / "data" / "obd"
real = pytest.mark.skipif(not DATA.is_dir(), reason=f"the Open Bandit Dataset is not in {DATA}")

ROWS = """,timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,\
user_feature_2,user_feature_3,user-item_affinity_0,user-item_affinity_1
0,t,1,3,0,0.5,aa,p,q,r,0.0,2.0
1,t,0,1,1,0.25,bb,p,q,r,1.0,0.0
2,t,1,2,0,0.5,aa,p,s,r,0.0,0.0
"""
ITEMS = """,item_id,item_feature_0,item_feature_1,item_feature_2,item_feature_3
0,1,-0.5,m,x,z
1,0,0.5,k,x,z
"""


def write(folder, *, rows=ROWS, items=ITEMS, gzipped=True):
    campaign = folder / "men"
    campaign.mkdir()
    if gzipped:
        (campaign / "men.csv.gz").write_bytes(gzip.compress(rows.encode()))
    else:
        (campaign / "men.csv").write_text(rows)
    (campaign / "item_context.csv").write_text(items)
    return campaign


@pytest.mark.parametrize("gzipped", [True, False], ids=["gzipped", "plain"])
def test_a_tiny_folder_is_read_cell_by_cell(tmp_path, gzipped):
    log = load_obd(write(tmp_path, gzipped=gzipped))
    assert (log.arms, log.chosen.tolist(), log.rewards.tolist()) == ((0, 1), [1, 0, 1], [0, 1, 0])
    assert log.probabilities.tolist() == [0.5, 0.25, 0.5]
    assert log.widths == {"shop": 3, "users": 6}
    # position 1, 2, 3; feature 0: aa, bb; 1: p; 2: q, s; 3: r
    assert log.contexts.tolist() == [
        [0, 0, 1, 1, 0, 1, 1, 0, 1],
        [1, 0, 0, 0, 1, 1, 1, 0, 1],
        [0, 1, 0, 1, 0, 1, 0, 1, 1],
    ]


def test_items_stand_in_the_order_of_their_ids(tmp_path):
    log = load_obd(write(tmp_path), layout="outer")
    assert log.arm_features.tolist() == [[0.5, 1, 0, 1, 1], [-0.5, 0, 1, 1, 1]]


def test_a_row_per_item_ends_with_the_users_affinity_to_it(tmp_path):
    log = load_obd(write(tmp_path), layout="per_arm")
    assert log.widths == {"shop": 5, "affinity": 1}
    assert log.contexts[0].tolist() == [[0.5, 1, 0, 1, 1, 0.0], [-0.5, 0, 1, 1, 1, 2.0]]


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        ("0,t,1,3", "0,t,9,3", ArmError, "item_id must be from 0 to 1, got 9"),
        (",1,0.25", ",x,0.25", RewardError, "'click' of men.csv.gz .* got 'x' in row 2"),
        (",1,0.25", ",1,0.0", SettingError, r"in \(0, 1\], got 0.0 in round 1"),
        ("propensity_score", "p", SettingError, "got none called propensity_score"),
    ],
    ids=["item", "click", "probability", "column"],
)
def test_a_bad_row_is_named(tmp_path, old, new, error, message):
    with pytest.raises(error, match=message):
        load_obd(write(tmp_path, rows=ROWS.replace(old, new)))


@pytest.mark.parametrize("cell", ["1,-0.5", "x,-0.5"], ids=["twice", "text"])
def test_items_that_are_not_numbered_are_refused(tmp_path, cell):
    items = ITEMS.replace("1,-0.5", cell).replace("1,0,0.5", "1,1,0.5")
    with pytest.raises(ArmError, match=r"item_context\.csv must hold items 0 to 1, each once"):
        load_obd(write(tmp_path, items=items))


def test_an_empty_category_is_refused_and_not_taken_for_one_more(tmp_path):
    with pytest.raises(
        ContextError, match="'user_feature_0' must not be empty, got an empty cell in row 1"
    ):
        load_obd(write(tmp_path, rows=ROWS.replace("0.5,aa,p,q", "0.5,,p,q")))


def test_an_item_feature_that_is_no_number_is_refused(tmp_path):
    with pytest.raises(ArmError, match=r"'item_feature_0' of item_context\.csv .* in row 1"):
        load_obd(write(tmp_path, items=ITEMS.replace("-0.5", "?")))


def test_a_missing_affinity_is_refused(tmp_path):
    rows = ROWS.replace("user-item_affinity_1", "affinity")
    with pytest.raises(ArmError, match="an affinity for each of 2 items, got 1"):
        load_obd(write(tmp_path, rows=rows), layout="per_arm")


def test_a_folder_without_impressions_and_a_strange_layout_are_refused(tmp_path):
    with pytest.raises(SettingError, match="must be a folder with"):
        load_obd(tmp_path)
    with pytest.raises(SettingError, match="layout must be one of"):
        load_obd(write(tmp_path), layout="round")


@real
@pytest.mark.parametrize(
    ("policy", "campaign", "n_arms", "clicks"),
    [
        ("random", "all", 80, 38),
        ("random", "men", 34, 46),
        ("random", "women", 46, 46),
        ("bts", "all", 80, 42),
        ("bts", "men", 34, 69),
        ("bts", "women", 46, 46),
    ],
)
def test_the_published_folders_load_with_their_published_counts(policy, campaign, n_arms, clicks):
    log = load_obd(DATA / policy / campaign)
    assert (len(log), log.n_arms, log.rewards.sum()) == (10_000, n_arms, clicks)
    assert log.is_uniform == (policy == "random")


@real
@pytest.mark.parametrize("campaign", ["all", "men", "women"])
def test_the_uniform_policy_judged_on_the_other_policys_log_earns_what_it_earned(campaign):
    """Two real logs of the same shop: the interval from one covers the mean of the other."""
    live, log = load_obd(DATA / "random" / campaign), load_obd(DATA / "bts" / campaign)
    uniform = np.full((len(log), log.n_arms), 1.0 / log.n_arms)
    rng = np.random.default_rng(0)
    few = EvaluationSettings(bootstrap=Bootstrap(n_resamples=300))
    judge = FrozenTarget(log, uniform, settings=few, rng=rng)
    for name in ("ips", "snips"):
        estimate = judge.estimate(name, rng)
        assert estimate.low < live.value < estimate.high
        assert estimate.doubts  # so few clicks that the coverage is no proof


@real
def test_a_masked_federation_of_shop_and_users_gets_the_plain_numbers():
    log = load_obd(DATA / "random" / "men").select(slice(0, 400))
    settings = {"layout": "disjoint", "intercept": True, "seed": 0}
    policy = vfb.LinGreedy(epsilon=0.2)
    plain, masked = (
        evaluate(log, make, rng=np.random.default_rng(0))
        for make in (
            lambda: vfb.Bandit(policy, dim=log.dim, **settings),
            lambda: vfb.Federation(policy, widths=log.widths, **settings),
        )
    )
    for one, other in zip(plain, masked, strict=True):
        assert (other.value, other.low, other.high) == pytest.approx(
            (one.value, one.low, one.high), rel=1e-6, abs=1e-9
        )
