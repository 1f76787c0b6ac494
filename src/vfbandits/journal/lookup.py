"""Numbers by which the events of a decision are found: a keyed hash of its id.

In an encrypted log the key of the hash is secret: without it the numbers tell which events belong
together, and nothing of the ids.  Two ids may share a number, so whoever finds an event by it
compares the id itself.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b

from vfbandits.campaign.events import (
    Administered,
    ArmsDropped,
    Configured,
    Event,
    Found,
    GuardrailRearmed,
    GuardrailTripped,
    LossAccepted,
    Moved,
    Resized,
    Restored,
    SetAside,
)
from vfbandits.core.decision import DecisionId

_NUMBER = struct.Struct("<q")
_OF_NO_DECISION = (
    *(Moved, ArmsDropped, Configured, LossAccepted, SetAside, Resized, Administered, Restored),
    *(GuardrailTripped, GuardrailRearmed),
)


class LookupHash:
    """The numbers of one log.

    >>> names = LookupHash(b"of this log")
    >>> names.of("17") == names.of("17"), names.of("17") == names.of(17)
    (True, False)
    """

    __slots__ = ("_number", "_text")

    def __init__(self, secret: bytes) -> None:
        # Begun once, for each event a copy: that takes half the time.
        self._text = blake2b(b"text", key=secret, digest_size=_NUMBER.size)
        self._number = blake2b(b"number", key=secret, digest_size=_NUMBER.size)

    def of(self, decision_id: DecisionId) -> int:
        """A whole number of 64 bits, with a sign."""
        if isinstance(decision_id, str):
            hashed = self._text.copy()
            hashed.update(decision_id.encode("utf-8", "surrogatepass"))
        else:
            hashed = self._number.copy()
            hashed.update(b"%x" % decision_id)
        (name,) = _NUMBER.unpack(hashed.digest())
        return int(name)

    def of_event(self, event: Event) -> int | None:
        """The number of the event's decision; None if it belongs to none."""
        decision_id = decision_of(event)
        return None if decision_id is None else self.of(decision_id)

    def of_events(self, events: Sequence[Event]) -> list[int | None]:
        """The numbers of several events; a part of every commit, so without a call too many."""
        of = self.of
        return [
            None if isinstance(event, _OF_NO_DECISION) else of(event.decision_id)
            for event in events
        ]


def decision_of(event: Event) -> DecisionId | None:
    """The id of the decision that an event belongs to, if it does to one."""
    return None if isinstance(event, _OF_NO_DECISION) else event.decision_id


def sorted_out(events: Found, ids: Sequence[DecisionId]) -> dict[DecisionId, Found]:
    """Those of ``events`` that belong to one of ``ids``, by id; each id is there.

    >>> from vfbandits.campaign.events import Forgotten
    >>> sorted_out([(1, Forgotten("a")), (2, Forgotten("b"))], ["a", "c"])
    {'a': [(1, Forgotten(decision_id='a'))], 'c': []}
    """
    found: dict[DecisionId, Found] = {decision_id: [] for decision_id in ids}
    for position, event in events:
        decision_id = decision_of(event)
        if decision_id is not None and decision_id in found:
            found[decision_id].append((position, event))
    return found
