"""Preflight of keys, clock and roster: each fault has its line, and looking changes nothing."""

import os
import shutil
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from members import join
from preflights import (
    WIDTHS,
    check,
    copied,
    edit,
    home,
    made,
    only_problem,
    says,
    snapshot,
    states,
    store_share,
)

from vfbandits.admin.federation_files import with_member, write_roster
from vfbandits.admin.preflight import preflight
from vfbandits.features.fit import hash_scaling
from vfbandits.journal.sqlite.journal import SqliteJournal
from vfbandits.pki import Grant, approve, create_authority


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


# --- all is well ------------------------------------------------------------------------------


def test_an_active_participant_that_is_ready_has_no_problem_and_is_left_as_it_was(federation):
    before = snapshot(federation.folder)
    report = check(federation)
    assert report.is_ready, report.problems
    assert {finding.state for finding in report.findings} == {"ok"}
    assert snapshot(federation.folder) == before


def test_one_that_has_a_history_is_left_as_it_was_too(dense):
    state = home(dense, "shop", "state")
    state.mkdir(mode=0o700)
    SqliteJournal(state / "journal.db").close()
    store_share(dense, "shop", np.eye(7)[:, :3])
    before = snapshot(dense.folder)
    report = check(dense)
    assert report.is_ready, report.problems
    assert says(report, "envelopes", "ok") == "opened at an earlier start"
    assert "epoch 1, orthonormal" in says(report, "shares", "ok")
    assert snapshot(dense.folder) == before


def test_all_that_is_looked_at_has_a_line(dense):
    assert {finding.what for finding in check(dense).findings} == {
        "configuration", "certificate", "sealing key", "clock", "roster", "own entry", "features",
        "width", "state", "shares", "envelopes", "journal", "port",
    }  # fmt: skip
    assert {finding.what for finding in check(dense, "bank").findings} == {
        "configuration", "certificate", "sealing key", "clock", "roster", "own entry", "features",
        "width", "columns", "state", "shares", "outbox", "address", "connection",
    }  # fmt: skip
    assert {finding.what for finding in check(dense, "operator").findings} == {
        "configuration", "certificate", "clock", "roster", "own entry", "address", "connection",
    }  # fmt: skip


# --- the file ---------------------------------------------------------------------------------


def test_a_file_that_is_not_there_or_no_toml_is_the_only_finding(federation, tmp_path):
    report = preflight(tmp_path / "none.toml")
    assert "must be a file to read" in only_problem(report, "configuration")
    federation.config("shop").write_text("name = ")
    assert "must be a TOML file" in only_problem(check(federation), "configuration")


def test_an_unknown_key_is_told_and_the_rest_is_looked_at_all_the_same(federation):
    edit(federation, "shop", "role = ", "rolls = 1\nrole = ")
    report = check(federation)
    assert "rolls is not a key, but role is" in only_problem(report, "configuration")
    assert states(report, "roster") == ["ok"]


def test_features_that_were_never_filled_in_are_told(federation):
    text = federation.config("bank").read_text().split("columns =")[0]
    federation.config("bank").write_text(text + "columns = []\n")
    report = check(federation, "bank")
    assert "features need columns or a scaling" in says(report, "configuration")
    assert states(report, "own entry") == ["ok"]


# --- identity ---------------------------------------------------------------------------------


def test_a_missing_folder_of_keys_is_told(federation):
    shutil.rmtree(home(federation, "shop", "identity"))
    assert "vfb pki request" in says(check(federation), "identity")


def test_a_folder_in_which_others_could_swap_keys_is_told(federation):
    home(federation, "shop", "identity").chmod(0o777)
    assert "chmod 700" in only_problem(check(federation), "identity")


@pytest.mark.parametrize("file", ["shop.crt", "authority.crt"])
def test_a_missing_certificate_is_told(federation, file):
    home(federation, "shop", "identity", file).unlink()
    assert file in says(check(federation), "certificate")


def test_a_missing_key_is_told(federation):
    home(federation, "shop", "identity", "shop.key").unlink()
    assert "where vfb pki request was run" in only_problem(check(federation), "certificate")


def test_a_key_that_others_can_read_is_told(federation):
    home(federation, "shop", "identity", "shop.key").chmod(0o640)
    assert "chmod 600" in only_problem(check(federation), "certificate")


def test_the_key_of_somebody_else_is_told(federation):
    key = home(federation, "shop", "identity", "shop.key")
    shutil.copy(home(federation, "bank", "identity", "bank.key"), key)
    assert "got a different key" in only_problem(check(federation), "certificate")


def test_a_certificate_of_another_authority_is_told(federation, tmp_path):
    other = tmp_path / "other"
    create_authority(other, "local")
    folder = join(tmp_path / "spy", other, {"federation": "local", "name": "shop",
                                            "role": "active", "width": 3})  # fmt: skip
    for file in ("shop.crt", "shop.key"):
        shutil.copy(folder / file, home(federation, "shop", "identity", file))
    report = check(federation)
    assert "by a different key" in says(report, "certificate")
    assert "the roster has a different key of 'shop'" in says(report, "own entry")


def test_a_configuration_with_another_role_than_its_certificate_is_told(federation):
    edit(federation, "app", 'role = "application"', 'role = "operator"')
    report = check(federation, "app")
    assert "wanted 'operator', got 'application'" in says(report, "certificate")
    assert "is application in the roster, operator in the configuration" in says(
        report, "own entry"
    )


def later(**delta):
    return datetime.now(UTC) + timedelta(**delta)


def test_an_expired_certificate_is_told(federation):
    text = only_problem(check(federation, now=later(days=366)), "certificate")
    assert "expired on" in text
    assert "--renew" in text


def test_a_certificate_that_is_not_valid_yet_points_to_the_clock(federation):
    report = check(federation, now=later(days=-3))
    texts = [f.says for f in report.problems if f.what == "certificate"]
    assert any("shop.crt is not valid before" in t and "this machine's clock" in t for t in texts)
    assert "Set the clock" in says(report, "clock")


def test_the_last_thirty_days_of_a_certificate_are_a_warning(federation):
    report = check(federation, now=later(days=340))
    assert report.is_ready
    assert "--renew" in says(report, "certificate", "warning")
    report = check(federation, now=later(days=3_640))
    assert not report.is_ready


def test_the_last_thirty_days_of_the_authority_are_a_warning(tmp_path):
    federation = made(tmp_path)
    end = federation.authority.certificate.not_valid_after_utc
    request = home(federation, "shop", "identity", "shop.request.json")
    grant = Grant(days=38, renew=True)
    approve(request, federation.authority.folder, grant=grant, now=end - timedelta(days=40))
    report = check(federation, now=end - timedelta(days=20))
    texts = [f.says for f in report.findings if (f.what, f.state) == ("certificate", "warning")]
    assert "--renew" in texts[0]
    assert "must reissue all certificates" in texts[1]


def test_a_file_from_the_future_points_to_the_clock(federation):
    ahead = later(hours=2).timestamp()
    os.utime(home(federation, "shop", "roster.signed"), (ahead, ahead))
    assert "roster.signed was written at" in only_problem(check(federation), "clock")


def test_a_missing_or_open_sealing_key_is_told(federation):
    key = home(federation, "bank", "identity", "bank.sealing.key")
    key.chmod(0o644)
    assert "chmod 600" in says(check(federation, "bank"), "sealing key")
    key.unlink()
    report = check(federation, "bank")
    assert "wanted a private key" in says(report, "sealing key")


# --- roster -----------------------------------------------------------------------------------


def test_a_missing_roster_is_told(federation):
    home(federation, "shop", "roster.signed").unlink()
    assert "from the organiser" in only_problem(check(federation), "roster")


def test_a_roster_that_was_changed_is_told(federation):
    path = home(federation, "shop", "roster.signed")
    path.write_bytes(path.read_bytes().replace(b'"width":3', b'"width":4'))
    assert "or changed since" in only_problem(check(federation), "roster")


def test_a_member_that_is_not_in_the_roster_is_told(tmp_path):
    federation = made(tmp_path)
    federation.admit_passive("gym", 2, federation.plan.features["bank"])
    write_roster(federation.roster, federation.authority, home(federation, "gym", "roster.signed"))
    text = says(check(federation, "gym"), "own entry")
    assert "has no 'gym'" in text
    assert "vfb federation add" in text


def test_other_keys_than_those_of_the_roster_are_told(federation):
    folder = home(federation, "bank", "identity")
    shutil.copy(
        home(federation, "news", "identity", "news.sealing.key"), folder / "bank.sealing.key"
    )
    assert "the sealing key of 'bank' in the roster differs" in says(
        check(federation, "bank"), "own entry"
    )


def test_the_roster_in_the_state_folder_is_the_one_that_counts(tmp_path):
    federation = made(tmp_path)
    approved = federation.admit_passive("gym", 2, federation.plan.features["bank"])
    later_roster = with_member(federation.roster, approved.member)
    store_share(federation, "shop", np.eye(3), later_roster, epoch=2)
    assert "number 2 in" in says(check(federation), "roster", "ok")
    home(federation, "shop", "roster.signed").unlink()
    report = check(federation)
    assert report.is_ready
    assert "number 2 in" in says(report, "roster", "warning")


def test_the_first_roster_of_an_active_participant_counts_before_its_file(federation):
    state = home(federation, "shop", "state")
    state.mkdir(mode=0o700)
    (state / "first-roster.signed").write_bytes(b"vfbandits signed roster 1\nno\n{}")
    assert "wanted a signature in hex" in only_problem(check(federation), "roster")


def test_an_authority_with_a_key_of_another_kind_is_told(federation):
    store_share(federation, "shop", np.eye(3))
    key = rsa.generate_private_key(65_537, 2_048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "local")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, later(), later(days=1))
    pem = builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    home(federation, "shop", "identity", "authority.crt").write_bytes(pem)
    texts = [finding.says for finding in check(federation).problems if finding.what == "roster"]
    assert "wanted an authority with an ECDSA key" in texts[0]


def test_a_participant_that_is_asked_by_pseudonyms_must_be_able_to_read_its_users(tmp_path):
    federation = made(tmp_path, users="pseudonyms")
    report = check(federation, "bank")
    assert says(report, "users", "ok") == "2 can be read, to be found by their pseudonyms"
    assert states(check(federation, "shop"), "users") == []  # it asks, and looks nobody up


def with_requests(federation, width, *, tables=""):
    """The shop's features come with requests, hashed to this many columns."""
    path = federation.config("shop")
    before, _, after = path.read_text().partition("[features]")
    rest = after[after.find("\n[") :] if "\n[" in after else ""
    hash_scaling(rest=width).save(path.with_name("scaling.json"))
    text = '[features]\nkind = "request"\nscaling = "scaling.json"\n'
    path.write_text(f"{before}{text}{rest}\n{tables}")
    return federation


@pytest.mark.parametrize(("more", "state"), [(0, "ok"), (1, "problem")])
def test_features_that_come_by_name_are_compared_with_the_roster(federation, more, state):
    width = WIDTHS["shop"] + more
    assert states(check(with_requests(federation, width)), "names") == [state]


@pytest.mark.parametrize(
    ("layout", "table", "said"),
    [
        ("disjoint", 'user = "u"', "layout disjoint, hashed to scaling 3 columns"),
        ("disjoint", "", "needs user, the name of the context feature"),
        ("per_arm", 'user = "u"', "needs layout 'outer'"),
    ],
)
def test_what_the_facade_of_personalizer_needs_is_looked_at(tmp_path, layout, table, said):
    http = '[http]\naddress = "127.0.0.1:0"\ninsecure = true\n[http.personalizer]\n'
    federation = with_requests(
        made(tmp_path, layout=layout), WIDTHS["shop"], tables=f"{http}{table}\n"
    )
    (found,) = [one for one in check(federation).findings if one.what == "personalizer"]
    assert said in found.says
    assert found.state == ("ok" if said.startswith("layout") else "problem")
