"""Settings of the HTTP interface and of the campaigns behind it."""

import json
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from vfbandits.campaign.settings import (
    CHOSEN,
    DEFAULT,
    EARLIEST,
    LEARN,
    REWARD_BOUND,
    CampaignSettings,
    Guardrail,
)
from vfbandits.errors import ConfigError
from vfbandits.settings.address import is_loopback
from vfbandits.settings.model import DAY_S, ModelSettings
from vfbandits.settings.values import AtLeastOne, Count, Fraction, Positive, Settings, Text

Network: TypeAlias = IPv4Network | IPv6Network


class PersonalizerSettings(Settings, frozen=True, kw_only=True):
    """The paths of Azure Personalizer, API v1.0, for applications that use it.

    It needs layout outer or disjoint, and scalings that hash features without a schema.

    Attributes
    ----------
    campaign
        The campaign behind these paths.
    user
        Name of the context feature that has the user's id, such as "user.id"; without it the event
        id is used as the user's id.
    """

    campaign: Text = DEFAULT
    user: str = ""


class HttpSettings(Settings, frozen=True):
    """The HTTP interface: its address, and who may call it.

    Attributes
    ----------
    address
        ``host:port``; port 0 takes a free one.
    certificate
        Of the server; without it the address must be on loopback, or TLS end at a proxy.
    private_key
        Of the certificate.
    clients
        The authority of client certificates, for mutual TLS.
    keys
        The file of API keys, written by ``vfb keys create``.
    insecure
        Neither keys nor certificates; only on loopback, for tests.
    rate
        Average number of requests per second that a caller may send.
    burst
        Number of requests that a caller may send in one burst.
    body_limit_bytes
        Maximum size of a request body.
    traces
        Address of an OpenTelemetry collector; empty for none.
    max_connections
        Maximum number of open connections; 0 derives it from the open-file limit.
    max_connections_per_address
        The same for one address; 0 for half of ``max_connections``.
    tls
        Where TLS ends: at the "server", or at a trusted "proxy", which then calls in plain.
    trusted_proxies
        Networks whose ``X-Forwarded-For`` and ``X-Forwarded-Proto`` are trusted.
    hosts
        Host names that requests may have.  On loopback those of loopback are added; elsewhere an
        empty list allows any name.
    personalizer
        Serve the paths of Azure Personalizer as well; an empty table will do.
    """

    address: Text
    certificate: Path | None = None
    private_key: Path | None = None
    clients: Path | None = None
    keys: Path | None = None
    insecure: bool = False
    rate: Positive = 10_000.0
    burst: Annotated[float, Meta(ge=1.0)] = 20_000.0
    body_limit_bytes: AtLeastOne = 1 << 20
    traces: str = ""
    max_connections: Count = 0
    max_connections_per_address: Count = 0
    tls: Literal["server", "proxy"] = "server"
    trusted_proxies: tuple[Text, ...] = ()
    hosts: tuple[Text, ...] = ()
    personalizer: PersonalizerSettings | None = None

    def __post_init__(self) -> None:
        """Refuse proxies that are not networks, or that are all addresses."""
        for network in self.proxy_networks:
            if not network.prefixlen:
                raise ConfigError(f"trusted_proxies must not be all addresses, got {network}")

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        """The networks of the trusted proxies; an address is a network of one."""
        try:
            return tuple(map(ip_network, self.trusted_proxies))
        except ValueError as error:
            raise ConfigError(
                f"trusted_proxies must be networks, such as '10.0.0.0/8', but {error}"
            ) from None

    def refuse_unless_safe(self) -> None:
        """Refuse to start without authentication, or without TLS beyond this machine."""
        ends_at_proxy = self.tls == "proxy"
        if not is_loopback(self.address) and self.certificate is None and not ends_at_proxy:
            raise ConfigError(
                "[http]: wanted a certificate and a private_key, since the address "
                f"{self.address!r} can be reached from other machines, got none; if TLS ends at a "
                'proxy, set tls = "proxy" and trusted_proxies instead'
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
                "of client certificates), got neither; on loopback --insecure needs none"
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
    retain_s: float | None = None

    @property
    def described(self) -> dict[str, object]:
        """The settings of the file that may change between two starts, by name."""
        return {
            **json.loads(self.settings.pack()),
            "arm_expiry_days": self.model.arm_expiry_days,
            "max_pending": self.model.max_pending,
            "retain_days": None if self.retain_s is None else self.retain_s / DAY_S,
        }


class CampaignTable(Settings, frozen=True, kw_only=True):
    """A campaign: how it decides, and how it learns from rewards.

    Attributes
    ----------
    mode
        "learn"; "shadow": the baseline is shown, and learnt from; "frozen": nothing is learnt.
    holdback
        Fraction of events that get the baseline.
    reward_wait_s
        Wait for a reward, in seconds.
    default_reward
        Reward that is learnt if none arrives in time.
    learn_default
        false to learn nothing if no reward arrives.
    aggregation
        Of several rewards for one event, the "earliest" or their "sum".
    activation_wait_s
        How long a held event waits for its activation, in seconds.
    reward_min, reward_max
        Bounds of each reward: one outside is refused.  A sum is clipped to them.
    log_contexts
        Contexts that the journal keeps: of the "chosen" arm, of "all" arms, or of all arms in a
        fraction of events.
    retain_days
        Days after which records leave the journal; without it they stay until a compaction.
    guardrail
        When a policy that loses against the holdback is switched to the baseline.
    model
        The campaign's own model; that of the default campaign is the table [model].
    """

    mode: Literal["learn", "shadow", "frozen"] = LEARN
    holdback: Fraction = 0.0
    reward_wait_s: Positive = 600.0
    default_reward: float = 0.0
    learn_default: bool = True
    aggregation: Literal["earliest", "sum"] = EARLIEST
    activation_wait_s: Positive = 3600.0
    reward_min: float = -REWARD_BOUND
    reward_max: float = REWARD_BOUND
    log_contexts: Literal["all", "chosen"] | Fraction = CHOSEN
    retain_days: Positive | None = None
    guardrail: Guardrail = Guardrail()
    model: ModelSettings | None = None

    def __post_init__(self) -> None:
        """Refuse settings that no campaign can have."""
        self.plan("", ModelSettings())

    def plan(self, name: str, model: ModelSettings) -> CampaignPlan:
        """The campaign of this name; it has a model of its own, or else ``model``."""
        own = self.model or model
        values = msgspec.structs.asdict(self)
        del values["model"]
        days = values.pop("retain_days")
        if not values.pop("learn_default"):
            values["default_reward"] = None
        settings = CampaignSettings(own.policy, own.floor, **values)
        return CampaignPlan(name, own, settings, None if days is None else days * DAY_S)
