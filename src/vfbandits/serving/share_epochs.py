"""Server A's files for the epochs of the dealer: rosters, secrets and dealt words.

The journal says which epoch is in force.  If the state of server A is of the epoch before, it has
yet to be handed over; until then the share and the roster of that epoch are kept.
"""

from functools import partial

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from vfbandits.core.mask import MaskShare
from vfbandits.core.shares.dealer import ParticipantSecrets, ServerSecrets
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import ConfigError
from vfbandits.journal.crypto import read_key
from vfbandits.journal.shares.secrets import read_secrets, write_secrets
from vfbandits.journal.shares.store import epoch_of
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.change import Change
from vfbandits.protocol.dealt import DealOpener, next_terms
from vfbandits.protocol.roster import Roster
from vfbandits.serving.deal_stock import DealStock, stock_cursor
from vfbandits.serving.masks import Changes
from vfbandits.serving.share_server import FILE, Ask, DurableActive, Successor
from vfbandits.serving.shares import NextDeal
from vfbandits.settings.services import ActiveSettings


class DealtEpochs:
    """Opens server A in its present epoch, and the epochs that follow."""

    def __init__(
        self,
        settings: ActiveSettings,
        key: X25519PrivateKey,
        role: ActiveParticipant,
        changes: Changes,
    ) -> None:
        self._settings = settings
        self._key = key
        self._role = role
        self._changes = changes

    def open_server(self, ask: Ask) -> tuple[DurableActive, SharingParticipant, NextDeal | None]:
        """Server A, the sharing participant of its own block, and an unfinished hand-over."""
        settings, role = self._settings, self._role
        if not settings.journal:
            raise ConfigError("protection 'shares' needs journal = true, got false")
        path = settings.state / FILE
        epoch = epoch_of(path) or role.epoch
        if epoch not in (role.epoch, role.epoch - 1):
            raise ConfigError(
                f"{path}: wanted a state of epoch {role.epoch}, as in the journal, or of the epoch "
                f"before, got epoch {epoch}: one of the two is an older copy.  Restore the newest "
                "files"
            )
        roster = role.roster if epoch == role.epoch else self._changes.roster_of(epoch)
        server, participant, stock = self._opened(roster, epoch)
        at_rest = None if settings.journal_key is None else read_key(settings.journal_key)
        active = DurableActive(path, server, stock=stock, ask=ask, key=at_rest)
        own = self._own(roster, participant, role.share)
        if epoch == role.epoch:
            return active, own, None
        return active, own, self._following(roster, role.roster, role.epoch, role.share)

    def open(self, change: Change, terms: ShareTerms) -> NextDeal:
        """Open what was dealt for a change; refuse the change if a part is missing."""
        settings = self._settings
        envelope = change.envelopes.get(settings.name)
        if envelope is not None:
            write_secrets(settings.dealt, settings.name, envelope, epoch=change.epoch)
        following = self._following(change.before, change.after, change.epoch, change.share)
        following.successor.refuse_unless_ready(terms)
        return following

    def finish(self) -> None:
        """Drop the files of earlier epochs: the state is in the epoch in force."""
        self._changes.finish(self._role)

    def _following(
        self, before: Roster, after: Roster, epoch: int, rotation: MaskShare
    ) -> NextDeal:
        server, participant, stock = self._opened(after, epoch)
        plan = partial(next_terms, before=before, after=after)
        return NextDeal(Successor(server, stock, plan), self._own(after, participant, rotation))

    def _opened(
        self, roster: Roster, epoch: int
    ) -> tuple[ServerSecrets, ParticipantSecrets, DealStock]:
        settings, key = self._settings, self._key
        secrets = read_secrets(settings.dealt, settings.name, roster, epoch=epoch, key=key)
        if secrets.server is None or secrets.participant is None:
            raise ConfigError(f"{settings.dealt} must have the secrets of server A, got none")
        opener = DealOpener(roster, epoch, settings.name, key)
        cursor = stock_cursor(settings.state, epoch)
        stock = DealStock(settings.dealt, opener=opener, deal=secrets.deal, cursor=cursor)
        return secrets.server, secrets.participant, stock

    def _own(
        self, roster: Roster, secrets: ParticipantSecrets, rotation: MaskShare
    ) -> SharingParticipant:
        return SharingParticipant(0, terms=roster.share_terms, secrets=secrets, rotation=rotation)
