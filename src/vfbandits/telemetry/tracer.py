"""The interface of traces, which time each part of an answer.

A span may carry what ``Attributes`` lists and nothing else.  It lists no user, feature, score or
key, so the type checker refuses code that would send one to the collector.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypedDict, Unpack


class Attributes(TypedDict, total=False):
    """The attributes that a span may carry.

    ``contributors`` is the number of participants whose features counted, ``model_version`` the
    number of rewards that the model had learnt, and ``status`` the outcome of a reward.
    """

    campaign: str
    event_id: str
    n_arms: int
    contributors: int
    degraded: bool
    model_version: int
    status: str


class Span(Protocol):
    """A timed section."""

    def set(self, **attributes: Unpack[Attributes]) -> None:
        """Add attributes that were not known at its start."""
        ...


class Tracer(Protocol):
    """Times what happens within its spans; may be used from any task and thread."""

    def incoming(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """A request: spans within continue its ``traceparent``, if it has a valid one.

        Names of ``headers`` are in lower case.
        """
        ...

    def span(self, name: str, **attributes: Unpack[Attributes]) -> AbstractContextManager[Span]:
        """Time what is within; a child of the span around it, if there is one in this task."""
        ...

    def close(self) -> None:
        """Send the remaining spans; may take seconds."""
        ...
