"""Files of keys and certificates: what cannot be read or written is one clear error."""

import shutil
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from members import BANK, GENERATOR

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.pki import Approved, Claim, create_authority, create_request, load_roster
from vfbandits.pki.files import read_file, write_new
from vfbandits.pki.request import Keys


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(IdentityError, match="keys need a folder to write to"):
        create_authority(tmp_path / "file", "shops")


def test_a_file_that_cannot_be_replaced_is_left(tmp_path):
    request = create_request(tmp_path, **BANK)
    request.unlink()
    request.mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(IdentityError, match="wanted a file to write"):
        create_request(tmp_path, **BANK, reuse_keys=True)
    assert sorted(tmp_path.iterdir()) == before


def test_an_existing_file_is_never_replaced_even_if_it_came_at_the_last_moment(tmp_path):
    (tmp_path / "b").write_text("old")
    new = {tmp_path / name: (b"new", 0o600) for name in "abc"}
    with pytest.raises(IdentityError, match="wanted a new file to write"):
        write_new(new)
    assert (tmp_path / "b").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_a_file_larger_than_it_could_be_is_not_read(tmp_path):
    (tmp_path / "file").write_bytes(bytes(11))
    assert read_file(tmp_path / "file", "a thing", most=11) == bytes(11)
    with pytest.raises(IdentityError, match="a thing of at most 10 bytes"):
        read_file(tmp_path / "file", "a thing", most=10)


def test_a_key_of_another_kind_is_refused(tmp_path):
    create_request(tmp_path, **BANK)
    create_request(tmp_path, **GENERATOR)
    shutil.copy(tmp_path / "pmg.signing.key", tmp_path / "bank.sealing.key")
    with pytest.raises(IdentityError, match="wanted an X25519 key"):
        Keys.load(tmp_path, "bank", "passive")
    shutil.copy(tmp_path / "pmg.key", tmp_path / "pmg.signing.key")
    with pytest.raises(IdentityError, match="wanted an Ed25519 key"):
        Keys.load(tmp_path, "pmg", "generator")


def test_an_authority_with_a_key_of_another_kind_opens_no_roster(tmp_path):
    key, now = Ed25519PrivateKey.generate(), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "shops")])
    uri = x509.UniformResourceIdentifier("vfb://shops/authority")
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        .sign(key, None)
    )
    (tmp_path / "authority.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
    with pytest.raises(IdentityError, match="with an ECDSA key"):
        load_roster(tmp_path / "roster", tmp_path / "authority.crt")


def test_an_approval_without_a_whole_digest_is_refused():
    good = Approved(Claim("shops", "op", "operator"), "ab" * 32)
    assert Approved.from_bytes(good.to_bytes()) == good
    with pytest.raises(ConfigError, match="64 digits of lower-case hex"):
        Approved.from_bytes(good.to_bytes().replace(b"abab", b"ABAB"))
