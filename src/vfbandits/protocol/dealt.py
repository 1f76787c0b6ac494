"""What the dealer of secret shares gives out: secrets once for each epoch, and windows for A.

Both are sealed to their recipient and signed by the mask generator (``seal.py``).  The label names
the federation, the digest of the terms, the epoch, the deal and the window; words of another deal
or of other terms are refused before they are opened.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from vfbandits.core.ring import CUT, FRACTION, RELEASED, SECRET_SIZE, WORD_SIZE, WordSource
from vfbandits.core.shares.dealer import Dealer, ParticipantSecrets, ServerSecrets
from vfbandits.core.shares.handover.epoch import NEW, Handover, plan_handover, state_words
from vfbandits.core.shares.messages import WindowDeal
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import EnvelopeError, IdentityError, SettingError, WireError
from vfbandits.protocol.envelope import refuse_other_key
from vfbandits.protocol.messages import MAX_BYTES
from vfbandits.protocol.roster import Roster
from vfbandits.protocol.seal import open_signed, seal, unseal

SECRETS_TITLE = b"vfbandits dealt secrets 1\n"
WINDOW_TITLE = b"vfbandits dealt window 1\n"
ALL_WINDOWS = -1
FIRST_EPOCH = 1
MAX_WINDOWS = 2**20
"""Most windows of an epoch."""


@dataclass(frozen=True, slots=True)
class DealLabel:
    """The public label of a dealt file.

    ``terms`` is the digest of all that dealt words depend on.  ``deal`` names one draw of all
    secrets, 16 random bytes in hex.  ``window`` is ``ALL_WINDOWS`` for secrets.
    """

    federation: str
    terms: str
    epoch: int
    to: str
    deal: str
    window: int

    def to_bytes(self) -> bytes:
        """The one spelling of this label."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, eq=False)
class PartySecrets:
    """What one member gets in an epoch: for its own block, and as a server if it is one."""

    deal: str
    participant: ParticipantSecrets | None = field(default=None, repr=False)
    server: ServerSecrets | None = field(default=None, repr=False)

    def to_bytes(self) -> bytes:
        """The bytes that are sealed."""
        block, server = self.participant, self.server
        document = {
            "participant": [] if block is None else _hexed(block.active, block.helper),
            "server": [] if server is None else _hexed(server.own, *server.inputs),
        }
        return json.dumps(document).encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, deal: str) -> "PartySecrets":
        """The secrets in bytes that were sealed."""
        try:
            document = json.loads(data)
            block, server = (
                [WordSource(bytes.fromhex(text)) for text in document[name]]
                for name in ("participant", "server")
            )
            return cls(
                deal,
                ParticipantSecrets(*block) if block else None,
                ServerSecrets(server[0], tuple(server[1:])) if server else None,
            )
        except (ValueError, KeyError, TypeError):
            # Without the cause: it could quote what is secret.
            raise EnvelopeError(
                f"wanted the secrets of a deal, {SECRET_SIZE} bytes each, got {len(data)} bytes "
                "that do not hold them"
            ) from None


def _hexed(*sources: WordSource) -> list[str]:
    return [source.to_bytes().hex() for source in sources]


def secrets_name(name: str, epoch: int) -> str:
    """The file of one member's secrets.

    >>> secrets_name("bank", 1)
    'bank.epoch-1.secrets'
    """
    return f"{name}.epoch-{epoch}.secrets"


def window_name(active: str, epoch: int, window: int) -> str:
    """The file of one window.

    >>> window_name("shop", 1, 20)
    'shop.epoch-1.window-00000020.deal'
    """
    return f"{active}.epoch-{epoch}.window-{window:08d}.deal"


def first_window(epoch: int) -> int:
    """The number of an epoch's first window.

    Numbers continue across epochs, so that a window and a slot name one decision for ever.

    >>> first_window(1), first_window(3)
    (0, 2097152)
    """
    return max(epoch - FIRST_EPOCH, 0) * MAX_WINDOWS


def next_terms(terms: ShareTerms, before: Roster, after: Roster) -> tuple[ShareTerms, Handover]:
    """The terms after a hand-over from the participants of one roster to those of the next.

    ``terms`` are those before it, with their idle columns.  A state that is too large for a message
    is refused here, before words are dealt or the journal has the change.
    """
    names = before.split.names
    origins = [names.index(name) if name in names else NEW for name in after.split.names]
    later, plan = plan_handover(terms, after.split.widths, origins)
    words = state_words(plan.in_blocks(later))
    size = WORD_SIZE * sum(math.prod(shape) for shape in words.values())
    if size > MAX_BYTES:
        raise SettingError(
            f"a hand-over sends what was learnt in one message of at most {MAX_BYTES >> 20} MiB, "
            f"got {-(-size >> 20)} MiB: this federation can neither rotate its secrets nor change "
            "its members"
        )
    return later, plan


def terms_digest(roster: Roster) -> str:
    """SHA-256, hex, of all that dealt words depend on; other changes of the roster keep it."""
    rules = roster.terms.shares
    if rules is None:
        raise SettingError(
            f"words are dealt for protection 'shares', this roster has {roster.terms.protection!r}"
        )
    document = {
        "federation": roster.federation,
        "session": roster.session,
        "participants": roster.split.names,
        "helper": rules.helper,
        "terms": roster.share_terms.document(),
        "bits": [FRACTION, CUT, RELEASED],
    }
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def deal_secrets(dealer: Dealer, roster: Roster, *, deal: str) -> dict[str, PartySecrets]:
    """The secrets of each participant and of the two servers; a helper may have no block."""
    rules = roster.terms.shares
    blocks = {
        name: dealer.participant_secrets(number) for number, name in enumerate(roster.split.names)
    }
    servers = {roster.active.name: dealer.active_secrets()}
    if rules is not None:
        servers[rules.helper] = dealer.helper_secrets()
    return {
        name: PartySecrets(deal, blocks.get(name), servers.get(name)) for name in blocks | servers
    }


def problem_with_parts(secrets: PartySecrets, roster: Roster, name: str) -> str:
    """Why these secrets do not fit the roles of ``name`` in the roster; empty if they do."""
    rules = roster.terms.shares
    is_server = name == roster.active.name or (rules is not None and name == rules.helper)
    has_block = name in roster.split.names
    came = (secrets.server is not None, secrets.participant is not None)
    if came == (is_server, has_block):
        return ""
    wanted = _roles(is_server=is_server, has_block=has_block)
    got = _roles(is_server=came[0], has_block=came[1])
    return f"the secrets of {name!r} as {wanted}, got those of {got}"


def _roles(*, is_server: bool, has_block: bool) -> str:
    return " and ".join(["a server"] * is_server + ["a participant"] * has_block) or "neither role"


@dataclass(frozen=True, slots=True, eq=False)
class DealSealer:
    """Seals what is dealt for one roster in one epoch."""

    roster: Roster
    epoch: int
    deal: str
    signing_key: Ed25519PrivateKey = field(repr=False)

    def secrets(self, name: str, secrets: PartySecrets) -> bytes:
        """The envelope of one member's secrets."""
        return self._seal(secrets.to_bytes(), SECRETS_TITLE, name, ALL_WINDOWS)

    def window(self, window: WindowDeal) -> bytes:
        """The file of one window, for server A."""
        active = self.roster.active.name
        return self._seal(window.to_bytes(), WINDOW_TITLE, active, window.window)

    def _seal(self, plain: bytes, title: bytes, name: str, window: int) -> bytes:
        member = self.roster.find(name)
        if member is None:
            raise EnvelopeError(f"wanted a member of the roster, got {name!r}")
        if self.signing_key.public_key().public_bytes_raw().hex() != self.roster.generator_key:
            raise IdentityError("the signing key must be the one whose public part the roster pins")
        label = deal_label(self.roster, self.epoch, to=name, deal=self.deal, window=window)
        try:
            return seal(
                plain,
                title=title,
                label=label.to_bytes(),
                recipient=X25519PublicKey.from_public_bytes(bytes.fromhex(member.sealing_key)),
                signing_key=self.signing_key,
            )
        except ValueError as error:
            raise IdentityError(f"the sealing key of {name!r} cannot be used") from error


def deal_label(roster: Roster, epoch: int, *, to: str, deal: str, window: int) -> DealLabel:
    """The label that a dealt file of this roster must have."""
    return DealLabel(
        federation=roster.federation,
        terms=terms_digest(roster),
        epoch=epoch,
        to=to,
        deal=deal,
        window=window,
    )


@dataclass(frozen=True, slots=True, eq=False)
class DealOpener:
    """Opens what was dealt to one member in one epoch."""

    roster: Roster
    epoch: int
    name: str
    private_key: X25519PrivateKey = field(repr=False)

    def secrets(self, data: bytes) -> PartySecrets:
        """The member's secrets, and the name of the deal that they are of."""
        label, plain = self._open(data, SECRETS_TITLE, ALL_WINDOWS, deal=None)
        return PartySecrets.from_bytes(plain, deal=label.deal)

    def window(self, data: bytes, number: int, *, deal: str) -> WindowDeal:
        """The window of that number and deal."""
        _, plain = self._open(data, WINDOW_TITLE, number, deal=deal)
        window = WindowDeal.from_bytes(plain)
        places = {part.place.window for part in window.deals}
        if {window.window} | places != {number}:
            raise WireError(f"wanted words of window {number}, got {sorted(places)}")
        return window

    def _open(
        self, data: bytes, title: bytes, window: int, *, deal: str | None
    ) -> tuple[DealLabel, bytes]:
        refuse_other_key(self.roster, self.name, self.private_key.public_key())
        signed = open_signed(data, title=title, generator_key=self.roster.generator_key)
        label = _parse(signed.label)
        wanted = deal_label(
            self.roster, self.epoch, to=self.name, deal=deal or label.deal, window=window
        )
        _refuse_other_label(label, wanted)
        return label, unseal(signed, title=title, private_key=self.private_key, of=self.name)


def check_secrets(envelopes: Mapping[str, bytes], *, roster: Roster, epoch: int) -> str:
    """The deal that all of these sealed secrets are of; refuses a mix of deals.

    They are not opened: labels and signatures are public.
    """
    deals = set()
    for name, data in envelopes.items():
        try:
            signed = open_signed(data, title=SECRETS_TITLE, generator_key=roster.generator_key)
            label = _parse(signed.label)
            wanted = deal_label(roster, epoch, to=name, deal=label.deal, window=ALL_WINDOWS)
            _refuse_other_label(label, wanted)
        except (EnvelopeError, IdentityError) as error:
            raise type(error)(f"the secrets of {name!r}: {error}") from error
        deals.add(label.deal)
    if len(deals) != 1:
        raise EnvelopeError(f"wanted secrets of one deal, got {len(deals)} deals")
    return deals.pop()


def _refuse_other_label(label: DealLabel, wanted: DealLabel) -> None:
    for part in fields(DealLabel):
        came, want = getattr(label, part.name), getattr(wanted, part.name)
        if type(came) is not type(want) or came != want:
            raise EnvelopeError(
                f"dealt words have another {part.name}: wanted {want!r}, got {str(came)[:128]!r}"
            )


def _parse(spelt: bytes) -> DealLabel:
    try:
        label = DealLabel(**json.loads(spelt))
        is_right = label.to_bytes() == spelt and len(bytes.fromhex(label.deal)) == 16
    except (ValueError, TypeError, RecursionError) as error:
        raise EnvelopeError(f"wanted the label of dealt words, got {spelt[:60]!r}") from error
    if not is_right:
        raise EnvelopeError(
            "the label of dealt words must be canonical JSON with a deal of 16 bytes in hex, got "
            f"{spelt[:60]!r}"
        )
    return label
