"""Whom certificates name."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.errors import IdentityError
from vfbandits.protocol.identity import (
    CERTIFIED_ROLES,
    Subject,
    authority_of,
    key_digest,
    spell_digest,
    subject_of,
)
from vfbandits.protocol.roster import is_name

KEY = generate_private_key(SECP256R1())
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


def certificate(common_names, uris):
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, common) for common in common_names]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
    )
    if uris is not None:
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(KEY, SHA256())


@given(
    federation=st.from_regex(r"\A[a-z0-9][A-Za-z0-9._-]{0,30}\Z"),
    role=st.sampled_from(CERTIFIED_ROLES),
    name=st.from_regex(r"\A[a-z0-9][A-Za-z0-9._-]{0,30}\Z"),
)
def test_a_subject_survives_its_uri(federation, role, name):
    try:
        subject = Subject(federation, role, name)
    except IdentityError:
        texts = (federation, name)
        assert (
            any(not is_name(text) or "" in text.split(".") for text in texts)
            or name.lower() == "authority"
        )
        return
    assert Subject.from_uri(subject.uri) == subject


def test_a_certificate_says_whom_it_names():
    subject = Subject("shops", "passive", "bank")
    assert subject_of(certificate(["bank"], [subject.uri])) == subject
    assert subject_of(certificate(["bank"], ["https://x.example", subject.uri])) == subject


@pytest.mark.parametrize(
    ("common_names", "uris"),
    [
        (["bank"], None),
        (["bank"], []),
        (["bank"], ["https://x.example"]),
        (["bank"], ["vfb://shops/passive/bank", "vfb://shops/active/bank"]),
        (["bank"], ["vfb://shops/bank"]),
        (["bank"], ["vfb://shops/passive/bank/more"]),
        (["bank"], ["vfb://shops/king/bank"]),
        (["bank"], ["vfb:///passive/bank"]),
        (["shop"], ["vfb://shops/passive/bank"]),
        (["bank", "shop"], ["vfb://shops/passive/bank"]),
        ([], ["vfb://shops/passive/bank"]),
    ],
)
def test_a_certificate_that_names_nobody_or_two_is_refused(common_names, uris):
    with pytest.raises(IdentityError):
        subject_of(certificate(common_names, uris))


def test_a_name_that_cannot_be_read_is_refused():
    der = certificate(["bank"], ["vfb://shops/passive/bank"]).public_bytes(Encoding.DER)
    issuer, subject, rest = der.split(b"bank", 2)
    with pytest.raises(IdentityError, match="one common name"):
        subject_of(x509.load_der_x509_certificate(issuer + b"bank" + subject + b"\xff" * 4 + rest))


def test_an_authority_is_no_member_and_a_member_no_authority():
    authority = certificate(["shops"], ["vfb://shops/authority"])
    assert authority_of(authority) == "shops"
    with pytest.raises(IdentityError, match="wanted a URI as"):
        subject_of(authority)
    with pytest.raises(IdentityError, match="wanted an authority"):
        authority_of(certificate(["bank"], ["vfb://shops/passive/bank"]))
    with pytest.raises(IdentityError, match="wanted an authority"):
        authority_of(certificate(["bank"], ["vfb:///authority"]))


@pytest.mark.parametrize("name", ["a..b", "a.", "b" * 64, ".a", "a/b", "é", "authority"])
def test_a_name_that_no_host_name_can_hold_is_refused(name):
    with pytest.raises(IdentityError):
        Subject("shops", "passive", name)


def test_a_renewed_certificate_keeps_the_digest_of_its_key():
    one, two = (certificate([name], [f"vfb://s/passive/{name}"]) for name in ("a", "b"))
    assert key_digest(one.public_key()) == key_digest(two.public_key())
    other = generate_private_key(SECP256R1()).public_key()
    assert key_digest(one.public_key()) != key_digest(other)
    assert spell_digest(key_digest(other)).replace(" ", "") == key_digest(other)
