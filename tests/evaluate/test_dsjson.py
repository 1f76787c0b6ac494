"""Logs of another service become tables that are evaluated, with the figures that they hold."""

import gzip
import json
import stat
import statistics

import dsjson_logs
import polars as pl
import pytest
from typer.testing import CliRunner

from vfbandits.cli.main import app
from vfbandits.errors import SettingError
from vfbandits.evaluate import dsjson
from vfbandits.evaluate.dsjson import import_dsjson
from vfbandits.evaluate.read import read_log
from vfbandits.features.fit import hash_scaling
from vfbandits.features.named import NamedRows, flatten

JOURNAL_IMPORT = ("journal", "import")
OWN = NamedRows(hash_scaling(rest=8))
ARMS = NamedRows(hash_scaling(rest=4))


def vfb(*words):
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, [*map(str, words)])


def imported(tmp_path, lines, **more):
    log = dsjson_logs.write(tmp_path / "log.json", lines)
    made = import_dsjson(log, tmp_path / "log.parquet", own=OWN, **more)
    return made, pl.read_parquet(tmp_path / "log.parquet")


def test_a_sample_is_imported_and_evaluated_with_the_ips_value_of_a_hand_computation(tmp_path):
    lines = dsjson_logs.events(600, seed=3)
    log = dsjson_logs.write(tmp_path / "log.dsjson", lines)
    table = tmp_path / "log.parquet"
    done = vfb("journal", "import", "--format", "dsjson", log, "--out", table, "--width", 8)
    assert done.exit_code == 0, done.output
    assert "wrote 600 decisions" in done.stdout
    words = ("--policy", "lingreedy", "--epsilon", 0, "--estimators", "ips,snips", "--train", 0.5)
    done = vfb("evaluate", table, "--layout", "disjoint", *words, "--resamples", 50, "--json")
    assert done.exit_code == 0, done.output
    found = {one["estimator"]: one["value"] for one in json.loads(done.stdout)["estimates"]}
    # Learnt from the first half, the greedy policy always chooses latte.
    rest = lines[300:]
    weights = [(line["_labelIndex"] == 1) / line["_label_probability"] for line in rest]
    rewards = [-line["_label_cost"] for line in rest]
    products = [weight * reward for weight, reward in zip(weights, rewards, strict=True)]
    assert found["ips"] == pytest.approx(statistics.fmean(products), rel=1e-12)
    assert found["snips"] == pytest.approx(sum(products) / sum(weights), rel=1e-12)
    assert found["snips"] == pytest.approx(1.0)


def test_a_row_has_what_the_event_says(tmp_path):
    (line,) = dsjson_logs.events(1, seed=1)
    made, table = imported(tmp_path, [line], arms=ARMS)
    (row,) = table.rows(named=True)
    assert (made.rows, row["event_id"], row["position"]) == (1, line["EventId"], 1)
    assert (row["arm"], row["index"]) == ([*dsjson_logs.DRINKS][row["index"]], line["_labelIndex"])
    assert (row["reward"], row["probability"]) == (-line["_label_cost"], line["_label_probability"])
    assert row["at"] == 1_612_454_400.246
    assert row["offered"] == [*dsjson_logs.DRINKS]
    # What the server would see of the same features in a call of the service's client.
    context = [*line["c"]["FromUrl"], {"GLocation": line["c"]["GLocation"]}]
    sent = OWN.free_rows([flatten(context)], longest=64.0)[0]
    assert [row[f"x_{place}"] for place in range(8)] == sent.tolist()
    pairs = [[("id", one["_tag"]), *flatten(one["j"])] for one in line["c"]["_multi"]]
    assert row["offered_features"] == ARMS.free_rows(pairs, longest=64.0).ravel().tolist()


def test_the_table_is_for_its_owner_and_readable(tmp_path):
    imported(tmp_path, dsjson_logs.events(5))
    assert stat.S_IMODE((tmp_path / "log.parquet").stat().st_mode) == 0o600
    assert read_log(tmp_path / "log.parquet", layout="disjoint").dim == 8


def test_a_label_may_be_missing_where_ranking_and_outcomes_tell_the_same(tmp_path):
    lines = dsjson_logs.events(50, seed=5)
    _, labelled = imported(tmp_path, lines)
    labels = ("_label_cost", "_label_probability", "_label_Action", "_labelIndex")
    bare = [{key: line[key] for key in line if key not in labels} for line in lines]
    _, unlabelled = imported(tmp_path, bare)
    assert unlabelled.equals(labelled)


def test_what_teaches_nothing_is_left_out_and_counted(tmp_path):
    lines = dsjson_logs.events(8)
    lines[1] |= {"_skipLearn": True}
    lines[2] |= {"DeferredAction": True}
    lines[3] |= {
        "DeferredAction": True,
        "o": [*lines[3]["o"], {"EventId": "x", "ActionTaken": True}],
    }
    lines[4] |= {"_label_cost": None, "o": []}
    lines[5] = {"RewardValue": 1.0, "EnqueuedTimeUtc": "2021-02-04T16:00:00Z", "EventId": "gone"}
    made, table = imported(tmp_path, lines)
    assert (made.inactive, made.without_reward, made.without_event) == (2, 1, 1)
    assert table["position"].to_list() == [1, 4, 7, 8]
    made, table = imported(tmp_path, lines, unrewarded=0.25)
    assert (made.without_reward, table["reward"][2]) == (0, 0.25)


def test_events_that_were_dropped_unevenly_are_thinned_to_the_same_fraction(tmp_path):
    lines = dsjson_logs.events(4_000, seed=7)
    for line in lines[2_000:]:
        line["pdrop"] = 0.75
    made, table = imported(tmp_path, lines)
    first = (table["position"] <= 2_000).sum()
    assert made.thinned == 2_000 - first
    assert 400 < first < 600  # a quarter of 2,000, ± 5 deviations
    assert (table["position"] > 2_000).sum() == 2_000
    even = [line | {"pdrop": 0.5} for line in lines]
    assert imported(tmp_path, even)[0].thinned == 0


def test_a_log_of_any_size_is_imported_in_parts(tmp_path, monkeypatch):
    lines = dsjson_logs.events(50, seed=3)
    for line in lines[20:30]:
        line["pdrop"] = 0.5
    whole = imported(tmp_path, lines, arms=ARMS)
    monkeypatch.setattr(dsjson, "ROWS_PER_BATCH", 7)
    in_rows = imported(tmp_path, lines, arms=ARMS)
    monkeypatch.setattr(dsjson, "ENTRIES_PER_BATCH", 30)
    in_entries = imported(tmp_path, lines, arms=ARMS)
    for made, table in (in_rows, in_entries):
        assert made == whole[0]
        assert table.equals(whole[1])
    assert 0 < whole[0].thinned < 40
    assert {path.name for path in tmp_path.iterdir()} == {"log.json", "log.parquet"}


def test_logs_that_overlap_count_once_and_a_mark_of_byte_order_is_no_text(tmp_path):
    lines = dsjson_logs.events(4)
    nameless = {key: value for key, value in lines[0].items() if key != "EventId"}
    log = dsjson_logs.write(tmp_path / "log.json", [*lines, *lines[1:], nameless, nameless])
    log.write_bytes(b"\xef\xbb\xbf" + log.read_bytes())
    out = tmp_path / "log.parquet"
    made = import_dsjson(log, out, own=OWN)
    assert (made.rows, made.repeated) == (6, 3)  # without an id nobody knows
    assert "3 lines came before and were left out" in vfb(*JOURNAL_IMPORT, log, "--out", out).stdout


def test_a_packed_log_is_read_and_blank_lines_do_not_count(tmp_path):
    lines = [json.dumps(line) for line in dsjson_logs.events(3)]
    path = tmp_path / "log.json.gz"
    path.write_bytes(gzip.compress("\n\n".join(lines).encode()))
    assert import_dsjson(path, tmp_path / "log.parquet", own=OWN).rows == 3


def test_a_packed_log_that_is_damaged_or_a_bomb_is_one_error(tmp_path, monkeypatch):
    path, out = tmp_path / "log.json.gz", tmp_path / "log.parquet"
    path.write_bytes(b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 90)
    with pytest.raises(SettingError, match="must be a log to read"):
        import_dsjson(path, out, own=OWN)
    monkeypatch.setattr(dsjson, "MAX_LINE_BYTES", 1_000)
    path.write_bytes(gzip.compress(b" " * 1_001))
    with pytest.raises(SettingError, match="must have at most 1000 bytes, got a longer one"):
        import_dsjson(path, out, own=OWN)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"_labelIndex": 0, "_label_Action": 3}, "got two different labels"),
        ({"_labelIndex": 7, "_label_Action": 8}, "one of 3 actions, got 8"),
        ({"_label_probability": 0.0}, r"a probability in \(0, 1\], got 0.0"),
        ({"_label_probability": None, "p": []}, r"a probability in \(0, 1\], got None"),
        ({"_label_Action": None, "_labelIndex": None, "a": []}, "by _label_Action or a, got none"),
        ({"c": {"FromUrl": []}}, "actions in c._multi, got none"),
        ({"c": {"_multi": ["tea"]}}, "objects in c._multi, got 'tea'"),
        ({"c": {"_multi": [{"_tag": "a"}, {"_tag": "a"}]}}, "got one twice"),
        ({"_outcomes": []}, "an event of one slot, got one of several"),
        ({"Timestamp": "yesterday"}, "a Timestamp of ISO 8601, got 'yesterday'"),
        ({"pdrop": 1.0}, r"a pdrop in \[0, 1\), got 1.0"),
        ({"_label_cost": None, "o": [{"v": 10**400}]}, "a reward within ±1e[+]100, got 1000"),
        ({"_label_cost": 1e101}, "a reward within ±1e[+]100, got -1e[+]101"),
        ({"_label_cost": "high"}, "an event in JSON, but Expected `float"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_event_is_one_error_with_its_number(tmp_path, change, says):
    lines = dsjson_logs.events(3)
    lines[1] |= change
    with pytest.raises(SettingError, match=f"log.json, line 2: must .*{says}"):
        imported(tmp_path, lines)
    assert [path.name for path in tmp_path.iterdir()] == ["log.json"]


def test_files_that_cannot_be_read_or_written_are_one_line(tmp_path):
    log = dsjson_logs.write(tmp_path / "log.json", dsjson_logs.events(2))
    for words, says in (
        ((tmp_path / "none.json", "--out", tmp_path / "x.parquet"), "must be a log to read"),
        ((log, "--out", tmp_path / "no" / "x.parquet"), "cannot be written"),
        (
            (log, "--out", tmp_path / "x.parquet", "--scaling", tmp_path / "no"),
            "cannot read the scaling",
        ),
        ((log, "--out", tmp_path / "x.parquet", "--format", "csv"), "dsjson"),
    ):
        done = vfb("journal", "import", *words)
        assert done.exit_code == 2
        assert says in done.stderr
    log.write_text("{\n")
    assert "line 1: must be an event in JSON" in vfb(
        "journal", "import", log, "--out", tmp_path / "x.parquet"
    ).stderr  # fmt: skip
    log.write_text("\n")
    assert "got none among 1 lines" in vfb(
        "journal", "import", log, "--out", tmp_path / "x.parquet"
    ).stderr  # fmt: skip
