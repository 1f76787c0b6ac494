"""``vfb.play``: one call from a table to what a federation would be worth."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

import vfbandits as vfb
from vfbandits.errors import FeatureError, SettingError, VFBanditsError
from vfbandits.features.fit import fit_scaling
from vfbandits.features.scaling import RawRows
from vfbandits.simulate.contestant import Contestant
from vfbandits.simulate.pool import run_study
from vfbandits.simulate.study import Study

OWNERS = {"shop": ["age", "city"], "bank": ["income"]}


def users(n=400, seed=0):
    """The bank's column tells most of what is bought, the shop's a little."""
    rng = np.random.default_rng(seed)
    age, income = rng.normal(40.0, 10.0, n), rng.normal(3e4, 1e4, n)
    city = rng.choice(["Bern", "Rome"], n)
    buys = np.where(income > 3e4, "tea", np.where(city == "Rome", "wine", "milk"))
    return {"age": age, "city": city, "income": income, "buys": buys}


def play(table=None, **options):
    options = {
        "label": "buys",
        "owners": OWNERS,
        "policies": ["linucb"],
        "seeds": 2,
        "progress": False,
        **options,
    }
    return vfb.play(users() if table is None else table, **options)


def curves(result):
    return np.array(result.curves)


@pytest.mark.parametrize("policy", [vfb.LinUCB(beta=0.5), vfb.LinTS(), vfb.InverseGap()])
@pytest.mark.parametrize("masking", [("blockwise", "plain"), ("dense", "plain")])
def test_a_federation_plays_as_one_who_sees_all_columns(policy, masking):
    mask, aggregation = masking
    result = play(policies=[policy], mask=mask, aggregation=aggregation)
    central, federated, alone = curves(result)
    assert_array_equal(federated, central)
    assert alone[:, -1].min() > central[:, -1].max()


def test_secure_sums_play_as_one_who_sees_all_columns():
    owners = {"shop": ["age"], "bank": ["income"], "news": ["city"]}
    result = play(owners=owners, mask="dense", aggregation="secure")
    central, federated, _ = curves(result)
    assert_array_equal(federated, central)


def test_frames_mappings_and_matrices_of_the_same_rows_play_alike():
    table = users()
    matrix = np.column_stack([table["age"], table["income"]])
    owners = {"shop": ["age"], "bank": ["income"]}
    expected = curves(play(owners=owners))
    assert_array_equal(curves(play(pl.DataFrame(table), owners=owners)), expected)
    assert_array_equal(curves(play(pd.DataFrame(table), owners=owners)), expected)
    by_place = {"shop": [0], "bank": [1]}
    assert_array_equal(curves(play(matrix, owners=by_place, label=table["buys"])), expected)
    assert_array_equal(curves(play(matrix, owners=by_place, label=list(table["buys"]))), expected)


def test_each_owner_scales_its_own_columns_as_its_own_fit_would():
    table = users()
    shop = fit_scaling(
        RawRows(table["age"][:, None], (list(table["city"]),)),
        numbers=["age"],
        categories=["city"],
        method="unit",
    )
    expected = shop.apply(RawRows(table["age"][:, None], (list(table["city"]),)))
    world = play().study.world
    assert world.widths == {"shop": 3, "bank": 1}
    assert_array_equal(world.features[:, :3], expected)


def test_rows_scaled_to_unit_have_a_mean_squared_length_of_one():
    lengths = (play().study.world.features[:, :3] ** 2).sum(axis=1)
    assert lengths.mean() == pytest.approx(1.0)


def test_arms_with_features_are_played_in_layout_outer():
    arms = {"tea": [1.0, 0.0, 0.0], "milk": [0.0, 1.0, 0.0], "wine": [0.0, 0.0, 1.0]}
    result = play(layout="outer", arms=arms)
    central, federated, _ = curves(result)
    assert_array_equal(federated, central)
    assert result.study.world.layout == "outer"


def test_the_result_is_a_table_a_picture_and_a_page_for_a_notebook():
    result = play(rounds=100)
    central, *_ = result.table()
    assert central.contestant == "LinUCB, central"
    assert central.reward == pytest.approx(1.0 - central.mean / 100)
    assert "| LinUCB, shop alone |" in str(result)
    assert "mean reward" in str(result)
    assert "<td>LinUCB, federated</td>" in result._repr_html_()
    assert "data:image/png;base64," in result._repr_html_()
    assert result.plot().axes[0].get_xlabel() == "round"


def test_names_in_a_table_do_not_become_markup():
    owners = {"<b>shop</b>": ["age"], "bank": ["income"]}
    assert "<b>shop" not in play(rounds=20, owners=owners)._repr_html_()


def test_rewards_have_no_column_where_the_best_arm_differs_between_rounds():
    one = Contestant("one", vfb.LinUCB(beta=0.5))
    result = run_study(Study(contestants=(one,), horizon=5, n_seeds=1))
    assert "mean reward" not in str(result)


def test_progress_is_told_on_stderr_and_not_if_not_wanted(capfd, monkeypatch):
    monkeypatch.setattr("vfbandits.progress.EVERY_S", 0.0)
    play(rounds=50, progress=False)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"label": "sells"}, "a column must be one of age, city, income, buys; got 'sells'"),
        ({"owners": {"shop": ["age"]}}, "two participants at least, got 1"),
        ({"owners": {"shop": "age", "bank": ["income"]}}, "a list of columns, got 'age'"),
        ({"owners": {"shop": [], "bank": ["income"]}}, r"a list of columns, got \[\]"),
        ({"owners": {"shop": ["ages"], "bank": ["income"]}}, "got 'ages'"),
        ({"owners": {"shop": ["age"], "bank": ["age"]}}, "got 'age' at 'shop' and 'bank'"),
        ({"owners": {"shop": ["buys"], "bank": ["age"]}}, "must not hold the label, got 'buys'"),
        ({"rounds": 500}, "at most the table's 400 rows, got 500"),
        ({"rounds": 0}, "rounds must be a whole number from 1, got 0"),
        ({"layout": "per_arm"}, "one row for each user; got 'per_arm'"),
        ({"layout": "outer"}, "got no arms"),
        ({"arms": {"tea": [1.0]}}, "got arms in layout 'disjoint'"),
        ({"layout": "outer", "arms": {"tea": [1.0]}}, "features of milk, tea, wine, got tea"),
        ({"policies": ["linucp"]}, "got 'linucp'"),
        ({"label": [*range(400)]}, "classes that repeat, got 400 in 400 rows"),
        ({"label": ["tea"] * 400}, "two classes at least, got 1"),
        ({"label": ["tea", "milk"]}, "a class for each of 400 rows, got 2"),
        ({"scaling": "robust"}, "got 'robust'"),
        ({"table": 7}, "got a int"),
        ({"table": np.ones(3)}, r"must be a matrix, got shape \(3,\)"),
    ],
)
def test_what_makes_no_play_is_refused_with_what_came(options, says):
    with pytest.raises(VFBanditsError, match=says):
        play(**options)


def test_a_column_that_comes_twice_is_refused():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(np.ones((4, 3)), columns=["age", "age", "buys"])
    with pytest.raises(FeatureError, match="must be named once, got 'age' twice"):
        play(table)


def test_missing_cells_are_counted_and_named():
    table = users()
    table["income"][[3, 5]] = np.nan
    with pytest.raises(FeatureError, match=r"'income' must hold finite numbers, got 2 of 400"):
        play(table)
    frame = pl.DataFrame(users()).with_columns(city=pl.lit(None, dtype=pl.String))
    with pytest.raises(FeatureError, match=r"'city' must have no missing values, got 400 in 400"):
        play(frame)


def test_numbers_and_gaps_of_pandas_own_kinds_are_numbers_and_gaps():
    visits = pd.array([1, 2, 3, 4] * 100, dtype="Int64")
    frame = pd.DataFrame(users()).assign(visits=visits)
    world = play(frame, owners={"shop": ["visits"], "bank": ["income"]}, rounds=5).study.world
    assert world.widths == {"shop": 1, "bank": 1}
    frame.loc[7, "visits"] = pd.NA
    with pytest.raises(FeatureError, match=r"'visits' must hold finite numbers, got 1 of 400"):
        play(frame, owners={"shop": ["visits"], "bank": ["income"]})
    frame["city"] = frame["city"].astype("string")
    frame.loc[7, "city"] = pd.NA
    with pytest.raises(FeatureError, match=r"'city' must have no missing values, got 1 in 400"):
        play(frame)


def test_a_column_of_ids_is_not_taken_for_categories():
    table = {**users(2000), "user": [f"u{number}" for number in range(2000)]}
    with pytest.raises(FeatureError, match="at most 1000 categories, got 2000: is it an id"):
        play(table, owners={"shop": ["user"], "bank": ["income"]})


def test_arms_of_different_widths_are_refused():
    arms = {"tea": [1.0], "milk": [0.0, 1.0], "wine": [0.0]}
    with pytest.raises(SettingError, match="equally many for each"):
        play(layout="outer", arms=arms)
