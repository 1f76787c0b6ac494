"""Retries of a call: with exponential back-off, and never of one that could be done twice.

Event ids are idempotency keys, so a rank or a reward whose answer was lost can be sent again: the
server gives the same answer and changes nothing.
"""

import secrets
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, TypedDict

import httpx2

from vfbandits.client.calls import ApiUnreachable, Call
from vfbandits.client.connection import Connection

FIRST_PAUSE_S: Final = 0.05
MAX_PAUSE_S: Final = 2.0
# The server refused the call before it did anything.
_REFUSED_FOR_NOW: Final = frozenset({429, 503})
# A proxy got no answer: the server may have carried out the call.
_LOST: Final = frozenset({502, 504})
_NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
_random = secrets.SystemRandom()


class HttpRequest(TypedDict):
    """One try, as both clients of httpx2 take it."""

    method: str
    url: str
    content: bytes | None
    headers: dict[str, str]
    timeout: float


class Tries:
    """The tries of one call, all within ``timeout_s``: at most ``retries`` after the first.

    With ``retries`` None only the time limits them.
    """

    def __init__(self, call: Call[object], connection: Connection) -> None:
        self._call = call
        self._retries = connection.retries
        self._timeout_s = connection.timeout_s
        self._begun = time.monotonic()
        self._end = self._begun + connection.timeout_s
        self._n_failed = 0

    def request(self) -> HttpRequest:
        """The options of the next try, with the time that is left."""
        call = self._call
        return {
            "method": call.method,
            "url": call.path,
            "content": call.body,
            "headers": call.headers,
            "timeout": max(self._end - time.monotonic(), 0.001),
        }

    def pause_after_answer(self, response: httpx2.Response) -> float | None:
        """How long to wait before the next try; None if this answer is final."""
        status = response.status_code
        if status in self._call.good:
            return None
        if status in _REFUSED_FOR_NOW or (status in _LOST and self._call.repeatable):
            return self._pause(retry_after_s(response))
        return None

    def pause_after_failure(self, error: httpx2.RequestError) -> float:
        """How long to wait before the next try; raises if there is none."""
        may_repeat = self._call.repeatable or isinstance(error, _NEVER_SENT)
        pause_s = self._pause(None) if may_repeat else None
        if pause_s is None:
            raise self._unreachable(error) from error
        return pause_s

    def _pause(self, wanted_s: float | None) -> float | None:
        if self._retries is not None and self._n_failed >= self._retries:
            return None
        left_s = self._end - time.monotonic()
        longest_s = min(FIRST_PAUSE_S * 2.0**self._n_failed, MAX_PAUSE_S)
        # Jitter: clients that were refused together must not retry together.
        jitter_s = longest_s * _random.uniform(0.5, 1.0)
        # The pauses of the last tries get shorter, so that the time is used; none after its end.
        pause_s = min(jitter_s, left_s / 2.0) if wanted_s is None else wanted_s + jitter_s
        if pause_s >= left_s or left_s < FIRST_PAUSE_S:
            return None
        self._n_failed += 1
        return pause_s

    def _unreachable(self, error: httpx2.RequestError) -> ApiUnreachable:
        tried = f"{self._call.method} {self._call.path}"
        n_tries = f"{self._n_failed + 1} {'try' if self._n_failed == 0 else 'tries'}"
        return ApiUnreachable(
            f"wanted an answer to {tried} within {self._timeout_s:g} s, "
            f"got {type(error).__name__} after {n_tries} in {time.monotonic() - self._begun:.2f} s"
        )


def retry_after_s(response: httpx2.Response) -> float | None:
    """Seconds that the server asks to wait, as a number or a date.

    >>> retry_after_s(httpx2.Response(429, headers={"retry-after": "2"}))
    2.0
    """
    text = response.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((aware - datetime.now(UTC)).total_seconds(), 0.0)
