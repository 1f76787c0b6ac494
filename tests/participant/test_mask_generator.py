"""Dealing masks into files."""

import os
from dataclasses import replace

import numpy as np
import pytest
from members import GENERATOR, join, mode
from numpy.testing import assert_allclose

from vfbandits.errors import EnvelopeError, IdentityError, MaskError
from vfbandits.participant.generator import deal_files, envelope_path
from vfbandits.pki import Identity, create_authority, load_approved
from vfbandits.protocol.envelope import check_deal, open_share
from vfbandits.protocol.roster import Roster, Terms

WIDTHS = {"shop": 2, "bank": 3, "news": 4}


@pytest.fixture
def roster(tmp_path):
    """Everybody's keys are in a folder of its own below ``tmp_path``."""
    ca = tmp_path / "ca"
    create_authority(ca, "shops")
    members = []
    for place, (name, width) in enumerate(WIDTHS.items()):
        role = "passive" if place else "active"
        terms = {"federation": "shops", "name": name, "role": role, "width": width}
        folder = join(tmp_path, ca, terms)
        members.append(load_approved(folder / f"{name}.member.json").member)
    pmg = load_approved(join(tmp_path, ca, GENERATOR) / "pmg.member.json")
    return Roster("shops", 1, Terms(mask="dense"), tuple(members), pmg.claim.generator_key)


def deal(tmp_path, roster, **changes):
    values = {"key_dir": tmp_path / "pmg", "epoch": 1, "out": tmp_path / "out", **changes}
    return deal_files(roster, **values)


def test_each_participant_opens_its_file_and_the_shares_are_one_orthogonal_mask(tmp_path, roster):
    dealt = deal(tmp_path, roster)
    parts = []
    for file in dealt.files:
        identity = Identity.load(tmp_path / file.participant, file.participant)
        assert file.path == tmp_path / "out" / f"{file.participant}.epoch-1.envelope"
        assert mode(file.path) & 0o133 == 0
        assert file.path.stat().st_size == file.size_bytes
        share = open_share(
            file.path.read_bytes(),
            roster=roster,
            epoch=1,
            participant=file.participant,
            private_key=identity.sealing_key,
        )
        assert share.columns.shape == (file.dim, file.width)
        parts.append(share.columns)
    Q = np.hstack(parts)
    assert_allclose(Q @ Q.T, np.eye(9), atol=1e-12)
    envelopes = {file.participant: file.path.read_bytes() for file in dealt.files}
    assert check_deal(envelopes, roster=roster, epoch=1) == dealt.name


def test_nothing_but_the_envelopes_is_written(tmp_path, roster):
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    dealt = deal(tmp_path, roster)
    after = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert after - before == {file.path for file in dealt.files}


def test_an_epoch_is_dealt_once(tmp_path, roster):
    files = deal(tmp_path, roster).files
    before = [file.path.read_bytes() for file in files]
    files[0].path.unlink()
    with pytest.raises(IdentityError, match="this epoch was dealt; take the next one"):
        deal(tmp_path, roster)
    assert [file.path.read_bytes() for file in files[1:]] == before[1:]
    assert not files[0].path.exists()
    assert deal(tmp_path, roster, epoch=2)


def test_the_key_that_the_roster_names_is_found_among_others(tmp_path, roster):
    create_authority(tmp_path / "ca2", "trains")
    other = {"federation": "trains", "name": "a", "role": "generator"}
    for path in join(tmp_path, tmp_path / "ca2", other).glob("*.signing.key"):
        path.rename(tmp_path / "pmg" / path.name)
    assert deal(tmp_path, roster)


def test_without_that_key_nothing_is_dealt(tmp_path, roster):
    with pytest.raises(IdentityError, match="got no signing key"):
        deal(tmp_path, roster, key_dir=tmp_path / "shop")
    with pytest.raises(IdentityError, match=f"generator .{'ab' * 32}. in"):
        deal(tmp_path, replace(roster, generator_key="ab" * 32))
    blockwise = replace(roster, terms=Terms(), generator_key="")
    with pytest.raises(IdentityError, match="none, since its masks are not dense"):
        deal(tmp_path, blockwise)
    with pytest.raises(MaskError, match="deals dense masks"):
        deal(tmp_path, replace(roster, terms=Terms()))
    with pytest.raises(EnvelopeError):
        deal(tmp_path, roster, epoch=-1)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, roster):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(IdentityError, match="envelopes need a folder"):
        deal(tmp_path, roster)


def test_if_one_envelope_cannot_be_written_none_is(tmp_path, roster, monkeypatch):
    """A full disk at the second one."""
    real, open_calls = os.open, 0

    def full(path, *rest):
        nonlocal open_calls
        open_calls += 1
        if open_calls == 2:
            raise OSError(28, "No space left on device", str(path))
        return real(path, *rest)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(IdentityError, match="No space left"):
        deal(tmp_path, roster)
    assert not list((tmp_path / "out").iterdir())
    assert envelope_path(tmp_path, "bank", 3).name == "bank.epoch-3.envelope"
