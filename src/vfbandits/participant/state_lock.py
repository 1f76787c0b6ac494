"""The lock of a passive participant's state folder: one process holds it.

Two processes with the same keys would use the same pads for different messages, and the active
participant could subtract one from the other.  The lock file records how far rounds were reserved,
so that an outbox that was lost or restored from an old copy is detected.
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
        """The last reserved round, as recorded in the lock file."""
        head = self._lock.head
        if head is None:
            raise ConfigError(
                f"{self.path} must hold a round, got a damaged file.  Restore {self.path.parent} "
                "to its state when this process last ran; if that is not possible, remove this "
                "participant and add it again with new keys"
            )
        return head.position

    def ack(self, round_number: int) -> None:
        """Record, durably, that rounds are reserved up to this one."""
        self._lock.ack(Head(round_number))

    def release(self) -> None:
        """Release the lock; safe to call twice."""
        self._lock.close()
