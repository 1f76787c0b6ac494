"""A network address as configuration files write it."""

from ipaddress import ip_address

from vfbandits.errors import ConfigError

MAX_PORT = 65_535


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 host stands in brackets.

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
    if int(port) > MAX_PORT:
        raise ConfigError(f"a port is at most {MAX_PORT}, got {port[:16]} in {text[:128]!r}")
    return host, int(port)


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
