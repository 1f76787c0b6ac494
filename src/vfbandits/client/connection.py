"""The settings of a connection, for both clients: address, key and certificates."""

import math
import re
import ssl
from dataclasses import dataclass, field
from os import PathLike
from typing import Final, TypeAlias, TypedDict

import httpx2

from vfbandits.errors import SettingError

# A little less than the 5 s after which servers commonly close an idle connection.
MAX_IDLE_S: Final = 4.0
LIMITS: Final = httpx2.Limits(
    max_connections=100, max_keepalive_connections=100, keepalive_expiry=MAX_IDLE_S
)

Verify: TypeAlias = str | PathLike[str] | ssl.SSLContext | None
Certificate: TypeAlias = tuple[str | PathLike[str], str | PathLike[str]] | None


class HttpOptions(TypedDict):
    """Options that both clients of httpx2 take."""

    base_url: str
    headers: dict[str, str]
    verify: ssl.SSLContext
    limits: httpx2.Limits


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a client's calls go.

    Attributes
    ----------
    base_url
        URL of the server, such as ``https://bandit.internal:8443``; it may have a path, which
        precedes ``/v1``.
    key
        API key; None if the server asks for none, or knows the client by its certificate.
    verify
        Certificate authority to trust (a file), or a whole TLS context; None for the system's.
        The server's certificate is always checked.
    cert
        Certificate and key of the client (files), for mutual TLS.
    """

    base_url: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 5.0
    retries: int | None = None
    verify: Verify = field(default=None, repr=False)
    cert: Certificate = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse settings that no call can be made with."""
        _check_address(self.base_url)
        # Checked here, since the error of a key that no header can have would quote the key.
        if self.key is not None and not re.fullmatch(r"[!-~]+", self.key):
            raise SettingError(
                "a key must be printable ASCII without spaces, got "
                f"{len(self.key)} characters that are not"
            )
        if not (self.timeout_s > 0.0 and math.isfinite(self.timeout_s)):
            raise SettingError(f"timeout_s must be positive and finite, got {self.timeout_s}")
        if self.retries is not None and self.retries < 0:
            raise SettingError(f"retries must not be negative, got {self.retries}")

    def options(self) -> HttpOptions:
        """The options of the connection pool, for either client."""
        headers = {"accept": "application/json, application/problem+json"}
        if self.key is not None:
            headers["authorization"] = f"Bearer {self.key}"
        return {
            "base_url": self.base_url,
            "headers": headers,
            "verify": self._tls(),
            "limits": LIMITS,
        }

    def _tls(self) -> ssl.SSLContext:
        """A TLS context with the trusted authorities and the client's certificate."""
        if self.verify is None and self.cert is None and self.base_url.startswith("http:"):
            # An unused context without authorities: to load those of the system takes 50 ms.
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            if isinstance(self.verify, ssl.SSLContext):
                context = self.verify
            else:
                context = ssl.create_default_context(cafile=self.verify)
            if self.cert is not None:
                context.load_cert_chain(*self.cert)
        except OSError as error:
            paths = (self.verify, *(self.cert or ())[:2])  # a third is the password of the key
            named = ", ".join(str(path) for path in paths if isinstance(path, str | PathLike))
            raise SettingError(
                f"verify and cert must name PEM files, got {named}: {error}"
            ) from error
        return context


def _check_address(base_url: str) -> None:
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL:
        # Not its cause: that may quote a password.
        raise SettingError(
            f"base_url must be a URL, got {len(base_url)} characters that are none"
        ) from None
    if url.scheme not in ("http", "https") or not url.host:
        raise SettingError(f"base_url must begin with http:// or https://, got {url.scheme!r}")
    if url.userinfo or url.query or url.fragment:
        raise SettingError("base_url must have no user, query or fragment; a key goes into key=")
