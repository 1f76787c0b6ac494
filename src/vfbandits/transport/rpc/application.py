"""An application's way to the active participant: calls with a deadline."""

from typing import Final, TypeAlias, TypeVar

import grpc

from vfbandits.protocol.application import (
    ChangeReply,
    ChangeRequest,
    DecideReply,
    DecideRequest,
    GatherReplies,
    GatherRequest,
    RewardReply,
    RewardRequest,
    StatusReply,
    StatusRequest,
)
from vfbandits.transport.rpc.application_codec import (
    CHANGE,
    DECIDE,
    GATHER,
    REWARD,
    STATUS,
    Method,
)
from vfbandits.transport.rpc.dialling import Route
from vfbandits.transport.rpc.tls import TlsFiles

BACK_OFF_MS: Final = 100

Call: TypeAlias = grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
Q = TypeVar("Q")
R = TypeVar("R")


class ApplicationClient:
    """Asks the active participant; see ``Route`` for the arguments.

    One connection serves all calls, and is made again when it broke, with the certificate that was
    read for the first one.  An error that is about the request comes back as the class it has
    there; LinkError if there is no answer.
    """

    def __init__(
        self, address: str, *, tls: TlsFiles | None, name: str, role: str, server_name: str = ""
    ) -> None:
        self._route = Route(address, tls, name, role, server_name)
        self._channel: grpc.aio.Channel | None = None

    async def decide(self, request: DecideRequest, *, timeout_s: float) -> DecideReply:
        """Choose an arm."""
        return await self._call(DECIDE, request, timeout_s)

    async def reward(self, request: RewardRequest, *, timeout_s: float) -> RewardReply:
        """Bring the reward of a decision."""
        return await self._call(REWARD, request, timeout_s)

    async def status(self, request: StatusRequest, *, timeout_s: float) -> StatusReply:
        """How the federation is."""
        return await self._call(STATUS, request, timeout_s)

    async def change(self, request: ChangeRequest, *, timeout_s: float) -> ChangeReply:
        """Move the federation to the next mask epoch; for operators."""
        return await self._call(CHANGE, request, timeout_s)

    async def gather(self, request: GatherRequest, *, timeout_s: float) -> GatherReplies:
        """The masked contexts of decisions; for the active participant's own processes.

        An outcome for each request, in their order.
        """
        return await self._call(GATHER, request, timeout_s)

    async def close(self) -> None:
        """Give the connection back."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _call(self, method: Method[Q, R], request: Q, timeout_s: float) -> R:
        data = method.request.encode(request)
        if self._channel is None:
            self._channel = self._route.open(back_off_ms=BACK_OFF_MS)
        call: Call = self._channel.unary_unary(method.path)
        try:
            reply = await call(data, timeout=timeout_s, metadata=self._route.metadata)
        except grpc.aio.AioRpcError as error:
            raise self._route.failure(error) from error
        return method.reply.decode(reply)
