"""Flags and counts are not served unless the owner accepts that they can be read back."""

import json
from contextlib import contextmanager

import numpy as np
import polars as pl
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from live_world import LiveWorld
from typer.testing import CliRunner

from vfbandits.audit.discrete import columns_on_grids
from vfbandits.cli.main import app
from vfbandits.errors import ConfigError, FeatureError
from vfbandits.participant.passive import PassiveService
from vfbandits.participant.run import build_passive
from vfbandits.protocol.roster import Member, Roster, Terms
from vfbandits.settings.services import load_passive
from vfbandits.settings.template import config_text
from vfbandits.telemetry.log import logger_for

N_USERS = 60
AWAY = "active.example:7443"


@given(
    n_values=st.integers(2, 20),
    spread=st.floats(1e-3, 1e3),
    centre=st.floats(-1e3, 1e3),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_column_of_few_values_is_found_however_it_is_scaled_and_no_other(
    n_values, spread, centre, seed
):
    rng = np.random.default_rng(seed)
    counts = np.append(np.arange(n_values), rng.integers(0, n_values, 100))
    table = [
        rng.standard_normal(len(counts)),
        (counts - centre) / spread,
        np.full(len(counts), 3.0),
    ]
    assert columns_on_grids(np.column_stack(table)) == [1]


def test_a_flag_is_found_in_a_few_rows_and_in_fewer_nothing_is_said():
    assert columns_on_grids(np.array([[0.0], [1.0]] * 3)) == []
    assert columns_on_grids(np.array([[0.0], [1.0]] * 4)) == [0]


@given(n_rows=st.integers(8, 60), n_values=st.integers(2, 4), seed=st.integers(0, 2**32 - 1))
def test_in_a_small_table_only_columns_of_few_values_are_found(n_rows, n_values, seed):
    rng = np.random.default_rng(seed)
    counts = np.append(np.arange(n_values), rng.integers(0, n_values, n_rows - n_values))
    # Three users with the same number in each of their rows: it repeats, and is on no grid.
    repeated = rng.standard_normal(3)[np.arange(n_rows) % 3]
    table = np.column_stack([rng.standard_normal(n_rows), counts / 7.0, repeated])
    assert columns_on_grids(table) == [1]


@pytest.fixture
def files(tmp_path):
    """A federation on paper, whose bank has a flag and a count."""
    world = LiveWorld(
        tmp_path,
        widths={"shop": 2, "bank": 3},
        terms=Terms(layout="disjoint"),
        n_users=N_USERS,
    )
    made = world.federation()
    path = tmp_path / "bank.parquet"
    rng = np.random.default_rng(1)
    drawn = {"f1": rng.random(N_USERS) < 0.5, "f2": rng.poisson(2.0, N_USERS)}
    pl.read_parquet(path).with_columns(**{n: pl.Series(v) for n, v in drawn.items()}).write_parquet(
        path
    )
    return made


def configured(files, access="", *, address=AWAY):
    path = files.config("bank")
    text = path.read_text().replace(files.address, address)
    path.write_text(f"{text}\n[access]\n{access}\n")
    return load_passive(path)


@contextmanager
def built(settings):
    service = build_passive(settings, logger_for("bank", "passive"))
    assert isinstance(service, PassiveService)
    try:
        yield service
    finally:
        service.gate.close()
        service._lock.release()  # noqa: SLF001  (it was built and never run)


def test_a_participant_with_flags_and_counts_refuses_to_serve_and_names_them(files):
    with pytest.raises(ConfigError, match=r"the columns f1, f2 hold flags.*discrete: f1, f2"):
        build_passive(configured(files), logger_for("bank", "passive"))


@pytest.mark.parametrize(
    ("accept", "left"),
    [('["discrete: f1, f2"]', None), ('["discrete: f1", "discrete: f2"]', None),
     ('["discrete: f1"]', "f2"), ('["discrete: f0"]', "f1, f2")],
)  # fmt: skip
def test_only_columns_that_are_accepted_by_name_are_served(files, accept, left):
    settings = configured(files, f"accept = {accept}")
    if left is not None:
        with pytest.raises(ConfigError, match=f"the columns {left} hold"):
            build_passive(settings, logger_for("bank", "passive"))
        return
    with structlog.testing.capture_logs() as lines, built(settings):
        (line,) = [one for one in lines if one["event"] == "discrete_accepted"]
    assert (line["columns"], line["by"]) == ("f1, f2", "access.accept")


def test_on_loopback_they_are_served_and_the_log_says_so(files):
    with (
        structlog.testing.capture_logs() as lines,
        built(configured(files, address="127.0.0.1:7443")),
    ):
        (line,) = [one for one in lines if one["event"] == "discrete_accepted"]
    assert (line["columns"], line["by"], line["log_level"]) == ("f1, f2", "loopback", "warning")


@pytest.mark.parametrize(
    ("accept", "words"),
    [
        ('["discrete: f1, f7"]', "must name columns of .* f0, f1, f2, got f7"),
        ('["flags: f1"]', r"findings \(discrete\) with columns, .* got 'flags' with 1 columns"),
        ('["discrete"]', "got 'discrete' with 0 columns"),
        ('["discrete: f1,"]', "got 'discrete' with 1 columns and one without a name"),
    ],
)
def test_a_finding_or_a_column_that_there_is_not_cannot_be_accepted(files, accept, words):
    with pytest.raises(ConfigError, match=words):
        build_passive(configured(files, f"accept = {accept}"), logger_for("bank", "passive"))


def test_a_store_that_is_away_at_the_start_is_checked_before_the_first_row_leaves(files):
    settings = configured(files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vfbandits.features.memory.MemoryStore.sample", _away)
        with built(settings) as service:
            with pytest.raises(FeatureError, match="is away"):
                service._block([("user-1",)])  # noqa: SLF001
            patch.undo()
            with pytest.raises(FeatureError, match="the columns f1, f2 hold"):
                service._block([("user-1",)])  # noqa: SLF001


def _away(store, count):
    raise FeatureError("the store is away")


def test_no_file_that_an_organisation_is_handed_accepts_anything():
    members = (
        Member("shop", "active", "01" * 32, 2, "03" * 32),
        Member("bank", "passive", "02" * 32, 3, "04" * 32),
    )
    roster = Roster("fair", 1, Terms(), members)
    for member in members:
        text = config_text(member, roster, address="a.example:1", roster_file="r.signed")
        assert "accept" not in text


@pytest.mark.parametrize("address", [AWAY, "127.0.0.1:1"])
def test_the_preflight_finds_them_before_the_start(files, address):
    configured(files, address=address)
    words = ["preflight", "--config", str(files.config("bank")), "--json"]
    found = json.loads(CliRunner().invoke(app, words).stdout)["findings"]
    (one,) = [each for each in found if each["what"] == "columns"]
    assert one["state"] == ("problem" if address == AWAY else "warning")
    assert "the columns f1, f2 hold" in one["says"]
