"""``vfb masks deal``: envelopes and a table, or one line of refusal."""

import json

import pytest
from members import GENERATOR, join
from typer.testing import CliRunner

from vfbandits.cli.masks import masks_app
from vfbandits.pki import Authority, Identity, create_authority, load_approved, load_roster
from vfbandits.protocol.dealt import first_window
from vfbandits.protocol.envelope import open_share
from vfbandits.protocol.roster import Roster, SharesRules, Terms
from vfbandits.protocol.signed_roster import sign_roster


@pytest.fixture
def folder(tmp_path):
    return make_folder(tmp_path, Terms(mask="dense"))


def make_folder(tmp_path, terms):
    ca = tmp_path / "ca"
    create_authority(ca, "shops")
    members = []
    for name, role, width in (("shop", "active", 20), ("bank", "passive", 30)):
        claim = {"federation": "shops", "name": name, "role": role, "width": width}
        members.append(load_approved(join(tmp_path, ca, claim) / f"{name}.member.json").member)
    pmg = load_approved(join(tmp_path, ca, GENERATOR) / "pmg.member.json")
    roster = Roster("shops", 3, terms, tuple(members), pmg.claim.generator_key)
    signed = sign_roster(roster, Authority.load(ca).private_key)
    (tmp_path / "roster.signed").write_bytes(signed)
    return tmp_path


def deal(folder, **changes):
    flags = {
        "roster": folder / "roster.signed",
        "authority": folder / "ca" / "authority.crt",
        "key-dir": folder / "pmg",
        "epoch": 4,
        "out": folder / "out",
        **changes,
    }
    pairs = ((f"--{flag}", str(value)) for flag, value in flags.items())
    words = [word for pair in pairs for word in pair if word]
    return CliRunner().invoke(masks_app, ["deal", *words], env={"COLUMNS": "200"})


def test_it_writes_an_envelope_for_each_and_says_what(folder):
    done = deal(folder)
    assert done.exit_code == 0, done.output
    roster = load_roster(folder / "roster.signed", folder / "ca" / "authority.crt")
    assert f"epoch 4 of shops, roster 3 ({roster.digest[:12]}" in done.stdout
    for name, width in roster.split.items():
        path = folder / "out" / f"{name}.epoch-4.envelope"
        assert f"50 × {width}" in done.stdout
        assert str(path) in done.stdout
        share = open_share(
            path.read_bytes(),
            roster=roster,
            epoch=4,
            participant=name,
            private_key=Identity.load(folder / name, name).sealing_key,
        )
        assert share.columns.shape == (50, width)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"roster": "none"}, "wanted a signed roster"),
        ({"authority": "none"}, "wanted a certificate"),
        ({"key-dir": "none"}, "no signing key"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, changes, message):
    done = deal(folder, **{key: folder / value for key, value in changes.items()})
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "out").exists()


def test_another_authority_s_roster_and_a_second_deal_are_refused(folder):
    create_authority(folder / "other", "shops")
    done = deal(folder, authority=folder / "other" / "authority.crt")
    assert (done.exit_code, "signed by this federation's authority" in done.stderr) == (2, True)
    assert deal(folder).exit_code == 0
    done = deal(folder)
    assert (done.exit_code, "take the next one" in done.stderr) == (2, True)
    assert deal(folder, epoch=5).exit_code == 0


def test_words_for_secret_shares_are_dealt_and_dealt_on(tmp_path):
    rules = SharesRules(helper="bank", max_arms=3, window=2, decisions=2, posterior_scale=0.1)
    folder = make_folder(tmp_path, Terms(bound=1.0, shares=rules))
    done = deal(folder, windows=2)
    assert done.exit_code == 0, done.output
    for name in ("shop", "bank"):
        assert str(folder / "out" / f"{name}.epoch-4.secrets") in done.stdout
    first = first_window(4)
    assert f"2 windows, {first} to {first + 1}: 4 decisions" in done.stdout
    assert "dealer.epoch-4.state has all secrets" in " ".join(done.stdout.split())
    done = deal(folder, windows=3, json="")
    document = json.loads(done.stdout)
    assert document["windows"] == {"first": first + 2, "next": first + 5}
    assert (document["decisions"], document["secrets"]) == (6, [])
    sizes = [path.stat().st_size for path in sorted((folder / "out").glob("*.deal"))[2:]]
    assert document["size_bytes"] == sum(sizes)
    (folder / "pmg" / "dealer.epoch-4.state").unlink()
    done = deal(folder)
    assert (done.exit_code, "give --state, or deal the next epoch" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("flag", "value"), [("windows", 2), ("state", "file"), ("from", "roster.signed")]
)
def test_flags_of_secret_shares_are_refused_for_masks(folder, flag, value):
    done = deal(folder, **{flag: value})
    assert done.exit_code == 2
    assert f"--{flag} goes with protection 'shares', got a roster with 'mask'" in done.stderr
    assert not (folder / "out").exists()
