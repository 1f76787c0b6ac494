"""Settings of the HTTP interface and of the campaigns behind it."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Final, TypeAlias

from vfbandits.campaign.settings import DEFAULT, REWARD_WAIT_S, CampaignSettings
from vfbandits.errors import ConfigError
from vfbandits.settings.address import is_loopback
from vfbandits.settings.model import ModelSettings, model_from
from vfbandits.settings.table import Table

Network: TypeAlias = IPv4Network | IPv6Network
TLS: Final = ("server", "proxy")


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Where applications call, and who may.

    Attributes
    ----------
    address
        ``host:port``; port 0 takes a free one.
    certificate, private_key
        Of the server.  Without them the address must be on loopback.
    clients
        The authority of client certificates, for mutual TLS.
    keys
        The file of API keys; ``vfb keys create`` makes one.
    insecure
        Neither keys nor certificates: on loopback, for trying things out.
    rate, burst
        How many requests a second a caller may send on average, and at once.
    body_limit_bytes
        The largest body that is taken.
    traces
        Where OpenTelemetry traces go; empty for none.
    max_connections, max_connections_per_address
        How many connections may be open, in all and from one address; 0 for what fits the
        process's limit of open files.
    tls
        Where TLS ends: at the "server", or at a trusted "proxy", which then calls in plain.
    trusted_proxies
        Networks whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are believed.
    hosts
        Names by which the server may be called, beside those of loopback on loopback; empty for any
        elsewhere.
    """

    address: str
    certificate: Path | None = None
    private_key: Path | None = None
    clients: Path | None = None
    keys: Path | None = None
    insecure: bool = False
    rate: float = 10_000.0
    burst: float = 20_000.0
    body_limit_bytes: int = 1 << 20
    traces: str = ""
    max_connections: int = 0
    max_connections_per_address: int = 0
    tls: str = "server"
    trusted_proxies: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()

    def refuse_unless_safe(self) -> None:
        """No key, no start; and nothing in plain beyond this machine."""
        ends_at_proxy = self.tls == "proxy"
        if not is_loopback(self.address) and self.certificate is None and not ends_at_proxy:
            raise ConfigError(
                "[http]: wanted a certificate and a private_key, since the address "
                f"{self.address!r} can be reached from other machines, got none; where TLS ends "
                'at a proxy, tls = "proxy" and trusted_proxies do without'
            )
        if ends_at_proxy and not self.trusted_proxies:
            raise ConfigError('[http]: tls = "proxy" needs trusted_proxies, got none')
        if ends_at_proxy and self.certificate is not None:
            raise ConfigError('[http]: wanted a certificate or tls = "proxy", got both')
        if self.insecure and not is_loopback(self.address):
            raise ConfigError(f"[http]: insecure needs an address on loopback, got {self.address}")
        if self.keys is None and self.clients is None and not self.insecure:
            raise ConfigError(
                "[http]: wanted keys (a file, see `vfb keys create`) or clients (an authority "
                "of client certificates), got neither; on loopback --insecure does without"
            )
        if (self.certificate is None) != (self.private_key is None):
            raise ConfigError("[http]: certificate and private_key go together, got one of them")
        if self.clients is not None and self.certificate is None:
            raise ConfigError("[http]: clients need a certificate of the server too, got none")


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """A campaign before it is opened."""

    name: str
    model: ModelSettings
    settings: CampaignSettings


def http_from(table: Table, folder: Path) -> HttpSettings:
    """The table [http]."""
    if not table.has("address"):
        raise ConfigError("[http]: wanted an address, such as '127.0.0.1:8080', got none")

    def path(key: str) -> Path | None:
        value = table.text(key, "")
        return folder / value if value else None

    settings = HttpSettings(
        table.text("address", ""),
        path("certificate"),
        path("private_key"),
        path("clients"),
        path("keys"),
        insecure=table.flag("insecure", default=False),
        rate=table.number("rate", 10_000.0),
        burst=table.number("burst", 20_000.0),
        body_limit_bytes=table.whole("body_limit_bytes", 1 << 20),
        traces=table.text("traces", ""),
        max_connections=_count(table, "max_connections"),
        max_connections_per_address=_count(table, "max_connections_per_address"),
        tls=_one_of(table, "tls", TLS),
        trusted_proxies=tuple(_network(table, text) for text in _texts(table, "trusted_proxies")),
        hosts=_texts(table, "hosts"),
    )
    table.close()
    return settings


def _count(table: Table, key: str) -> int:
    value = table.whole(key, 0)
    if value < 0:
        raise table.wrong(key, "a positive number, or 0 for the default", value)
    return value


def _one_of(table: Table, key: str, words: tuple[str, ...]) -> str:
    value = table.text(key, words[0])
    if value not in words:
        raise table.wrong(key, " or ".join(map(repr, words)), value)
    return value


def _texts(table: Table, key: str) -> tuple[str, ...]:
    value = table.take(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise table.wrong(key, "a list of texts", value)
    return tuple(value)


def _network(table: Table, text: str) -> Network:
    """One network, or one address; not all addresses that there are."""
    try:
        network = ip_network(text)
    except ValueError:
        raise table.wrong(
            "trusted_proxies", "a list of networks, such as '10.0.0.0/8'", text
        ) from None
    if not network.prefixlen:
        raise table.wrong("trusted_proxies", "a list of networks smaller than all", text)
    return network


def campaigns_from(table: Table, model: ModelSettings) -> list[CampaignPlan]:
    """The tables [campaigns.NAME]; the default one has the model of [model]."""
    plans = []
    for name in dict.fromkeys((DEFAULT, *table.keys())):
        child = table.child(name)
        if child.has("model") and name == DEFAULT:
            raise ConfigError("[campaigns.default]: its model stands under [model]")
        own = model if name == DEFAULT else model_from(child.child("model"))
        plans.append(CampaignPlan(name, own, _campaign(child, own)))
    table.close()
    return plans


def _campaign(table: Table, model: ModelSettings) -> CampaignSettings:
    first = CampaignSettings(model.policy, model.floor)
    default: float | None = None
    if table.flag("learn_default", default=True):
        default = table.number("default_reward", 0.0)
    settings = CampaignSettings(
        model.policy,
        model.floor,
        mode=table.text("mode", first.mode),
        holdback=table.number("holdback", first.holdback),
        reward_wait_s=table.number("reward_wait_s", REWARD_WAIT_S),
        default_reward=default,
        aggregation=table.text("aggregation", first.aggregation),
        activation_wait_s=table.number("activation_wait_s", first.activation_wait_s),
        reward_min=table.number("reward_min", first.reward_min),
        reward_max=table.number("reward_max", first.reward_max),
    )
    table.close()
    return settings
