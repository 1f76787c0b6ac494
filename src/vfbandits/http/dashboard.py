"""The page at ``/`` and the data it draws.  Both only read.

The page is a few files of this package, without a build step; it asks no other host for anything,
and its Content-Security-Policy would forbid it.  The files hold no data, so they need no key.
"""

import gzip
import hashlib
from collections.abc import Callable
from importlib.resources import files
from typing import Final, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Scope

from vfbandits.dashboard.observatory import MAX_MINUTES, Observatory
from vfbandits.errors import SettingError
from vfbandits.http.access.caller import Caller, Right
from vfbandits.http.refusals import NotFound

# The caller of a request; raises if it does not have the right.
Require: TypeAlias = Callable[[Scope, Right], Caller]

DASHBOARD: Final = "/v1/dashboard"
PAGE: Final = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/charts.js": ("charts.js", "text/javascript"),
    "/panels.js": ("panels.js", "text/javascript"),
    "/words.js": ("words.js", "text/javascript"),
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_encode = msgspec.json.Encoder().encode


def dashboard_routes(observatory: Observatory, *, require: Require) -> list[Route]:
    """Routes of the page and of its data; ``require`` is called before data is given.

    Single decisions, with their users, are for callers that may "read"; "figures" is enough for all
    else.

    >>> from vfbandits.http.access.caller import EVERYBODY
    >>> retail = Observatory("retail", ["ads"])
    >>> [route.path for route in dashboard_routes(retail, require=lambda *_: EVERYBODY)][:3]
    ['/v1/dashboard', '/', '/page.css']
    """

    async def data(request: Request) -> Response:
        caller = require(request.scope, "figures")
        return _data(observatory, request, lists_decisions=caller.has("read"))

    pages = [_page(path, name, kind) for path, (name, kind) in PAGE.items()]
    return [Route(DASHBOARD, data, name="dashboard"), *pages]


def _data(observatory: Observatory, request: Request, *, lists_decisions: bool) -> Response:
    campaign = request.query_params.get("campaign", "")
    if campaign and campaign not in observatory.campaigns:
        raise NotFound(f"wanted one of the campaigns {observatory.campaigns}, got {campaign!r}")
    minutes = _minutes(request.query_params.get("minutes", "5"))
    view = observatory.view(campaign, minutes=minutes, lists_decisions=lists_decisions)
    body = _encode(view)
    headers = {**_HEADERS, "cache-control": "no-store", "vary": "accept-encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        # Level 1 compresses to a tenth in under a millisecond; more would delay decisions.
        body = gzip.compress(body, compresslevel=1, mtime=0)
        headers["content-encoding"] = "gzip"
    return Response(body, headers=headers, media_type="application/json")


def _minutes(text: str) -> int:
    """Read a number of minutes."""
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise SettingError(f"minutes are 1 to {MAX_MINUTES}, got {text[:20]!r}")
    return int(text)


def _page(path: str, name: str, kind: str) -> Route:
    body = (files("vfbandits.dashboard") / "page" / name).read_bytes()
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    # A browser asks each time whether its copy is still right: a new version is never mixed with
    # an old one.
    headers = {**_HEADERS, "cache-control": "no-cache", "etag": etag}

    async def page(request: Request) -> Response:
        if etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    return Route(path, page, name=name)
