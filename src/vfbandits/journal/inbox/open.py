"""Opens the inbox of a journal, or a watch of its leader, by address; both need a database."""

import os
from typing import TYPE_CHECKING

from vfbandits.errors import JournalError
from vfbandits.journal.crypto import JournalKey
from vfbandits.journal.inbox.base import Inbox
from vfbandits.journal.open import DEFAULT_NAME, is_database
from vfbandits.settings.address import describe_url

if TYPE_CHECKING:
    from vfbandits.journal.postgres.leader_watch import LeaderWatch

_ENVIRONMENT = "env:"


def open_inbox(target: str, *, name: str = DEFAULT_NAME, key: JournalKey | None = None) -> Inbox:
    """The inbox of the journal ``name`` at ``target``, an address as for ``open_journal``."""
    from vfbandits.journal.inbox.postgres import PostgresInbox  # noqa: PLC0415  (an extra)

    return PostgresInbox(_url(target), name=name, key=key)


def open_watch(target: str, *, name: str = DEFAULT_NAME) -> "LeaderWatch":
    """A watch of the leader of the journal ``name`` at ``target``."""
    from vfbandits.journal.postgres.leader_watch import LeaderWatch  # noqa: PLC0415  (an extra)

    return LeaderWatch(_url(target), name=name)


def _url(target: str) -> str:
    if not target or not is_database(target):
        raise JournalError(
            "several processes share a journal in a database only: wanted a target like "
            f"postgresql://host/name, got {describe_url(target)}"
        )
    if target.startswith(_ENVIRONMENT):
        return os.environ[target.removeprefix(_ENVIRONMENT)]
    return target
