"""A network address as configuration files write it."""

import re
from ipaddress import ip_address

from vfbandits.errors import ConfigError

MAX_PORT = 65_535
MAX_DIGITS = 16  # of a port; Python reads no number of thousands of digits
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://")


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 host is in brackets.

    >>> split_address("shop.example:7443"), split_address("[::1]:80")
    (('shop.example', 7443), ('::1', 80))
    """
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    is_plain = host.isascii() and host.isprintable() and not set(host) & set(" \"'\\/[]")
    if not colon or not host or not is_plain or not port.isdecimal() or not port.isascii():
        raise ConfigError(f"an address is written host:port, or [ipv6]:port, got {text[:128]!r}")
    if len(port) > MAX_DIGITS or int(port) > MAX_PORT:
        raise ConfigError(f"a port is at most {MAX_PORT}, got {port[:16]} in {text[:128]!r}")
    return host, int(port)


def describe_url(url: str) -> str:
    """A description of a URL for an error, without the URL itself, which may have a password.

    >>> describe_url("mysql://ann:hidden@host/shop")
    "a URL with the scheme 'mysql'"
    >>> describe_url("ann:hidden@host"), describe_url("")
    ('15 characters without a scheme', 'an empty text')
    """
    if not url:
        return "an empty text"
    found = _SCHEME.match(url)
    if found is None:
        return f"{len(url)} characters without a scheme"
    return f"a URL with the scheme {found[1]!r}"


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` can be reached from this machine only.

    >>> is_loopback("127.0.0.1:0"), is_loopback("[::1]:80"), is_loopback("10.0.0.1:80")
    (True, True, False)
    """
    host = address.rpartition(":")[0].removeprefix("[").removesuffix("]")
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
