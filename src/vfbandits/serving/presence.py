"""Since when each passive participant has been connected or missing, and the latest changes."""

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

MAX_CHANGES: Final = 100
# Events of a role when the state of a link changes.
LINK_EVENTS: Final = frozenset(
    {"participant_joined", "participant_left", "circuit_opened", "circuit_closed"}
)


class Presence:
    """Times of link changes, in seconds since 1970; at first all participants are missing.

    >>> presence = Presence(["bank"], clock=lambda: 10.0)
    >>> presence.noted("bank", "participant_joined")
    >>> presence.describe("bank"), presence.changes()
    ({'since': 10.0}, [(10.0, 'bank', 'participant_joined')])
    """

    def __init__(self, names: Iterable[str], *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._since = dict.fromkeys(names, clock())
        self._changes: deque[tuple[float, str, str]] = deque(maxlen=MAX_CHANGES)

    def noted(self, name: str, event: str) -> None:
        """Record an event, if it is one of a link."""
        if event in LINK_EVENTS:
            self._since[name] = self._clock()
            self._changes.append((self._since[name], name, event))

    def describe(self, name: str) -> dict[str, float]:
        """The time of the last change of a participant's link; empty if it has no link."""
        return {"since": self._since[name]} if name in self._since else {}

    def changes(self) -> list[tuple[float, str, str]]:
        """The latest changes, oldest first: time, participant, event."""
        return list(self._changes)
