"""The status port of a passive participant or a helper: one table of its configuration file."""

from pathlib import Path

from vfbandits.errors import ConfigError
from vfbandits.settings.address import is_loopback, split_address
from vfbandits.settings.http import HttpSettings
from vfbandits.settings.values import Settings, Text

MAX_CONNECTIONS = 64


class StatusSettings(Settings, frozen=True, kw_only=True):
    """A port for probes and Prometheus: /healthz, /readyz and /metrics, and nothing else.

    Attributes
    ----------
    address
        ``host:port``; port 0 takes a free one.
    certificate
        Of the server; without it the address must be on loopback.
    private_key
        Of the certificate.
    clients
        The authority of client certificates; without it everyone who reaches the address may read.
    """

    address: Text
    certificate: Path | None = None
    private_key: Path | None = None
    clients: Path | None = None

    def __post_init__(self) -> None:
        """Refuse settings that cannot be served, or would serve other machines without TLS."""
        split_address(self.address)
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigError("[status]: certificate and private_key go together, got one of them")
        if self.clients is not None and self.certificate is None:
            raise ConfigError("[status]: clients need a certificate of the server too, got none")
        if self.certificate is None and not is_loopback(self.address):
            raise ConfigError(
                "[status]: wanted a certificate and a private_key, since the address "
                f"{self.address!r} can be reached from other machines, got none"
            )

    @property
    def http(self) -> HttpSettings:
        """The settings of an HTTP server that asks for no key."""
        return HttpSettings(
            self.address,
            certificate=self.certificate,
            private_key=self.private_key,
            clients=self.clients,
            insecure=True,
            rate=100.0,
            burst=200.0,
            body_limit_bytes=1,
            max_connections=MAX_CONNECTIONS,
        )
