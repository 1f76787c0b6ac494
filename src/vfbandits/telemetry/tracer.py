"""How the parts of an answer are timed one by one, for those who collect traces.

A span may carry what ``Attributes`` lists and nothing else.  A user, a feature, a score or a key is
not in it, so the type checker refuses the line that would send one to the collector.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Protocol, TypedDict, Unpack


class Attributes(TypedDict, total=False):
    """What a span may tell.

    ``contributors`` is how many participants' features counted, ``model_version`` how many rewards
    the model knew, and ``status`` what became of a reward.
    """

    campaign: str
    event_id: str
    n_arms: int
    contributors: int
    degraded: bool
    model_version: int
    status: str


class Span(Protocol):
    """Something that takes time."""

    def set(self, **attributes: Unpack[Attributes]) -> None:
        """Add what was not known when it began."""
        ...


class Tracer(Protocol):
    """Times what happens within its spans; may be used from any task and thread."""

    def incoming(self, headers: Mapping[str, str]) -> AbstractContextManager[object]:
        """A request: spans within continue its ``traceparent``, if it has a valid one.

        Names of ``headers`` are in small letters.
        """
        ...

    def span(self, name: str, **attributes: Unpack[Attributes]) -> AbstractContextManager[Span]:
        """Time what is within; a child of the span around it, if there is one in this task."""
        ...

    def close(self) -> None:
        """Send what is left; may take seconds."""
        ...
