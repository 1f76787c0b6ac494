"""Whether a participant is asked at all: after several failures in a row it is not."""

from dataclasses import dataclass

FAILURES_TO_OPEN = 3


@dataclass(slots=True)
class Circuit:
    """Closed: the participant is asked.  Open: it is not, until it answers a ping.

    >>> circuit = Circuit(failures_to_open=2)
    >>> circuit.fail(), circuit.fail(), circuit.is_open
    (False, True, True)
    >>> circuit.succeed(), circuit.is_open
    (True, False)
    """

    failures_to_open: int = FAILURES_TO_OPEN
    failures: int = 0
    is_open: bool = False

    def fail(self) -> bool:
        """Note a failure; True if this one opens the circuit."""
        self.failures += 1
        opens = not self.is_open and self.failures >= self.failures_to_open
        self.is_open = self.is_open or opens
        return opens

    def succeed(self) -> bool:
        """Note a success; True if this one closes the circuit."""
        closes = self.is_open
        self.failures = 0
        self.is_open = False
        return closes
