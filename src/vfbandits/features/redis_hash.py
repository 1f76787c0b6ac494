"""Features in Redis: one hash for each key, its fields the raw columns, its values plain text.

The hash of user ``u7`` is called ``prefix:u7``, that of the user and the arm ``prefix:u7:tea``.
So that no two keys share a name, ``%`` and ``:`` in a user that an arm follows are written
``%25`` and ``%3A``.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from vfbandits.core.arrays import PlainBlock
from vfbandits.errors import FeatureError
from vfbandits.features.base import Key, Lookup, refuse_key
from vfbandits.features.cells import CellReader
from vfbandits.features.scaling import Scaling
from vfbandits.settings.address import describe_url

PAGE = 1_000  # names that the server looks at in one call
MAX_SCANS: Final = 100


class RedisStore:
    """Hashes of a Redis server, asked for in one pipeline.

    A hash without any of the columns is a missing key.  No wait for the server is longer than
    ``timeout_s``; a connection that broke while it was idle is replaced.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str,
        n_parts: int = 1,
        scaling: Scaling,
        timeout_s: float = 1.0,
        consent: str | None = None,
    ) -> None:
        try:
            self._client = redis.Redis.from_url(
                url,
                socket_timeout=timeout_s,
                socket_connect_timeout=timeout_s,
                retry=Retry(NoBackoff(), 0),  # or a frozen server would take several timeouts
                protocol=2,
            )
        except ValueError:
            # Its message may quote the url, and that the password.
            raise FeatureError(
                "the url of a Redis store must be like redis://host:port/0, "
                f"got {describe_url(url)}"
            ) from None
        self._where = "the Redis store"
        self._prefix = prefix
        self._n_parts = n_parts
        self._timeout_s = timeout_s
        self._reader = CellReader(
            self._where, scaling, _number, _text, has_consent=consent is not None
        )
        self._fields = [*scaling.columns, *filter(None, [consent])]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the raw columns: numbers first, then categories."""
        return self._reader.scaling.columns

    @property
    def width(self) -> int:
        """How many numbers a scaled row has."""
        return self._reader.scaling.width

    def rows(self, keys: Sequence[Key]) -> Lookup:
        """The rows of these keys, in one pipeline; a key may come twice."""
        names = [hash_name(self._prefix, key, n_parts=self._n_parts) for key in keys]
        asked = list(dict.fromkeys(names))
        replies = self._ask(asked)
        found = {
            name: cells
            for name, cells in zip(asked, replies, strict=True)
            if any(cell is not None for cell in cells)
        }
        return self._reader.lookup(names, found)

    def _ask(self, names: Sequence[bytes]) -> list[list[bytes | None]]:
        try:
            with self._client.pipeline(transaction=False) as pipeline:
                for name in names:
                    pipeline.hmget(name, self._fields)
                return pipeline.execute()
        except RedisError as error:
            raise self._failure(error) from error

    def users(self) -> Iterator[str]:
        """Every user, from the names of the hashes: the server scans all of its names."""
        start, cursor = self._start, 0
        while True:
            cursor, names = self._scan(cursor)
            for name in names:
                user = user_in(name.removeprefix(start), n_parts=self._n_parts)
                if user is not None:
                    yield user
            if not cursor:
                return

    def sample(self, count: int) -> PlainBlock:
        """Rows of the first hashes that a bounded scan of the server finds."""
        names: list[bytes] = []
        cursor = 0
        for _ in range(MAX_SCANS):
            cursor, some = self._scan(cursor)
            names += some
            if not cursor or len(names) >= count:
                break
        replies = self._ask(names[:count]) if names else []
        return self._reader.sample([row for row in replies if any(c is not None for c in row)])

    @property
    def _start(self) -> bytes:
        return f"{self._prefix}:".encode()

    def _scan(self, cursor: int) -> tuple[int, list[bytes]]:
        """Names of some more hashes, and where to go on; 0 at the end."""
        pattern = _literal(self._start) + b"*"
        try:
            cursor, names = self._client.scan(cursor, pattern, PAGE, "HASH")
        except RedisError as error:
            raise self._failure(error) from error
        return cursor, [name for name in names if isinstance(name, bytes)]

    def check(self) -> None:
        """Refuse unless the server answers now."""
        try:
            self._client.ping()
        except RedisError as error:
            raise self._failure(error) from error

    def describe(self) -> dict[str, object]:
        """Kind, prefix, columns."""
        return {"kind": "redis", "prefix": self._prefix, "columns": list(self.columns)}

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def _failure(self, error: RedisError) -> FeatureError:
        return FeatureError(
            f"{self._where} must answer within {self._timeout_s:g} s, got {type(error).__name__}"
        )


def hash_name(prefix: str, key: Key, *, n_parts: int) -> bytes:
    """Name of the hash that holds the row of ``key``.

    >>> hash_name("bank", ("u:7", "tea:green"), n_parts=2)
    b'bank:u%3A7:tea:green'
    """
    refuse_key(key, n_parts)
    escaped = [part.replace("%", "%25").replace(":", "%3A") for part in key[:-1]]
    # A text that is no valid Unicode names no hash, and must not be an error either.
    return ":".join((prefix, *escaped, key[-1])).encode("utf-8", "surrogatepass")


def user_in(rest: bytes, *, n_parts: int) -> str | None:
    """The user in the name of a hash after the prefix, None if ``hash_name`` writes no such name.

    >>> user_in(b"u%3A7:tea:green", n_parts=2), user_in(b"u:7", n_parts=1), user_in(b"u", n_parts=2)
    ('u:7', 'u:7', None)
    """
    try:
        text = rest.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    if n_parts == 1:
        return text
    user, colon, _ = text.partition(":")
    return user.replace("%3A", ":").replace("%25", "%") if colon else None


def _literal(text: bytes) -> bytes:
    """A pattern of Redis that matches this text only."""
    return re.sub(rb"[\\*?\[\]^-]", rb"\\\g<0>", text)


def _number(cell: object) -> float:
    if not isinstance(cell, bytes) or b"_" in cell:  # Python reads 1_000 as a number
        return math.nan
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _text(cell: object) -> str | None:
    if not isinstance(cell, bytes):
        return None
    try:
        return cell.decode()
    except UnicodeDecodeError:
        return None
