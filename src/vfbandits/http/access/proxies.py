"""The client of a request behind proxies, and the host name that it asked for.

``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed from trusted proxies only: anybody can
send them.  ``Forwarded`` is never read: many proxies pass on what a client wrote there.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

from starlette.types import Scope

from vfbandits.http.refusals import Forbidden
from vfbandits.settings.address import is_loopback, split_address
from vfbandits.settings.http import HttpSettings

LOOPBACK_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
MAX_CACHED: Final = 10_000
MAX_HOSTS: Final = 1_000
MAX_HOP: Final = 100  # letters of an address with its port
MAX_LINE: Final = 200  # bytes of headers whose meaning is cached
_FOR: Final = b"x-forwarded-for"
_PROTO: Final = b"x-forwarded-proto"


class Proxies:
    """Trusted proxies; with ``only``, requests must come through one of them, and by HTTPS.

    >>> from ipaddress import ip_network
    >>> proxies = Proxies([ip_network("10.0.0.0/8")])
    >>> proxies.trusts("10.1.2.3"), proxies.trusts("::ffff:10.1.2.3"), proxies.trusts("192.0.2.1")
    (True, True, False)
    """

    def __init__(
        self, trusted: Iterable[IPv4Network | IPv6Network] = (), *, only: bool = False
    ) -> None:
        self._networks = tuple(trusted)
        self._only = only
        self.trusts = lru_cache(maxsize=MAX_CACHED)(self._trusts)
        self._read_cached = lru_cache(maxsize=MAX_CACHED)(self._read)

    def resolve(self, scope: Scope) -> None:
        """Put the caller's own address and scheme into the scope, if a trusted proxy says them.

        Forbidden if only proxies may send requests, and this peer is none or was asked by http.
        """
        if not self._networks:
            return
        client = scope.get("client")
        if client is None or not self.trusts(client[0]):
            if self._only:
                raise Forbidden(
                    "wanted a request by way of a proxy among [http] trusted_proxies, "
                    f"got one from {client[0] if client else 'an unknown address'}"
                )
            return
        forwarded, scheme = b"", b""
        for name, value in scope["headers"]:
            if name == _FOR:
                forwarded = b"%b,%b" % (forwarded, value) if forwarded else value
            elif name == _PROTO:
                scheme = value
        read = self._read if len(forwarded) + len(scheme) > MAX_LINE else self._read_cached
        scope["client"], said = read(client[0], forwarded, scheme)
        if said in ("http", "https"):
            scope["scheme"] = said
        if self._only and said and said != "https":
            raise Forbidden("wanted a request that came to the proxy by https, got plain http")

    def _read(self, peer: str, forwarded: bytes, scheme: bytes) -> tuple[tuple[str, int], str]:
        """The client's address, with a port of 0, and the scheme by which the proxy was asked."""
        hops = forwarded.decode("latin-1").split(",") if forwarded else []
        said = scheme.decode("latin-1").rpartition(",")[2].strip().lower()
        return (self._caller(peer, hops), 0), said

    def _caller(self, peer: str, hops: list[str]) -> str:
        """The last address that is no trusted proxy's; addresses before it may be forged."""
        caller = peer
        for hop in reversed(hops):
            address = _address(hop)
            if address is None:
                return caller
            caller = address
            if not self.trusts(address):
                return caller
        return caller

    def _trusts(self, address: str) -> bool:
        try:
            one = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        if isinstance(one, IPv6Address) and one.ipv4_mapped is not None:
            one = one.ipv4_mapped
        return any(one in network for network in self._networks)


class Hosts:
    """Host names that a request may carry; None for any.

    A page in a browser can have its own name point at 127.0.0.1 and then read all that a server on
    loopback answers (DNS rebinding).  The name in ``Host`` reveals it.
    """

    def __init__(self, allowed: frozenset[str] | None) -> None:
        self._allowed = allowed
        self._met: set[bytes] = set()

    def check(self, scope: Scope) -> None:
        """Forbidden if this request names another host."""
        if self._allowed is None:
            return
        called = b""
        for name, value in scope["headers"]:
            if name == b"host":
                called = value
                break
        if called in self._met:
            return
        host = host_of(called.decode("latin-1"))
        if host not in self._allowed:
            raise Forbidden(
                f"wanted a Host among those of this server, got {host[:100]!r}: "
                "[http] hosts adds names"
            )
        if len(self._met) < MAX_HOSTS:
            self._met.add(called)


def proxies_of(http: HttpSettings) -> Proxies:
    """The proxies of the settings."""
    return Proxies(http.proxy_networks, only=http.tls == "proxy")


def hosts_of(http: HttpSettings) -> Hosts:
    """The names of the settings; a server on loopback has those of loopback, others any.

    >>> hosts_of(HttpSettings("127.0.0.1:80")).check({"headers": [(b"host", b"evil.example")]})
    Traceback (most recent call last):
    vfbandits.http.refusals.Forbidden: wanted a Host ... got 'evil.example': [http] hosts adds names
    """
    named = frozenset(map(host_of, http.hosts))
    if is_loopback(http.address):
        return Hosts(named | {*LOOPBACK_HOSTS, split_address(http.address)[0].lower()})
    return Hosts(named or None)


def host_of(text: str) -> str:
    """The host in a ``Host`` header, without its port.

    >>> host_of("Localhost:8080"), host_of("[::1]:80"), host_of("shop.example.")
    ('localhost', '::1', 'shop.example')
    """
    text = text.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    host, _, port = text.rpartition(":")
    return (host if host and port.isdecimal() else text).removesuffix(".")


def _address(hop: str) -> str | None:
    """An address as proxies write it, perhaps with a port; None if it is none."""
    # Longer text is no address, and must not fill the cache.
    return _read_address(hop) if len(hop) <= MAX_HOP else None


@lru_cache(maxsize=MAX_CACHED)
def _read_address(hop: str) -> str | None:
    text = hop.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return str(ip_address(text))
    except ValueError:
        return None
