"""Refusals of requests, before or instead of an answer.

Each class has the status, the name and the title that its problem document carries.
"""

import math
from typing import ClassVar

from vfbandits.errors import VFBanditsError


class Refusal(VFBanditsError):  # noqa: N818  (a refusal is what it is)
    """Base of the refusals; the message is sent to the caller, so it never quotes a key."""

    status: ClassVar[int]
    kind: ClassVar[str]
    title: ClassVar[str]

    def headers(self) -> dict[str, str]:
        """Header fields that go with the status."""
        return {}


class Unauthorized(Refusal):
    """The caller is not authenticated."""

    status, kind, title = 401, "unauthorized", "A valid API key is needed"

    def headers(self) -> dict[str, str]:
        """The authentication scheme.

        >>> Unauthorized("the API key is not valid").headers()
        {'www-authenticate': 'Bearer'}
        """
        return {"www-authenticate": "Bearer"}


class Forbidden(Refusal):
    """The caller is known, and may not do this."""

    status, kind, title = 403, "forbidden", "The caller may not do this"


class NotFound(Refusal):
    """There is nothing of this name."""

    status, kind, title = 404, "not-found", "There is nothing of this name"


class Conflict(Refusal):
    """The request conflicts with the current state."""

    status, kind, title = 409, "conflict", "The request conflicts with an earlier one"


class TooLarge(Refusal):
    """The body has more bytes than the server accepts."""

    status, kind, title = 413, "too-large", "The body is too large"


class Unsupported(Refusal):
    """The body has a content type that the server does not accept."""

    status, kind, title = 415, "unsupported-media-type", "The body must be JSON"


class TooMany(Refusal):
    """The caller exceeds its rate."""

    status, kind, title = 429, "too-many-requests", "There were too many requests"

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s

    def headers(self) -> dict[str, str]:
        """When to come back, in whole seconds.

        >>> TooMany("wanted fewer", retry_after_s=1.2).headers()
        {'retry-after': '2'}
        """
        return {"retry-after": str(max(1, math.ceil(self.retry_after_s)))}


class Unavailable(Refusal):
    """The server cannot answer now, through no fault of the caller."""

    status, kind, title = 503, "unavailable", "The service is unavailable"
