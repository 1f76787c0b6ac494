"""Rate limits: token buckets, one for each caller and one for each address.

A bucket holds ``burst`` tokens and gets ``per_s`` more each second; a request takes one.  It is
stored as the time at which it will be full again, so a full bucket need not be stored.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from vfbandits.errors import SettingError
from vfbandits.http.refusals import TooMany

MAX_BUCKETS: Final = 10_000
BODY_BYTES: Final = 1 << 20
_ROUNDING_S: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Rate:
    """Requests a second in the long run, and the largest burst after a pause.

    >>> Rate(0.0, burst=1)
    Traceback (most recent call last):
    vfbandits.errors.SettingError: a rate must be a positive number a second, got 0.0
    """

    per_s: float
    burst: int

    def __post_init__(self) -> None:
        """Refuse a rate that would admit no request."""
        if not (math.isfinite(self.per_s) and self.per_s > 0.0):
            raise SettingError(f"a rate must be a positive number a second, got {self.per_s}")
        if self.burst < 1:
            raise SettingError(f"a burst must be at least one request, got {self.burst}")


class Buckets:
    """A bucket for each name; beyond ``most`` the least recently used one is dropped.

    >>> buckets = Buckets(Rate(2.0, burst=1), clock=lambda: 0.0)
    >>> buckets.take("web"), buckets.take("web"), buckets.take("app")
    (0.0, 0.5, 0.0)
    """

    def __init__(
        self,
        rate: Rate,
        *,
        clock: Callable[[], float] = time.monotonic,
        most: int = MAX_BUCKETS,
    ) -> None:
        self.rate = rate
        self._clock = clock
        self._most = most
        self._token_s = 1.0 / rate.per_s
        self._whole_s = rate.burst / rate.per_s
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """How many buckets are kept."""
        return len(self._full_at)

    def take(self, who: str) -> float:
        """Take a token and return 0, or take none and return how many seconds to wait for one."""
        moment = self._clock()
        full_at = max(self._full_at.get(who, moment), moment) + self._token_s
        wait = full_at - moment - self._whole_s
        if wait > _ROUNDING_S:
            return wait
        self._keep(who, full_at)
        return 0.0

    def owe(self, who: str, tokens: int) -> None:
        """Take several tokens, even ones that are still to come: a batch was admitted."""
        moment = self._clock()
        self._keep(who, max(self._full_at.get(who, moment), moment) + tokens * self._token_s)

    def admit(self, who: str, what: str) -> None:
        """Take a token; TooMany, whose message calls the caller ``what``, if there is none."""
        wait = self.take(who)
        if wait > 0.0:
            raise TooMany(
                f"wanted at most {self.rate.per_s:g} requests a second from {what}, and "
                f"bursts of {self.rate.burst}, got more: wait {wait:.3f} s",
                retry_after_s=wait,
            )

    def _keep(self, who: str, full_at: float) -> None:
        self._full_at[who] = full_at
        self._full_at.move_to_end(who)
        if len(self._full_at) > self._most:
            self._full_at.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on requests and bodies.

    Attributes
    ----------
    callers
        Counts the requests of each caller.
    addresses
        Counts all requests from each address, before its caller is known.
    body_bytes
        The largest body.
    """

    callers: Buckets
    addresses: Buckets
    body_bytes: int = BODY_BYTES

    @classmethod
    def standard(cls) -> "Limits":
        """For a caller, more than one process can answer; for an address, twice that."""
        return cls(Buckets(Rate(10_000.0, burst=20_000)), Buckets(Rate(20_000.0, burst=40_000)))


@lru_cache(maxsize=MAX_BUCKETS)  # IPv6 takes longer to read than all else that is done here
def network_of(address: str) -> str:
    """The network of one host: an IPv4 address, or the /64 around an IPv6 one.

    >>> network_of("192.0.2.1"), network_of("::ffff:192.0.2.1"), network_of("2001:db8::5")
    ('192.0.2.1', '192.0.2.1', '2001:db8::')
    """
    if ":" not in address:
        return address
    try:
        whole = IPv6Address(address)
    except AddressValueError:
        return address
    if whole.ipv4_mapped is not None:
        return str(whole.ipv4_mapped)
    return str(IPv6Address(int(whole) >> 64 << 64))
