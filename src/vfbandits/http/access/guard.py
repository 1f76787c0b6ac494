"""Authenticates requests and limits their rate before they reach the application."""

import contextlib
from typing import Final, Protocol

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from vfbandits.http.access.caller import CALLER, EVERYBODY, Caller, Right
from vfbandits.http.access.limits import Limits, network_of
from vfbandits.http.access.proxies import Hosts, Proxies
from vfbandits.http.body_limit import BodyLimit
from vfbandits.http.refusals import Forbidden, Refusal, Unauthorized
from vfbandits.http.refuse import address_of, log_refusal, response_to
from vfbandits.telemetry.log_throttle import LogThrottle

PROBES: Final = frozenset({"/healthz", "/readyz"})
_BEARER: Final = "bearer "
_KEY_HEADERS: Final = frozenset({b"x-api-key", b"ocp-apim-subscription-key"})
_POLICY_VIOLATION: Final = 1008


class Ring(Protocol):
    """Checks keys, as ``KeyRing`` does."""

    def check(self, presented: str) -> Caller:
        """The caller of this key; a Refusal if the key is not valid."""


class Guard:
    """Wraps an application: identifies callers, and refuses unknown and too frequent ones.

    A key comes as ``Authorization: Bearer <key>`` or as ``X-API-Key``, or in the header of Azure's
    clients; never in the URL, which ends up in logs.  The caller is added to the request's scope;
    each route checks its rights with ``require``.  A caller that is in the scope already, such as
    the owner of a client certificate, is kept.

    Attributes
    ----------
    ring
        The keys; with None every caller is an administrator, which is for loopback only.
    limits
        Of addresses, callers and bodies.  Probes of health are never counted.
    public
        Paths that need no key.
    public_below
        Prefixes of paths that need none, such as "/static/".
    proxies
        Proxies that may name the client of a request.  Probes need not come through one.
    hosts
        Host names that a request may carry.
    """

    def __init__(
        self,
        app: ASGIApp,
        ring: Ring | None,
        limits: Limits,
        *,
        public: frozenset[str] = PROBES,
        public_below: tuple[str, ...] = (),
        proxies: Proxies | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        self._app = BodyLimit(app, limits.body_bytes, log=self._log)
        self._ring = ring
        self._limits = limits
        self._public = public
        self._public_below = public_below
        self._proxies = Proxies() if proxies is None else proxies
        self._hosts = Hosts(None) if hosts is None else hosts
        # A caller that is refused all day must not fill the disk with log lines.
        self._throttle = LogThrottle()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        if scope["type"] == "http":
            refused = self._refused(scope)
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refused(self, scope: Scope) -> Response | None:
        try:
            self._admit(scope)
        except Refusal as refusal:
            self._log(scope, refusal)
            return response_to(scope, refusal)
        return None

    def _admit(self, scope: Scope) -> None:
        path: str = scope["path"]
        self._hosts.check(scope)
        if path in PROBES:
            self._look_at_key(scope)
            return
        self._proxies.resolve(scope)
        self._limits.addresses.admit(network_of(address_of(scope)), "one address")
        if path in self._public or path.startswith(self._public_below):
            return
        caller = scope.get(CALLER) or self._known(scope)
        self._limits.callers.admit(caller.name, "one caller")
        scope[CALLER] = caller

    def _look_at_key(self, scope: Scope) -> None:
        """Identify the caller of a probe that has a key; without a valid one it is answered too."""
        if CALLER in scope or not (self._ring is None or _presented(scope)):
            return
        with contextlib.suppress(Refusal):
            scope[CALLER] = self._known(scope)

    def _known(self, scope: Scope) -> Caller:
        if self._ring is None:
            return EVERYBODY
        key = _presented(scope)
        if not key:
            raise Unauthorized("wanted an API key as Authorization: Bearer <key>, got none")
        return self._ring.check(key)

    def _log(self, scope: Scope, refusal: Refusal) -> None:
        unlogged = self._throttle.admit((network_of(address_of(scope)), refusal.status))
        if unlogged is not None:
            log_refusal(scope, refusal, unlogged=unlogged)


def caller_of(scope: Scope) -> Caller:
    """The caller of this request; Unauthorized if it was not identified."""
    caller = scope.get(CALLER)
    if not isinstance(caller, Caller):
        raise Unauthorized("wanted a request with a key, got one without")
    return caller


def require(scope: Scope, right: Right, campaign: str | None = None) -> Caller:
    """The caller, if it has ``right`` in ``campaign``; otherwise Forbidden.

    Without a campaign the right is needed in the server as a whole, which a caller that is limited
    to some campaigns never has.  Call it before looking up the campaign: then a refusal does not
    reveal whether the campaign exists.
    """
    caller = caller_of(scope)
    if not caller.has(right):
        had = ", ".join(sorted(caller.scopes))
        raise Forbidden(f"wanted a caller with the scope {right!r}, got one with {had}")
    if not caller.sees(campaign):
        what = "all campaigns" if campaign is None else f"campaign {campaign!r}"
        raise Forbidden(
            f"wanted a caller that may ask about {what}, got one limited to "
            f"{', '.join(sorted(caller.campaigns or ()))[:200]}"
        )
    return caller


def _presented(scope: Scope) -> str:
    """The key of a request; empty if there is none."""
    plain = ""
    for name, value in scope["headers"]:
        if name == b"authorization":
            text: str = value.decode("latin-1")
            if text[: len(_BEARER)].lower() == _BEARER:
                return text[len(_BEARER) :].strip()
        elif name in _KEY_HEADERS:
            plain = value.decode("latin-1").strip()
    return plain
