"""The right to use a passive participant's state folder: one process has it.

Two processes with the same keys would use the same pads for different messages, and the active
participant could subtract one from the other.  The lock's file notes how far rounds were reserved,
so that an outbox that was lost or put back from an old copy is noticed.
"""

from pathlib import Path

from vfbandits.errors import ConfigError, JournalError
from vfbandits.journal.witness import Head, Witness

LOCK = "passive.lock"


class StateLock:
    """Holds the lock from when it is made until ``release``, or until the process ends."""

    __slots__ = ("_lock", "path")

    def __init__(self, state: Path) -> None:
        self.path = state / LOCK
        self._lock = Witness(self.path)
        try:
            self._lock.lock()
        except JournalError as error:
            raise ConfigError(
                f"{state} is in use by another process, which holds {self.path}: wanted one "
                "process for each participant.  Stop the other one, or give this one a state "
                "folder and an identity of its own"
            ) from error

    def noted(self) -> int:
        """The round up to which rounds were reserved, as far as it was noted."""
        head = self._lock.head
        if head is None:
            raise ConfigError(
                f"{self.path} must note a round, got something damaged.  Put {self.path.parent} "
                "back as it was when this process last ran; if that is not possible, remove this "
                "participant and add it again with new keys"
            )
        return head.position

    def ack(self, round_number: int) -> None:
        """Note that rounds are reserved up to this one, on the disk."""
        self._lock.ack(Head(round_number))

    def release(self) -> None:
        """Let the next process in; safe to call twice."""
        self._lock.close()
