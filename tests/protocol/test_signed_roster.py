"""The organiser's signature on a roster."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from dealt import dense_federation
from hypothesis import given
from hypothesis import strategies as st

from vfbandits.errors import ConfigError, IdentityError
from vfbandits.protocol.signed_roster import MAX_BYTES, TITLE, open_roster, sign_roster

KEY = generate_private_key(SECP256R1())
ROSTER = dense_federation().roster
SIGNED = sign_roster(ROSTER, KEY)


def test_what_was_signed_is_what_is_opened():
    assert open_roster(SIGNED, KEY.public_key()) == ROSTER
    assert open_roster(SIGNED, KEY.public_key()).digest == ROSTER.digest


def test_another_authority_s_roster_is_refused():
    with pytest.raises(IdentityError, match="signed by this federation's authority"):
        open_roster(SIGNED, generate_private_key(SECP256R1()).public_key())


def test_a_signature_cannot_be_moved_to_another_roster():
    head, signature, _ = SIGNED.split(b"\n", 2)
    other = replace(ROSTER, number=2).to_bytes()
    with pytest.raises(IdentityError):
        open_roster(b"\n".join((head, signature, other)), KEY.public_key())


def test_every_byte_counts():
    for place in range(len(SIGNED)):
        changed = bytearray(SIGNED)
        changed[place] ^= 0x20  # turns hex digits into their capitals, too
        with pytest.raises(IdentityError):
            open_roster(bytes(changed), KEY.public_key())


@given(cut=st.integers(0, len(SIGNED) - 1), more=st.binary(max_size=4))
def test_a_truncated_or_longer_file_is_refused(cut, more):
    for data in (SIGNED[:cut] + more, SIGNED + more + b" "):
        if data != SIGNED:
            with pytest.raises(IdentityError):
                open_roster(data, KEY.public_key())


@given(data=st.binary(max_size=300), titled=st.booleans())
def test_garbage_is_refused(data, titled):
    with pytest.raises(IdentityError):
        open_roster(TITLE + data if titled else data, KEY.public_key())


def test_a_huge_file_is_refused_before_any_work():
    with pytest.raises(IdentityError, match="at most"):
        open_roster(SIGNED + bytes(MAX_BYTES), KEY.public_key())


def test_a_signed_document_that_is_no_roster_says_so():
    document = b'{"format":"of tomorrow"}'
    signature = KEY.sign(TITLE + document, ECDSA(SHA256())).hex().encode()
    with pytest.raises(ConfigError, match="vfbandits roster"):
        open_roster(TITLE + signature + b"\n" + document, KEY.public_key())


def test_a_signed_roster_of_a_future_version_is_named():
    later = TITLE.replace(b"1", b"2") + SIGNED[len(TITLE) :]
    message = "wanted a 'vfbandits signed roster 1', got 'vfbandits signed roster 2'"
    with pytest.raises(IdentityError, match=message):
        open_roster(later, KEY.public_key())
