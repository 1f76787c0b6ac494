"""Dealt words: what is not for this member, roster or window is refused, with one reason."""

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from dealt_words import shares_roster

from vfbandits.errors import EnvelopeError, IdentityError, SettingError
from vfbandits.protocol.dealt import DealSealer, PartySecrets, _parse, next_terms, terms_digest

DEAL = "ab" * 16
SECRETS = PartySecrets(DEAL, None, None)


def test_secrets_of_another_kind_are_refused_without_a_quote():
    for data in (b"[]", b"{}", b'{"participant": ["ff"], "server": []}', b"no json"):
        with pytest.raises(EnvelopeError, match="wanted the secrets of a deal") as caught:
            PartySecrets.from_bytes(data, deal=DEAL)
        assert caught.value.__cause__ is None


def test_words_are_dealt_for_a_roster_with_shares_only():
    roster = shares_roster()
    masked = replace(roster, terms=replace(roster.terms, shares=None))
    with pytest.raises(SettingError, match="words are dealt for protection 'shares'"):
        terms_digest(masked)


def test_a_sealer_knows_the_members_and_has_the_pinned_key():
    sealer = DealSealer(shares_roster(), 1, DEAL, Ed25519PrivateKey.generate())
    with pytest.raises(EnvelopeError, match="wanted a member of the roster, got 'nobody'"):
        sealer.secrets("nobody", SECRETS)
    with pytest.raises(IdentityError, match="whose public part the roster pins"):
        sealer.secrets("bank", SECRETS)


@pytest.mark.parametrize("spelt", [b"{", b"[]", b'{"federation": "f"}', b"1"])
def test_a_label_that_is_none_is_refused(spelt):
    with pytest.raises(EnvelopeError, match="wanted the label of dealt words"):
        _parse(spelt)


@pytest.mark.parametrize(
    ("width", "rules", "says"),
    [
        (2100, {}, "at most 64 MiB, got 68 MiB"),
        (1100, {"layout": "disjoint"}, "at most 64 MiB, got 75 MiB"),
        (1100, {"layout": "outer", "arm_dim": 2}, "at most 64 MiB, got 75 MiB"),
    ],
)
def test_a_state_that_no_message_can_carry_is_not_handed_over(width, rules, says):
    roster = shares_roster(**rules)
    fits = next_terms(roster.share_terms, roster, roster)[0]
    assert fits == roster.share_terms
    shop, *others = roster.members
    wide = replace(roster, members=(replace(shop, width=width), *others))
    with pytest.raises(SettingError, match=says):
        next_terms(wide.share_terms, wide, wide)
