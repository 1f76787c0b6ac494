"""Refuses bodies that are too large: immediately by their Content-Length, else by counting."""

from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vfbandits.errors import SettingError
from vfbandits.http.refusals import Refusal, TooLarge
from vfbandits.http.refuse import log_refusal, response_to


class BodyLimit:
    """Wraps an application, which never sees more than ``most_bytes`` of a request's body.

    If a body grows too large while it is read, the application gets TooLarge from ``receive``.  The
    caller gets 413 whatever the application answers, unless its answer had begun before.
    """

    def __init__(
        self,
        app: ASGIApp,
        most_bytes: int,
        *,
        log: Callable[[Scope, Refusal], None] = log_refusal,
    ) -> None:
        if most_bytes < 1:
            raise SettingError(f"the largest body must have at least one byte, got {most_bytes}")
        self._app = app
        self._most = most_bytes
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = _declared_bytes(scope)
        if declared is None:
            await self._counted(scope, receive, send)
        elif declared <= self._most:
            await self._app(scope, receive, send)  # the server passes on no more than declared
        else:
            await self._refuse(f"{declared}", scope, receive, send)

    async def _counted(self, scope: Scope, receive: Receive, send: Send) -> None:
        came, is_over, has_begun = 0, False, False

        async def count() -> Message:
            nonlocal came, is_over
            message = await receive()
            came += len(message.get("body", b""))
            if came > self._most:
                is_over = True
                raise TooLarge(_sentence(self._most, "more"))
            return message

        async def watch(message: Message) -> None:
            nonlocal has_begun
            if is_over and not has_begun and message.get("status") != TooLarge.status:
                return
            has_begun = True
            await send(message)

        try:
            await self._app(scope, count, watch)
        except TooLarge:
            if has_begun or not is_over:
                raise
        if is_over and not has_begun:
            await self._refuse("more", scope, receive, send)

    async def _refuse(self, came: str, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = TooLarge(_sentence(self._most, came))
        self._log(scope, refusal)
        await response_to(scope, refusal)(scope, receive, send)


def _declared_bytes(scope: Scope) -> int | None:
    """The Content-Length; None if it is absent, no number, or overridden by Transfer-Encoding."""
    declared = None
    for name, value in scope["headers"]:
        if name == b"transfer-encoding":
            return None
        if name == b"content-length":
            declared = int(value) if value.isdigit() else None
    return declared


def _sentence(most: int, came: str) -> str:
    return f"wanted a body of at most {most} bytes, got {came}"
