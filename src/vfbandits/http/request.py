"""A request whose body has arrived in full: the argument of every handler of the API."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

from vfbandits.http.refusals import Unsupported

JSON: Final = "application/json"
_JSON: Final = JSON.encode()


class BufferedRequest(NamedTuple):
    """An ASGI scope, the whole body, and the values of the path's parameters."""

    scope: Scope
    body: bytes = b""
    params: Mapping[str, str] = {}

    def header(self, name: bytes) -> bytes:
        """The first value of a header, whose name is in small letters; empty if it is absent."""
        for known, value in self.scope["headers"]:
            if known == name:
                return bytes(value)
        return b""

    def json(self) -> bytes:
        """The body, if it is announced as JSON; otherwise Unsupported."""
        content_type = self.header(b"content-type")
        if content_type != _JSON:
            _refuse_unless_json(content_type.decode("latin-1"))
        return self.body


async def read_body(receive: Receive) -> bytes:
    """The whole body; ClientDisconnect if the connection ends before it does."""
    message = await receive()
    if message["type"] == "http.request" and not message.get("more_body"):
        return bytes(message.get("body", b""))
    pieces: list[bytes] = []
    while message["type"] == "http.request":
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)
        message = await receive()
    raise ClientDisconnect


def _refuse_unless_json(content_type: str) -> None:
    if content_type.split(";", 1)[0].strip().lower() != JSON:
        got = repr(content_type) if content_type else "none"
        raise Unsupported(f"wanted a body with the content-type {JSON}, got {got}")
