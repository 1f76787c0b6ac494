"""A roster on secret shares, a mask generator, and a folder with all that it has dealt."""

import json

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from vfbandits.participant.dealing import deal_windows
from vfbandits.protocol.dealt import DealOpener, secrets_name
from vfbandits.protocol.roster import Member, Roster, SharesRules, Terms

NAMES, WIDTHS, EPOCH = ("shop", "bank", "news"), (2, 3, 1), 1
MAX_ARMS = 4


def key_of(seed):
    return X25519PrivateKey.from_private_bytes(bytes([seed]) * 32)


SEALING_KEYS = {name: key_of(number + 1) for number, name in enumerate(NAMES)}
SIGNING_KEY = Ed25519PrivateKey.from_private_bytes(b"g" * 32)


def shares_roster(*, names=NAMES, layout="per_arm", arm_dim=0, **rules):
    """A roster on secret shares: shop is server A, bank the helper."""
    members = [
        Member(
            name,
            "passive" if number else "active",
            certificate=f"{number:064x}",
            width=width,
            sealing_key=SEALING_KEYS[name].public_key().public_bytes_raw().hex(),
        )
        for number, (name, width) in enumerate(zip(NAMES, WIDTHS, strict=True))
        if name in names
    ]
    values = {"helper": "bank", "max_arms": MAX_ARMS, "window": 3, "decisions": 6}
    rules = SharesRules(**{**values, "posterior_scale": 0.3, **rules})
    key = SIGNING_KEY.public_key().public_bytes_raw().hex()
    terms = Terms(bound=1.0, layout=layout, arm_dim=arm_dim, shares=rules)
    return Roster("shops", 1, terms, tuple(members), key)


def make_key_dir(folder):
    """The mask generator's identity folder, with its signing key."""
    folder.mkdir(mode=0o700)
    raw = SIGNING_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = folder / "pmg.signing.key"
    path.write_bytes(raw)
    path.chmod(0o600)
    return folder


class DealtFolder:
    """What was dealt in a folder; a folder that is there is opened."""

    def __init__(self, folder, *, windows=8, **rules):
        self.folder = folder
        kept = folder / "rules.json"  # for the next process that opens this folder
        if kept.exists():
            rules = json.loads(kept.read_text())
        else:
            kept.write_text(json.dumps(rules))
        self.roster = shares_roster(**rules)
        self.terms = self.roster.share_terms
        if not (folder / "pmg").exists():
            make_key_dir(folder / "pmg")
            self.deal(windows)
        self.secrets = {name: self.open_secrets(name) for name in self.roster.split.names}
        self.deal_name = self.secrets["shop"].deal

    def deal(self, windows, **changes):
        flags = {"key_dir": self.folder / "pmg", "epoch": EPOCH, "out": self.folder / "out"}
        return deal_windows(self.roster, windows=windows, **{**flags, **changes})

    def opener(self, name):
        return DealOpener(self.roster, EPOCH, name, SEALING_KEYS[name])

    def open_secrets(self, name):
        data = (self.folder / "out" / secrets_name(name, EPOCH)).read_bytes()
        return self.opener(name).secrets(data)
