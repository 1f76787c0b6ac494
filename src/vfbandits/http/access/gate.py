"""The guard of an application, built from the settings: keys and limits."""

from starlette.types import ASGIApp

from vfbandits.errors import ConfigError
from vfbandits.http.access.client_certificate import NoKeys
from vfbandits.http.access.guard import PROBES, Guard
from vfbandits.http.access.keys import KeyRing
from vfbandits.http.access.limits import Buckets, Limits, Rate
from vfbandits.http.access.proxies import hosts_of, proxies_of
from vfbandits.settings.http import HttpSettings

PUBLIC = PROBES | {"/openapi.json"}


def guarded(
    app: ASGIApp, http: HttpSettings, limits: Limits, *, public: frozenset[str] = PUBLIC
) -> Guard:
    """The application behind its guard."""
    return Guard(
        app,
        ring_of(http),
        limits,
        public=public,
        proxies=proxies_of(http),
        hosts=hosts_of(http),
    )


def ring_of(http: HttpSettings) -> KeyRing | NoKeys | None:
    """The ring of valid keys; None for an insecure server, which asks for none."""
    if http.keys is not None:
        ring = KeyRing.load(http.keys)
        if not len(ring) and http.clients is None:
            raise ConfigError(
                f"wanted an API key in {http.keys}, got none: vfb keys create makes one"
            )
        return ring
    return None if http.insecure else NoKeys()


def limits_of(http: HttpSettings) -> Limits:
    """The limits of the settings; an address has twice the rate of a caller."""
    callers = Rate(http.rate, burst=int(http.burst))
    addresses = Rate(2.0 * http.rate, burst=int(2 * http.burst))
    return Limits(Buckets(callers), Buckets(addresses), http.body_limit_bytes)
