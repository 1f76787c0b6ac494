"""API keys: how they are made and checked.

A key reads ``vfb_<id>_<secret>``: 8 characters by which its line in the key file is found, and 32
random bytes in base64url, of which the file has the SHA-256 only (see ``key_file``).
"""

import os
import re
import time
from base64 import b32encode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Final

import msgspec
import structlog

from vfbandits.errors import IdentityError, SettingError
from vfbandits.http.access import key_file
from vfbandits.http.access.caller import Caller
from vfbandits.http.access.key_file import KeyRecord, Stamp, read_stamped, stamp_of
from vfbandits.http.refusals import Unauthorized, Unavailable

SECRET_BYTES: Final = 32
ID_BYTES: Final = 5
LOOK_EVERY_S: Final = 1.0

_SHAPE: Final = re.compile(r"vfb_([a-z2-7]{8})_([A-Za-z0-9_-]{43})")
_NOBODYS: Final = sha256(b"nobody's secret").hexdigest()

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made.  ``text`` is the key itself: show it once, keep the record."""

    text: str = field(repr=False)
    record: KeyRecord


def make_key(
    name: str,
    *,
    scopes: Iterable[str],
    campaigns: Iterable[str] = (),
    expires: datetime | None = None,
    by: str = "",
    entropy: Callable[[int], bytes] = os.urandom,
) -> NewKey:
    """A new key; without ``campaigns`` it is for all of them.  ``by`` is who makes it.

    >>> key = make_key("web", scopes=["rank", "reward"])
    >>> len(key.text), key.record.caller().may("rank", "front page")
    (56, True)
    """
    key_id = b32encode(entropy(ID_BYTES)).decode().lower()
    secret = urlsafe_b64encode(entropy(SECRET_BYTES)).decode().rstrip("=")
    facts = {
        "id": key_id,
        "name": name,
        "scopes": tuple(dict.fromkeys(scopes)),
        "sha256": _digest(secret),
        "created": key_file.now(),
        "expires": expires,
        "campaigns": tuple(dict.fromkeys(campaigns)) or None,
        "by": by,
    }
    try:
        record = msgspec.convert(facts, KeyRecord)
    except msgspec.ValidationError as error:
        raise SettingError(f"such a key cannot be made: {error}") from None
    return NewKey(f"vfb_{key_id}_{secret}", record)


@dataclass(frozen=True, slots=True)
class _Held:
    """A caller, and when its key expires, in seconds since 1970."""

    caller: Caller
    sha256: str
    ends: float


class KeyRing:
    """The keys of a file; a change of the file takes effect within a second.

    While the file cannot be read, every caller is refused.
    Use it from one thread.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._clock = clock
        self._now = now
        self._look_at = clock() + LOOK_EVERY_S
        self._stamp: Stamp | None = None
        self._by_id: dict[str, _Held] = {}
        # By the SHA-256 of a whole key as it was presented; valid keys only, which bounds it.
        self._seen: dict[bytes, _Held] = {}
        self._read()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "KeyRing":
        """The ring of a key file; IdentityError if it is none, or others may read it."""
        return cls(Path(path))

    def __len__(self) -> int:
        """How many keys there are, expired ones included."""
        return len(self._by_id)

    def check(self, presented: str) -> Caller:
        """The caller of this key.

        Unauthorized does not say what was wrong, and takes as long for an unknown id as for a
        wrong secret.
        """
        self._look()
        shown = sha256(presented.encode(errors="surrogatepass")).digest()
        held = self._seen.get(shown)
        if held is None:
            held = self._find(presented)
            self._seen[shown] = held
        if held.ends <= self._now():
            raise _not_valid()
        return held.caller

    def _find(self, presented: str) -> _Held:
        match = _SHAPE.fullmatch(presented)
        key_id, secret = match.groups() if match else ("", "")
        held = self._by_id.get(key_id)
        is_same = compare_digest(_digest(secret), _NOBODYS if held is None else held.sha256)
        if held is None or not is_same:
            raise _not_valid()
        return held

    def _look(self) -> None:
        """Read the file again if it has changed, looking once a second at most."""
        moment = self._clock()
        if moment >= self._look_at:
            self._look_at = moment + LOOK_EVERY_S
            try:
                if self._stamp is None or stamp_of(self._path.stat()) != self._stamp:
                    self._read()
                    _log.info("keys_loaded", count=len(self))
            except (IdentityError, OSError) as error:
                self._stamp, self._by_id, self._seen = None, {}, {}
                _log.error("keys_unreadable", reason=str(error))
        if self._stamp is None:
            raise Unavailable("the API keys cannot be read now, the server's log says why")

    def _read(self) -> None:
        records, stamp = read_stamped(self._path)
        self._by_id = {record.id: _hold(record) for record in records}
        self._seen = {}
        self._stamp = stamp


def _hold(record: KeyRecord) -> _Held:
    ends = float("inf") if record.expires is None else record.expires.timestamp()
    return _Held(record.caller(), record.sha256, ends)


def _digest(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _not_valid() -> Unauthorized:
    return Unauthorized("wanted a valid API key, got one that is not")
