"""What the active participant does for applications and operators, as its port sees it."""

from typing import Protocol

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
from vfbandits.transport.channel import Peer


class Calls(Protocol):
    """Implementations decide who may call what: the port only identifies the caller."""

    async def decide(self, peer: Peer, request: DecideRequest, /) -> DecideReply:
        """Choose an arm."""
        ...

    async def reward(self, peer: Peer, request: RewardRequest, /) -> RewardReply:
        """Learn from a reward."""
        ...

    async def status(self, peer: Peer, request: StatusRequest, /) -> StatusReply:
        """The state of the federation."""
        ...

    async def change(self, peer: Peer, request: ChangeRequest, /) -> ChangeReply:
        """Move to the next mask epoch."""
        ...

    async def gather(self, peer: Peer, request: GatherRequest, /) -> GatherReplies:
        """Gather the masked contexts of decisions that another process makes."""
        ...
