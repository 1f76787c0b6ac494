"""The lookup hash of a decision, by which its records are found: a keyed hash of its id.

In an encrypted journal the key of the hash is secret: without it the hashes show which records
belong together, and nothing of the ids.  Two ids may have the same hash, so a lookup by hash
compares the ids as well.
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
    MasksChanged,
    Resized,
    Restored,
    SetAside,
)
from vfbandits.core.decision import EventId

_NUMBER = struct.Struct("<q")
_OF_NO_DECISION = (
    *(
        MasksChanged,
        ArmsDropped,
        Configured,
        LossAccepted,
        SetAside,
        Resized,
        Administered,
        Restored,
    ),
    *(GuardrailTripped, GuardrailRearmed),
)


class LookupHash:
    """The lookup hashes of one journal.

    >>> names = LookupHash(b"of this log")
    >>> names.of("17") == names.of("17"), names.of("17") == names.of(17)
    (True, False)
    """

    __slots__ = ("_number", "_text")

    def __init__(self, secret: bytes) -> None:
        # Keyed once and copied for each id, which takes half the time.
        self._text = blake2b(b"text", key=secret, digest_size=_NUMBER.size)
        self._number = blake2b(b"number", key=secret, digest_size=_NUMBER.size)

    def of(self, event_id: EventId) -> int:
        """A whole number of 64 bits, with a sign."""
        if isinstance(event_id, str):
            hashed = self._text.copy()
            hashed.update(event_id.encode("utf-8", "surrogatepass"))
        else:
            hashed = self._number.copy()
            hashed.update(b"%x" % event_id)
        (name,) = _NUMBER.unpack(hashed.digest())
        return int(name)

    def of_event(self, event: Event) -> int | None:
        """The lookup hash of the event's decision; None if it belongs to none."""
        event_id = event_id_of(event)
        return None if event_id is None else self.of(event_id)

    def of_events(self, events: Sequence[Event]) -> list[int | None]:
        """The lookup hashes of several events, with few calls, since every commit needs them."""
        of = self.of
        return [
            None if isinstance(event, _OF_NO_DECISION) else of(event.event_id) for event in events
        ]


def event_id_of(event: Event) -> EventId | None:
    """The id of the decision that an event belongs to; None if it belongs to none."""
    return None if isinstance(event, _OF_NO_DECISION) else event.event_id


def sorted_out(events: Found, ids: Sequence[EventId]) -> dict[EventId, Found]:
    """The ``events`` of the decisions ``ids``, by id; the answer has every id.

    >>> from vfbandits.campaign.events import Forgotten
    >>> sorted_out([(1, Forgotten("a")), (2, Forgotten("b"))], ["a", "c"])
    {'a': [(1, Forgotten(event_id='a'))], 'c': []}
    """
    found: dict[EventId, Found] = {event_id: [] for event_id in ids}
    for position, event in events:
        event_id = event_id_of(event)
        if event_id is not None and event_id in found:
            found[event_id].append((position, event))
    return found
