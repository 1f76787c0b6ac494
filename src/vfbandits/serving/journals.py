"""Where the journals of an active participant's campaigns are, and how each of them is opened."""

from pathlib import Path
from typing import TYPE_CHECKING

from vfbandits.campaign.settings import DEFAULT
from vfbandits.journal.base import Journal, JournalReader
from vfbandits.journal.crypto import read_key
from vfbandits.journal.inbox.base import Inbox
from vfbandits.journal.inbox.open import open_inbox, open_watch
from vfbandits.journal.open import is_database, open_journal, open_reader
from vfbandits.journal.recent import RecentJournal
from vfbandits.settings.services import ActiveSettings

if TYPE_CHECKING:
    from vfbandits.journal.postgres.leader_watch import LeaderWatch


class CampaignJournals:
    """A file for each campaign, or a journal of its name in one database.

    Attributes
    ----------
    is_shared
        Whether several processes can use them.
    accept_loss
        The operator who accepts the loss of acknowledged records; None if nobody does.
    """

    def __init__(self, settings: ActiveSettings) -> None:
        self._settings = settings
        self._target = target = settings.journal_target
        self._key = None if settings.journal_key is None else read_key(settings.journal_key)
        self.is_shared = bool(settings.journal and target and is_database(target))
        self.accept_loss = settings.accept_loss

    def open(self, campaign: str) -> Journal:
        """The journal of a campaign, for its one writer."""
        settings, key, accept = self._settings, self._key, self.accept_loss
        if not settings.journal:
            return RecentJournal()
        if self.is_shared:
            witness = witness_of(settings.state, campaign)
            witness.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            return open_journal(
                self._target, name=campaign, key=key, witness=witness, accept_loss=accept
            )
        if campaign == DEFAULT:
            path = self._target or settings.state / "journal.db"
            return open_journal(path, key=key, accept_loss=accept)
        file = self._file(campaign)
        file.parent.mkdir(exist_ok=True, mode=0o700)
        return open_journal(file, key=key, accept_loss=accept)

    def open_reader(self, campaign: str) -> JournalReader:
        """The journal of a campaign in the database, to follow it."""
        return open_reader(self._target, name=campaign, key=self._key)

    def open_inbox(self, campaign: str) -> Inbox:
        """The inbox of a campaign in the database, where replicas put their records."""
        return open_inbox(self._target, name=campaign, key=self._key)

    def open_watch(self) -> "LeaderWatch":
        """A watch on the leader in the database."""
        return open_watch(self._target)

    def has_records(self, campaign: str) -> bool:
        """Whether a campaign other than the default one has a record."""
        if not self.is_shared and not self._file(campaign).exists():
            return False
        journal = self.open(campaign)
        try:
            return journal.last_position > 0
        finally:
            journal.close()

    def _file(self, campaign: str) -> Path:
        return self._settings.state / "campaigns" / f"{campaign}.db"


def witness_of(state: Path, campaign: str) -> Path:
    """The file with the last acknowledged position of a campaign's journal in a database."""
    return state / "witness" / f"{campaign}.head"
