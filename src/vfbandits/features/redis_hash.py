"""Features in Redis: one hash for each key, its fields the raw columns, its values plain text.

The hash of user ``u7`` is called ``prefix:u7``, that of the user and the arm ``prefix:u7:tea``.
So that no two keys share a name, ``%`` and ``:`` in a user that an arm follows are written
``%25`` and ``%3A``.
"""

import math
from collections.abc import Sequence

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from vfbandits.errors import FeatureError
from vfbandits.features.base import Key, Lookup, refuse_key
from vfbandits.features.cells import CellReader
from vfbandits.features.scaling import Scaling
from vfbandits.settings.address import describe_url


class RedisStore:
    """Hashes of a Redis server, asked for in one pipeline.

    A hash without any of the columns is a missing key.  No wait for the server is longer than
    ``timeout_s``; a connection that broke while it was idle is replaced.
    """

    def __init__(
        self, url: str, *, prefix: str, n_parts: int = 1, scaling: Scaling, timeout_s: float = 1.0
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
        self._reader = CellReader(self._where, scaling, _number, _text)
        self._fields = list(scaling.columns)

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
