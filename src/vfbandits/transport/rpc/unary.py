"""Calls with a deadline, over one connection."""

from typing import Final, TypeAlias, TypeVar

import grpc

from vfbandits.transport.rpc.application_codec import Method
from vfbandits.transport.rpc.dialling import Route

BACK_OFF_MS: Final = 100

Call: TypeAlias = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
Q = TypeVar("Q")
R = TypeVar("R")


class UnaryCalls:
    """One connection for all calls, which is made again after it broke.

    It keeps the certificate that was read for the first call.  An error about the request is raised
    with the class that it has at the server; LinkError if there is no answer.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._channel: grpc.aio.Channel | None = None

    async def call(self, method: Method[Q, R], request: Q, timeout_s: float) -> R:
        """Ask, and wait for the answer."""
        data = method.request.encode(request)
        if self._channel is None:
            self._channel = self._route.open(back_off_ms=BACK_OFF_MS)
        call: Call = self._channel.unary_unary(method.path)
        try:
            reply = await call(data, timeout=timeout_s, metadata=self._route.metadata)
        except grpc.aio.AioRpcError as error:
            raise self._route.failure(error) from error
        return method.reply.decode(reply)

    async def close(self) -> None:
        """Close the connection."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()
