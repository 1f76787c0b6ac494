"""The client of an application: calls to the active participant, with a deadline."""

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
)
from vfbandits.transport.rpc.dialling import Route
from vfbandits.transport.rpc.tls import TlsFiles
from vfbandits.transport.rpc.unary import UnaryCalls


class ApplicationClient:
    """Asks the active participant; see ``Route`` for the arguments, ``UnaryCalls`` for errors."""

    def __init__(
        self, address: str, *, tls: TlsFiles | None, name: str, role: str, server_name: str = ""
    ) -> None:
        self._calls = UnaryCalls(Route(address, tls, name, role, server_name))

    async def decide(self, request: DecideRequest, *, timeout_s: float) -> DecideReply:
        """Choose an arm."""
        return await self._calls.call(DECIDE, request, timeout_s)

    async def reward(self, request: RewardRequest, *, timeout_s: float) -> RewardReply:
        """Report the reward of a decision."""
        return await self._calls.call(REWARD, request, timeout_s)

    async def status(self, request: StatusRequest, *, timeout_s: float) -> StatusReply:
        """The state of the federation."""
        return await self._calls.call(STATUS, request, timeout_s)

    async def change(self, request: ChangeRequest, *, timeout_s: float) -> ChangeReply:
        """Move the federation to the next mask epoch; for operators."""
        return await self._calls.call(CHANGE, request, timeout_s)

    async def gather(self, request: GatherRequest, *, timeout_s: float) -> GatherReplies:
        """The masked contexts of decisions; for the active participant's own processes.

        An outcome for each request, in their order.
        """
        return await self._calls.call(GATHER, request, timeout_s)

    async def close(self) -> None:
        """Close the connection."""
        await self._calls.close()
