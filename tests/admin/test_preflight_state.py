"""Preflight of features, state and port: each fault has its line."""

import fcntl
import os
import shutil
import socket
import sqlite3
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from preflights import (
    check,
    copied,
    edit,
    home,
    made,
    only_problem,
    says,
    store_share,
)

from vfbandits.admin.federation_files import write_roster
from vfbandits.features.scaling import Scaling
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.participant.outbox import Outbox
from vfbandits.protocol.roster import SharesRules

TARGET = 'journal_target = "env:VFB_TEST_JOURNAL"'


@pytest.fixture(scope="module")
def made_blockwise(tmp_path_factory):
    return made(tmp_path_factory.mktemp("blockwise"))


@pytest.fixture(scope="module")
def made_dense(tmp_path_factory):
    return made(tmp_path_factory.mktemp("dense"), mask="dense", aggregation="secure")


@pytest.fixture
def federation(made_blockwise, tmp_path):
    return copied(made_blockwise, tmp_path)


@pytest.fixture
def dense(made_dense, tmp_path):
    return copied(made_dense, tmp_path)


# --- features ---------------------------------------------------------------------------------


def test_a_store_that_cannot_be_opened_is_told(federation):
    (federation.folder.parent / "shop.parquet").unlink()
    assert "repair the store" in only_problem(check(federation), "features")


def test_another_width_than_the_rosters_is_told(federation):
    edit(federation, "shop", '"f1", "f2"]', '"f1"]')
    assert "the roster has 3 for 'shop', [features] give 2" in only_problem(
        check(federation), "width"
    )


def test_another_number_of_key_columns_than_the_layouts_is_told(federation):
    edit(federation, "shop", 'key = ["user", "arm"]', 'key = ["user"]')
    found = [finding.says for finding in check(federation).problems]
    assert "layout per_arm wants 2 key columns, the user's and the arm's, got user" in found[0]
    assert "Correct 'key'" in found[0]


def test_a_clip_norm_above_the_bound_is_a_warning(federation):
    edit(federation, "shop", "kind =", "clip_norm = 100.0\nkind =")
    report = check(federation)
    assert report.is_ready
    assert "above 64 is not sent" in says(report, "features", "warning")


@pytest.mark.parametrize("pinned", ["", "ab" * 32])
def test_a_scaling_that_is_not_the_rosters_is_told(federation, pinned):
    Scaling.identity(["f0", "f1", "f2"]).save(home(federation, "shop", "scaling.json"))
    edit(federation, "shop", 'columns = ["f0", "f1", "f2"]', 'scaling = "scaling.json"')
    if not pinned:
        assert "is not pinned" in says(check(federation), "scaling", "warning")
        return
    pin(federation, "shop", pinned)
    assert "Use the scaling that you joined with" in only_problem(check(federation), "scaling")
    pin(federation, "shop", Scaling.identity(["f0", "f1", "f2"]).digest)
    assert "as in the roster" in says(check(federation), "scaling", "ok")


def pin(federation, name, digest):
    roster = federation.roster
    members = tuple(
        replace(member, scaling=digest) if member.name == name else member for member in roster
    )
    roster = replace(roster, members=members)
    write_roster(roster, federation.authority, home(federation, name, "roster.signed"))


def test_an_active_participant_may_have_no_store(federation):
    text = federation.config("shop").read_text()
    federation.config("shop").write_text(text.split("[features]")[0])
    report = check(federation)
    assert report.is_ready
    assert "with each request" in says(report, "features", "ok")


# --- state ------------------------------------------------------------------------------------


def test_a_state_folder_that_is_a_file_is_told(federation):
    home(federation, "shop", "state").write_text("")
    assert "got a file" in only_problem(check(federation), "state")


def test_a_state_folder_that_cannot_be_written_is_told(federation, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "is not writable by this user" in only_problem(check(federation), "state")


def test_a_state_folder_that_others_can_look_into_is_a_warning(federation):
    home(federation, "shop", "state").mkdir(mode=0o755)
    home(federation, "shop", "state").chmod(0o755)
    assert "chmod 700" in says(check(federation), "state", "warning")


def test_a_damaged_share_is_told(federation):
    path = store_share(federation, "shop", np.eye(3))
    path.write_bytes(path.read_bytes()[:-1])
    assert "from a backup" in says(check(federation), "shares")


def test_a_share_that_is_not_orthonormal_is_told(federation):
    store_share(federation, "shop", 1.1 * np.eye(3))
    assert "must be orthonormal" in only_problem(check(federation), "shares")
    store_share(federation, "shop", np.full((3, 3), np.nan))
    assert "must be orthonormal" in only_problem(check(federation), "shares")


def test_a_share_that_others_can_read_is_told(federation):
    store_share(federation, "shop", np.eye(3)).chmod(0o644)
    assert "chmod 600" in only_problem(check(federation), "shares")


def test_dense_masks_without_envelopes_are_told(dense):
    folder = home(dense, "shop", "envelopes")
    (folder / "bank.epoch-1.envelope").unlink()
    assert "vfb masks deal --epoch 1" in only_problem(check(dense), "envelopes")
    shutil.rmtree(folder)
    assert "got no folder" in only_problem(check(dense), "envelopes")
    edit(dense, "shop", 'envelopes = "envelopes"\n', "")
    assert "no 'envelopes' in the configuration" in only_problem(check(dense), "envelopes")


def test_envelopes_of_another_deal_are_told(dense):
    other = dense.deal(dense.roster, 1)["bank"]
    home(dense, "shop", "envelopes", "bank.epoch-1.envelope").write_bytes(other)
    assert "must be of one deal" in only_problem(check(dense), "envelopes")


def journal_of(federation):
    home(federation, "shop", "state").mkdir(mode=0o700)
    return home(federation, "shop", "state", "journal.db")


def test_a_journal_that_another_process_has_is_told(federation):
    journal = journal_of(federation)
    SqliteJournal(journal).close()
    with journal.with_name("journal.db.lock").open("r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "locked by another process" in only_problem(check(federation), "journal")
    assert check(federation).is_ready


def test_a_journal_that_is_no_journal_is_told(federation):
    journal = journal_of(federation)
    journal.write_bytes(b"not a database" * 100)
    assert "cannot be opened" in only_problem(check(federation), "journal")
    journal.unlink()
    with sqlite3.connect(journal) as db:
        db.execute("CREATE TABLE cats (name)")
    db.close()
    assert "got a database with 0x0" in only_problem(check(federation), "journal")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "wanted the address of a journal in VFB_TEST_JOURNAL, got none"),
        ("mysql://ann:secret@db.internal/vfb", "postgresql://"),
    ],
)
def test_an_address_of_a_database_that_is_none_is_told_before_the_first_start(
    federation, monkeypatch, url, said
):
    monkeypatch.setenv("VFB_TEST_JOURNAL", url)
    edit(federation, "shop", "journal = true", f"journal = true\n{TARGET}")
    problem = only_problem(check(federation), "journal")
    assert said in problem
    assert "secret" not in problem


def test_a_database_without_its_extra_is_told_before_the_first_start(federation, monkeypatch):
    monkeypatch.setenv("VFB_TEST_JOURNAL", "postgresql://ann:secret@db.internal/vfb")
    edit(federation, "shop", "journal = true", f"journal = true\n{TARGET}")
    assert "'default' at db.internal:5432/vfb" in says(check(federation), "journal", "ok")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    assert "pip install 'vfbandits[sql]'" in only_problem(check(federation), "journal")


def test_a_journal_may_be_switched_off(federation):
    edit(federation, "shop", "journal = true", "journal = false")
    assert "switched off" in says(check(federation), "journal", "ok")


def test_an_outbox_that_is_no_database_is_told(dense):
    home(dense, "bank", "state").mkdir(mode=0o700)
    home(dense, "bank", "state", "outbox.db").write_bytes(b"not a database" * 100)
    said = says(check(dense, "bank"), "outbox")
    assert "cannot be opened" in said
    assert "Join again with new keys" in said  # pads must not be used twice


def test_an_outbox_that_is_one_is_fine(dense):
    Outbox(home(dense, "bank", "state", "outbox.db")).close()
    assert "can be opened" in says(check(dense, "bank"), "outbox", "ok")


# --- the port ---------------------------------------------------------------------------------


def test_a_port_that_is_taken_is_told(federation):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(federation.address.rpartition(":")[2])))
        taken.listen()
        assert "Address already in use" in only_problem(check(federation), "port")


@pytest.mark.parametrize("name", ["shop", "bank"])
@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("nowhere", "host:port"),
        ("a..b:1", "wanted a host name that resolves"),
        ("1.2.3.4.5", "host:port"),
    ],
)
def test_an_address_that_is_none_is_told(federation, name, address, text):
    edit(federation, name, federation.address, address)
    what = "port" if name == "shop" else "address"
    assert text in only_problem(check(federation, name), what)


def test_a_host_that_nobody_knows_is_told(federation, monkeypatch):
    def nobody(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    assert "resolves, got '127.0.0.1'" in only_problem(check(federation, "bank"), "address")


@pytest.mark.parametrize("name", ["shop", "bank"])
def test_an_address_beyond_this_machine_needs_tls(federation, name):
    edit(federation, name, "insecure = false", "insecure = true")
    edit(federation, name, federation.address, "192.0.2.1:9")
    what = "port" if name == "shop" else "address"
    assert "must be on loopback" in only_problem(check(federation, name), what)


def test_nobody_at_the_address_is_told(federation):
    assert "Check that the active participant is running" in only_problem(
        check(federation, "bank"), "connection"
    )


@pytest.fixture(scope="module")
def on_shares(tmp_path_factory):
    rules = SharesRules(helper="bank", max_arms=2, window=2, decisions=2, posterior_scale=0.1)
    return made(tmp_path_factory.mktemp("shares"), bound=2.0, shares=rules)


def test_secrets_that_were_not_dealt_are_named_with_one_piece_of_advice(on_shares, tmp_path):
    federation = copied(on_shares, tmp_path)
    shutil.rmtree(home(federation, "bank", "dealt"))
    said = says(check(federation, "bank"), "dealt")
    assert "got no " in said
    assert said.count("vfb masks deal") == 1
    for path in home(federation, "shop", "dealt").glob("*.deal"):
        path.unlink()
    said = only_problem(check(federation), "dealt")
    assert "wanted windows of words" in said
    assert said.count("vfb masks deal") == 1


def test_a_low_stock_of_dealt_words_is_a_warning(on_shares, tmp_path):
    federation = copied(on_shares, tmp_path)
    assert "16 windows" in says(check(federation), "dealt", "ok")
    windows = sorted(home(federation, "shop", "dealt").glob("*.deal"))
    windows[4].unlink()  # those after a gap do not count
    said = says(check(federation), "dealt", "warning")
    assert said.startswith("words are left for 8 decisions in 4 windows, fewer than 16 windows.  ")
    assert said.count("vfb masks deal") == 1
    assert check(federation).is_ready


def test_rows_longer_than_the_declared_bound_are_a_warning_that_shows_none(on_shares, tmp_path):
    federation = copied(on_shares, tmp_path)
    for name in ("shop", "bank"):
        assert "rows" not in {f.what for f in check(federation, name).findings if f.state != "ok"}
    path = federation.folder.parent / "bank.parquet"
    table = pl.read_parquet(path)
    table.with_columns(pl.Series("f0", [3.25, 0.0, 0.0, 0.0])).write_parquet(path)
    said = says(check(federation, "bank"), "rows", "warning")
    assert "1 of 4 rows" in said
    assert "longer than 2, the declared bound" in said
    assert "clip_norm = 2" in said
    assert "3.2" not in said
    edit(federation, "bank", 'kind = "file"', 'clip_norm = 2.0\nkind = "file"')
    assert "rows" not in {f.what for f in check(federation, "bank").findings if f.state != "ok"}
