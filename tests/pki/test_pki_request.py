"""Requests: self-contained, signed by the key they bring, refused if one byte differs."""

import json
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from hypothesis import given, settings
from hypothesis import strategies as st
from members import BANK

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.pki import (
    Approved,
    Claim,
    Request,
    create_request,
)
from vfbandits.pki.request import Keys
from vfbandits.protocol.identity import Subject, key_digest


def test_a_request_holds_what_the_roster_will(tmp_path):
    request = Request.from_bytes(create_request(tmp_path, **BANK, scaling="cd" * 32).read_bytes())
    keys = Keys.load(tmp_path, "bank", "passive")
    sealing = keys.sealing.public_key().public_bytes_raw().hex()
    assert request.claim == Claim("shops", "bank", "passive", 3, sealing, "cd" * 32)
    assert request.key_digest == key_digest(keys.tls.public_key())
    member = request.claim.as_member(request.key_digest)
    assert (member.width, member.sealing_key, member.scaling) == (3, sealing, "cd" * 32)


@pytest.mark.parametrize(
    "changes",
    [
        {"width": 4},
        {"name": "bunk"},
        {"role": "active"},
        {"federation": "trains"},
        {"sealing_key": "ab" * 32},
        {"scaling": "ab" * 32},
        {"signature": ""},
        {"signature": "zz"},
        {"csr": "-----BEGIN"},
        {"csr": "\ud800"},
        {"generator_key": "ab" * 32},
        {"width": True},
        {"width": "3"},
        {"extra": 1},
        {"version": 2},
        {"format": "vfbandits member"},
    ],
)
def test_a_request_that_was_changed_is_refused(tmp_path, changes):
    document = json.loads(create_request(tmp_path, **BANK).read_bytes())
    with pytest.raises((IdentityError, ConfigError)):
        Request.from_bytes(json.dumps({**document, **changes}).encode())


def test_a_request_cannot_bring_somebody_else_s_key(tmp_path):
    """Mallory signs with her own key a request that holds the bank's certificate request."""
    bank = Request.from_bytes(create_request(tmp_path / "bank", **BANK).read_bytes())
    mallory = Keys.generate("passive")
    forged = Request.sign(bank.claim, bank.csr, mallory.tls)
    with pytest.raises(IdentityError, match="must be signed by its own key, got a wrong signature"):
        Request.from_bytes(forged.to_bytes())


def test_a_certificate_request_for_another_name_is_refused():
    keys = Keys.generate("passive")
    bank = keys.request(Subject("shops", "passive", "bank"), width=3, scaling="")
    news = keys.request(Subject("shops", "passive", "news"), width=3, scaling="")
    mixed = Request.sign(bank.claim, news.csr, keys.tls)
    with pytest.raises(
        IdentityError, match="wanted a certificate request for vfb://shops/passive/bank"
    ):
        Request.from_bytes(mixed.to_bytes())


def test_a_key_of_another_kind_is_refused():
    keys = replace(Keys.generate("passive"), tls=generate_private_key(SECP384R1()))
    request = keys.request(Subject("shops", "passive", "bank"), width=3, scaling="")
    with pytest.raises(IdentityError, match="wanted an ECDSA P-256 key"):
        Request.from_bytes(request.to_bytes())


VALID = (
    Keys.generate("passive")
    .request(Subject("shops", "passive", "bank"), width=3, scaling="")
    .to_bytes()
)


@given(place=st.integers(0, len(VALID)), length=st.integers(0, 20), put=st.binary(max_size=20))
@settings(max_examples=200)
def test_any_mutation_of_a_request_is_refused_or_changes_nothing(place, length, put):
    try:
        came = Request.from_bytes(VALID[:place] + put + VALID[place + length :])
    except (IdentityError, ConfigError):
        return
    assert came.claim == Request.from_bytes(VALID).claim
    assert came.key_digest == Request.from_bytes(VALID).key_digest


@given(data=st.binary(max_size=100) | st.text(max_size=100).map(str.encode))
def test_garbage_is_no_request_and_no_member(data):
    for kind in (Request, Approved):
        with pytest.raises(IdentityError):
            kind.from_bytes(data)
