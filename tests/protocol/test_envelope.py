"""Sealed shares: who can open one, and what is refused."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from dealt import dense_federation
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import MORE

from vfbandits.core.mask import MaskShare, sample_mask, split_columns
from vfbandits.errors import EnvelopeError, IdentityError
from vfbandits.protocol.envelope import (
    ALONE,
    TITLE,
    Label,
    check_deal,
    most_bytes,
    open_share,
    read_label,
    seal_share,
)
from vfbandits.protocol.roster import Terms

REFUSALS = (EnvelopeError, IdentityError)
SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
DEALT = dense_federation()
ROSTER, KEYS, SIGNER = DEALT.roster, DEALT.keys, DEALT.generator.signing_key
SHARES = dict(
    zip(ROSTER.split.names, split_columns(sample_mask(6), ROSTER.split.widths), strict=True)
)


def seal(name="bank", share=None, **changes):
    values = {
        "roster": ROSTER,
        "epoch": 7,
        "participant": name,
        "recipient": KEYS[name].public_key(),
        "signing_key": SIGNER,
        **changes,
    }
    return seal_share(SHARES[name] if share is None else share, **values)


def unseal(data, name="bank", **changes):
    values = {
        "roster": ROSTER,
        "epoch": 7,
        "participant": name,
        "private_key": KEYS[name],
        **changes,
    }
    return open_share(data, **values)


def envelope(spelt, sealed, signer=SIGNER):
    """Any bytes at all, under a right signature: what a generator gone bad could send."""
    signed = TITLE + len(spelt).to_bytes(2, "little") + spelt + sealed
    return signed + signer.sign(signed)


def forge(**changes):
    """An envelope of the generator whose label says what it should not."""
    label = Label("shops", ROSTER.digest, 7, "bank", 6, 3, ALONE)
    spelt = replace(label, **changes).to_bytes()
    plain = SHARES["bank"].columns.tobytes(order="F")
    return envelope(spelt, SUITE.encrypt(plain, KEYS["bank"].public_key(), info=TITLE + spelt))


SEALED = seal()


@pytest.mark.parametrize("name", SHARES)
def test_the_owner_gets_its_share_bit_for_bit(name):
    share = unseal(seal(name), name)
    assert share.columns.tobytes("F") == SHARES[name].columns.tobytes("F")
    assert share.columns.flags.f_contiguous
    assert share.columns.flags.owndata


@pytest.mark.parametrize("name", SHARES)
def test_nobody_else_s_key_opens_it(name):
    data = seal(name)
    label = read_label(data, roster=ROSTER)
    spelt = label.to_bytes()
    sealed = data[len(TITLE) + 2 + len(spelt) : -64]
    assert SUITE.decrypt(sealed, KEYS[name], info=TITLE + spelt)
    strangers = [KEYS[other] for other in SHARES if other != name]
    for key in (*strangers, X25519PrivateKey.generate()):
        with pytest.raises(IdentityError, match="must be the one in the roster"):
            unseal(data, name, private_key=key)
        with pytest.raises(InvalidTag):  # even around our own checks
            SUITE.decrypt(sealed, key, info=TITLE + spelt)


def test_no_entry_of_the_share_stands_in_the_bytes():
    for name, share in SHARES.items():
        data = seal(name)
        for value in share.columns.ravel():
            for kind in ("<f8", ">f8"):
                assert np.array(value, dtype=kind).tobytes() not in data


def test_the_same_share_sealed_twice_gives_other_bytes():
    assert seal()[-200:] != seal()[-200:]
    assert read_label(seal(), roster=ROSTER) == read_label(seal(), roster=ROSTER)


def test_everybody_may_read_the_label_and_it_holds_what_is_bound():
    label = read_label(seal(deal="ab" * 16), roster=ROSTER)
    assert asdict(label) == {
        "federation": "shops",
        "roster": ROSTER.digest,
        "epoch": 7,
        "participant": "bank",
        "dim": 6,
        "width": 3,
        "deal": "ab" * 16,
    }


def test_every_single_byte_counts():
    for place in range(len(SEALED)):
        changed = bytearray(SEALED)
        changed[place] ^= 1 << (place % 8)
        with pytest.raises(REFUSALS):
            unseal(bytes(changed))


@given(
    place=st.integers(0, len(SEALED)),
    length=st.integers(0, 40),
    put=st.binary(max_size=40),
)
@settings(max_examples=300 * MORE)
def test_any_mutation_is_refused(place, length, put):
    changed = SEALED[:place] + put + SEALED[place + length :]
    if changed != SEALED:
        with pytest.raises(REFUSALS):
            unseal(changed)


@given(data=st.binary(max_size=400), titled=st.booleans())
@settings(max_examples=200 * MORE)
def test_garbage_is_refused(data, titled):
    with pytest.raises(REFUSALS):
        unseal(TITLE + data if titled else data)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(
    label=st.one_of(
        values,
        st.fixed_dictionaries(dict.fromkeys(asdict(Label("", "", 0, "", 0, 0, "")), values)),
    ),
    sealed=st.binary(min_size=48, max_size=300),
)
@settings(max_examples=200 * MORE)
def test_any_label_of_a_generator_gone_bad_is_refused(label, sealed):
    spelt = json.dumps(label, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(EnvelopeError):
        unseal(envelope(spelt, sealed))


@given(sealed=st.binary(max_size=300) | st.just(bytes(6 * 3 * 8 + 48)))
def test_anything_sealed_otherwise_is_refused(sealed):
    spelt = Label("shops", ROSTER.digest, 7, "bank", 6, 3, ALONE).to_bytes()
    with pytest.raises(EnvelopeError):
        unseal(envelope(spelt, sealed))


@pytest.mark.parametrize("size", [0, 8, 6 * 3 * 8 - 8, 6 * 3 * 8 - 1, 6 * 3 * 8 + 8])
def test_a_share_of_another_size_under_the_right_label_is_refused(size):
    spelt = Label("shops", ROSTER.digest, 7, "bank", 6, 3, ALONE).to_bytes()
    sealed = SUITE.encrypt(bytes(size), KEYS["bank"].public_key(), info=TITLE + spelt)
    with pytest.raises(EnvelopeError, match=f"wanted a share of 192 sealed bytes, got {size + 48}"):
        unseal(envelope(spelt, sealed))


def test_a_length_that_points_outside_is_refused():
    for length in (0, 1, 0xFFFF):
        signed = TITLE + length.to_bytes(2, "little") + SEALED[len(TITLE) + 2 : -64]
        with pytest.raises(EnvelopeError, match="label"):
            unseal(signed + SIGNER.sign(signed))


def test_another_generator_s_envelope_is_refused():
    other = dense_federation().generator.signing_key
    data = SEALED[:-64] + other.sign(SEALED[:-64])
    with pytest.raises(IdentityError, match="signed by the generator that the roster names"):
        unseal(data)


def test_an_envelope_of_another_epoch_is_refused_with_both():
    with pytest.raises(EnvelopeError, match=r"another epoch: wanted 8, got '7'"):
        unseal(SEALED, epoch=8)


def test_an_envelope_of_another_roster_is_refused_with_both():
    later = replace(ROSTER, number=2)
    with pytest.raises(EnvelopeError, match=f"wanted '{later.digest}', got '{ROSTER.digest}'"):
        unseal(SEALED, roster=later)


def test_an_envelope_of_another_federation_is_refused_with_both():
    other = replace(ROSTER, federation="trains")
    with pytest.raises(EnvelopeError, match="another federation: wanted 'trains', got 'shops'"):
        unseal(SEALED, roster=other)


def test_an_envelope_for_another_participant_is_refused_with_both():
    with pytest.raises(EnvelopeError, match="another participant: wanted 'shop', got 'bank'"):
        unseal(SEALED, name="shop")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dim": 5}, "another dim: wanted 6, got '5'"),
        ({"width": 2}, "another width: wanted 3, got '2'"),
        ({"epoch": True}, "another epoch"),
        ({"epoch": 7.0}, "another epoch"),
        ({"participant": "shop"}, "another participant"),
        ({"deal": "zz" * 16}, "label"),
        ({"deal": "AB" * 16}, "label"),
        ({"deal": "ab"}, "label"),
    ],
)
def test_a_label_that_says_otherwise_is_refused(changes, message):
    assert unseal(forge())
    with pytest.raises(EnvelopeError, match=message):
        unseal(forge(**changes))


def test_a_label_that_was_exchanged_after_sealing_does_not_open():
    """The label is bound into the seal, not only signed beside it."""
    spelt = Label("shops", ROSTER.digest, 7, "bank", 6, 3, ALONE).to_bytes()
    old = Label("shops", ROSTER.digest, 6, "bank", 6, 3, ALONE).to_bytes()
    plain = SHARES["bank"].columns.tobytes(order="F")
    sealed = SUITE.encrypt(plain, KEYS["bank"].public_key(), info=TITLE + old)
    with pytest.raises(EnvelopeError, match="must be sealed to the key of 'bank'"):
        unseal(envelope(spelt, sealed))


def columns(change):
    changed = SHARES["bank"].columns.copy()
    change(changed)
    return MaskShare(changed)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_share_that_is_not_finite_is_refused(value):
    share = columns(lambda S: S.__setitem__((2, 1), value))
    with pytest.raises(EnvelopeError, match="must be finite"):
        unseal(seal(share=share))


@pytest.mark.parametrize(
    "share",
    [
        MaskShare(2.0 * SHARES["bank"].columns),
        MaskShare((1.0 + 1e-8) * SHARES["bank"].columns),
        MaskShare(np.zeros((6, 3))),
        MaskShare(np.full((6, 3), 1e300)),
        MaskShare(np.repeat(SHARES["bank"].columns[:, :1], 3, axis=1)),
        columns(lambda S: S.__setitem__((0, 0), S[0, 0] + 1e-6)),
    ],
)
def test_a_share_that_is_not_orthonormal_is_refused(share):
    with pytest.raises(EnvelopeError, match="must be orthonormal within 1e-09"):
        unseal(seal(share=share))


def test_rounding_is_forgiven():
    assert unseal(seal(share=MaskShare((1.0 + 1e-12) * SHARES["bank"].columns)))


def test_a_huge_envelope_is_refused_before_any_work():
    with pytest.raises(EnvelopeError, match=f"to {most_bytes(ROSTER)} bytes"):
        unseal(TITLE + bytes(most_bytes(ROSTER)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"share": SHARES["shop"]}, EnvelopeError),
        ({"recipient": KEYS["shop"].public_key()}, IdentityError),
        ({"signing_key": Ed25519PrivateKey.generate()}, IdentityError),
        ({"participant": "nobody"}, EnvelopeError),
        ({"epoch": -1}, EnvelopeError),
        ({"roster": replace(ROSTER, terms=Terms())}, EnvelopeError),
    ],
)
def test_nothing_is_sealed_that_nobody_or_the_wrong_one_could_open(changes, error):
    with pytest.raises(error):
        seal(**changes)


def test_a_key_of_low_order_is_refused():
    bad = "00" * 32
    members = tuple(replace(m, sealing_key=bad) if m.name == "bank" else m for m in ROSTER.members)
    weak = X25519PublicKey.from_public_bytes(bytes(32))
    with pytest.raises(IdentityError, match="cannot be used"):
        seal(roster=replace(ROSTER, members=members), recipient=weak)


def test_opening_for_somebody_who_has_no_share_is_refused():
    with pytest.raises(EnvelopeError, match="belongs to one of shop, bank, news"):
        open_share(SEALED, roster=ROSTER, epoch=7, participant="web", private_key=KEYS["bank"])


def test_a_whole_deal_is_told_from_a_mixed_one():
    one, two = ({name: seal(name, deal=deal * 16) for name in SHARES} for deal in ("0a", "0b"))
    assert check_deal(one, roster=ROSTER, epoch=7) == "0a" * 16
    with pytest.raises(EnvelopeError, match="all envelopes must be of one deal"):
        check_deal({**one, "bank": two["bank"]}, roster=ROSTER, epoch=7)
    with pytest.raises(EnvelopeError, match="another participant"):
        check_deal({**one, "bank": one["shop"]}, roster=ROSTER, epoch=7)
    with pytest.raises(EnvelopeError, match="another epoch"):
        check_deal(one, roster=ROSTER, epoch=8)
    with pytest.raises(EnvelopeError, match="for each of shop, bank, news, got none"):
        check_deal({}, roster=ROSTER, epoch=7)
    with pytest.raises(IdentityError):
        check_deal({**one, "bank": one["bank"][:-1] + b"\0\1"}, roster=ROSTER, epoch=7)


def test_errors_tell_no_number_of_the_share():
    share = columns(lambda S: S.__setitem__((0, 0), 0.123456789))
    with pytest.raises(EnvelopeError) as caught:
        unseal(seal(share=share))
    chain = [caught.value, caught.value.__cause__, caught.value.__context__]
    text = " ".join(repr(error) for error in chain)
    assert "1234567" not in text
    assert not any(f"{abs(value):.6f}" in text for value in share.columns.ravel())
