"""A journal becomes a table that ``vfb evaluate`` reads."""

import stat

import numpy as np
import polars as pl
import pytest
from journals import InMemory
from logged_runs import LAYOUTS, Run, maker

import vfbandits as vfb
from vfbandits.campaign.events import (
    Activated,
    Configured,
    Decided,
    Forgotten,
    Reported,
    Rewarded,
)
from vfbandits.errors import JournalError
from vfbandits.evaluate import evaluate, read_log
from vfbandits.evaluate.export import export_log
from vfbandits.journal.compact import compact


@pytest.fixture
def place(tmp_path):
    return InMemory(tmp_path)


def exported(place, path, **more):
    journal = place.open()
    made = export_log(journal, path, **more)
    journal.close()
    return made, pl.read_parquet(path)


def test_there_is_one_row_for_each_decision_with_its_reward(place, tmp_path):
    run = Run(place)
    run.visit(20, "save", "move", 20)
    made, table = exported(place, tmp_path / "log.parquet")
    assert made.rows == len(table) == len(run.rewards)
    assert made.without_reward == 40 - len(run.rewards)
    assert made.without_probability == 0
    assert dict(zip(table["event_id"], table["reward"], strict=True)) == {
        str(key): value for key, value in run.rewards.items()
    }
    assert table["position"].is_sorted()
    assert set(table["arm"]) <= {"tea", "milk", "beer"}
    assert set(table["epoch"]) == {0, 1}
    assert set(table["user"]) == {"ann"}
    assert table["contributors"].to_list()[0] == ["all"]
    assert (table["rewarded_at"] >= table["at"]).all()
    assert [name for name in table.columns if name.startswith("x_")] == ["x_0", "x_1", "x_2"]
    made, table = exported(place, tmp_path / "log.parquet", contexts=False)
    assert made.layout is None
    assert not [name for name in table.columns if name.startswith("x_")]


def test_evaluate_reads_it_with_the_contexts_that_the_models_saw(place, tmp_path):
    """Up to rounding: behind the last masks, whatever masks there were before."""
    run = Run(place)
    run.visit(60, "save", "move", 40)
    run.visit("move", 40)
    path = tmp_path / "log.parquet"
    made, table = exported(place, path, contexts=True)
    assert (made.layout, made.evaluable) == ("disjoint", made.rows)
    log = read_log(path)
    assert (len(log), log.dim) == (made.rows, 3)
    plain = np.array([run.plain[_id(text)] for text in table["event_id"]])
    np.testing.assert_allclose(log.contexts, plain @ run.turn.T, atol=1e-12)
    assert log.rewards.tolist() == table["reward"].to_list()
    agent = lambda: vfb.Bandit(vfb.LinUCB(), dim=3, layout="disjoint", seed=0)  # noqa: E731
    values = evaluate(log, agent, rng=np.random.default_rng(0))
    assert all(np.isfinite(estimate.value) for estimate in values)


def _id(text):
    return text if text.startswith("order") else int(text)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "disjoint"])
def test_where_only_the_chosen_context_is_known_its_columns_say_so(place, tmp_path, layout):
    run = Run(place, layout)
    run.visit(10, "move", 10, "save")
    made, table = exported(place, tmp_path / "log.parquet", contexts=True)
    assert (made.layout, made.evaluable) == (layout, 0)
    width = 3 if layout == "per_arm" else 12
    chosen = table.select(pl.selectors.starts_with("chosen_")).to_numpy()
    assert chosen.shape == (made.rows, width)
    if layout == "per_arm":
        plain = [run.plain[_id(row[1])][row[4]] for row in table.iter_rows()]
        np.testing.assert_allclose(chosen, np.array(plain) @ run.turn.T, atol=1e-12)
    with pytest.raises(vfb.VFBanditsError, match="context columns"):
        read_log(tmp_path / "log.parquet")


def test_decisions_without_a_reward_may_be_given_one(place, tmp_path):
    run = Run(place)
    run.visit(20)
    made, table = exported(place, tmp_path / "log.parquet", unrewarded=-1.0)
    assert made.rows == 20
    assert (table["reward"] == -1.0).sum() == made.without_reward == 20 - len(run.rewards)
    assert table.filter(pl.col("reward") == -1.0)["rewarded_at"].null_count() == 20 - len(
        run.rewards
    )


def test_a_name_that_was_used_twice_has_two_rows(place, tmp_path):
    journal = place.open()
    x = np.ones(3)
    for arm in ("tea", "milk"):
        journal.append([Decided("a", arm, 0, x), Rewarded("a", float(len(arm)))])
    journal.append([Decided("b\ud800", "tea", 0, x, probability=0.5), Rewarded("b\ud800", 1.0)])
    made = export_log(journal, tmp_path / "log.parquet")
    with pytest.raises(JournalError, match="contexts need a snapshot"):
        export_log(journal, tmp_path / "log.parquet", contexts=True)
    journal.close()
    table = pl.read_parquet(tmp_path / "log.parquet")
    assert made.without_probability == 2
    assert table.select("event_id", "arm", "reward").rows() == [
        ("a", "tea", 3.0),
        ("a", "milk", 4.0),
        ("b?", "tea", 1.0),
    ]


def test_every_row_says_why_its_arm_was_shown_and_what_became_of_its_reward(place, tmp_path):
    journal, x = place.open(), np.ones(3)
    journal.append(
        [
            Configured(b"all"),
            Decided("a", "tea", 0, x, due=50.0),
            Decided("b", "tea", 0, x, group="holdback", due=20.0, held=True),
            Decided("c", "tea", 0, x, due=30.0, held=True),
            Activated("b", 80.0, 20.0),
            Reported("b", 0.5, "click\ud800", "counted", 21.0),
            Reported("nobody", 0.5, "click", "late", 21.0),
            Rewarded("a", 1.0, 22.0, "buy"),
            Rewarded("b", 0.5, 23.0, None),
            Reported("a", 2.0, "more", "ignored", 24.0),
            Decided("a", "tea", 0, x),
            Activated("nobody", 80.0),
            Forgotten("a"),
            Reported("a", 3.0, "r", "late", 25.0),
        ]
    )
    made = export_log(journal, tmp_path / "log.parquet", unrewarded=0.0)
    journal.close()
    table = pl.read_parquet(tmp_path / "log.parquet")
    assert (made.rows, made.without_reward) == (4, 2)
    columns = ("event_id", "group", "due", "held", "reward", "reward_id")
    assert table.select(columns).rows() == [
        ("a", "policy", 50.0, False, 1.0, "buy"),
        ("b", "holdback", 80.0, False, 0.5, None),
        ("c", "policy", 30.0, True, 0.0, None),
        ("a", "policy", None, False, 0.0, None),
    ]
    assert table["reports"].to_list() == [
        [{"reward_id": "more", "value": 2.0, "why": "ignored", "at": 24.0}],
        [{"reward_id": "click?", "value": 0.5, "why": "counted", "at": 21.0}],
        [],
        [{"reward_id": "r", "value": 3.0, "why": "late", "at": 25.0}],
    ]


def test_a_compacted_log_gives_what_it_still_has_with_contexts_behind_the_last_masks(
    place, tmp_path
):
    run = Run(place)
    run.visit(16, "move", 4, "save", 3, "save", "move")
    journal = place.open()
    compact(journal)
    kept = [event.event_id for _, event in journal.remains() if isinstance(event, Decided)]
    journal.append([Rewarded(key, 7.0) for key in kept])
    made = export_log(journal, tmp_path / "log.parquet", contexts=True)
    journal.close()
    table = pl.read_parquet(tmp_path / "log.parquet")
    assert made.rows == len(table)
    late = table.filter(pl.col("reward") == 7.0)
    assert late["event_id"].to_list() == [str(key) for key in kept]
    contexts = late.select(pl.selectors.starts_with("x_")).to_numpy()
    plain = np.array([run.plain[key] for key in kept])
    np.testing.assert_allclose(contexts, plain @ run.turn.T, atol=1e-12)


def test_an_empty_log_gives_an_empty_table_with_all_columns(place, tmp_path):
    Run(place).visit()
    made, table = exported(place, tmp_path / "log.parquet", contexts=True)
    assert (made.rows, len(table)) == (0, 0)
    assert {"arm", "reward", "probability", "x_0", "x_2", "group", "reports"} <= set(table.columns)


def test_many_rows_are_written_in_pieces(place, tmp_path):
    journal = place.open()
    x = np.ones(1)
    for start in range(0, 21_000, 3_000):
        numbers = range(start, start + 3_000)
        journal.append([Decided(n, "tea", 0, x) for n in numbers])
        journal.append([Rewarded(n, float(n)) for n in numbers])
    made = export_log(journal, tmp_path / "log.parquet")
    journal.close()
    assert made.rows == 21_000
    assert pl.read_parquet(tmp_path / "log.parquet")["reward"].to_list() == list(range(21_000))


def test_the_file_is_whole_or_not_there_and_for_its_owner_only(place, tmp_path):
    Run(place).visit(5, "save")
    path = tmp_path / "log.parquet"
    path.write_bytes(b"older")
    journal = place.open()
    journal.append([Decided("a", "tea", 0, np.ones(3))])
    place.put_record(journal.last_position, b"torn")
    with pytest.raises(JournalError, match="is damaged"):
        export_log(journal, path)
    journal.close()
    assert path.read_bytes() == b"older"
    place.open(accept_loss="ops").close()
    exported(place, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(JournalError, match="cannot be written"):
        exported(place, tmp_path / "nowhere" / "log.parquet")


def test_the_maker_of_these_logs_explores(place, tmp_path):
    """Otherwise all probabilities were 1 and the tests above would show little."""
    Run(place).visit(40)
    _, table = exported(place, tmp_path / "log.parquet")
    assert maker()().floor == 0.5
    assert 0.1 < table["probability"].min() < table["probability"].max() < 1.0
