"""A passive participant that is connected, as the active one sees it."""

from dataclasses import dataclass

from vfbandits.core.noise import VectorNoise
from vfbandits.protocol.circuit import Circuit
from vfbandits.protocol.instructions import ActiveInstruction, LogLine, Send
from vfbandits.protocol.messages import Ping
from vfbandits.protocol.version import SPOKEN


@dataclass(slots=True)
class Seat:
    """The circuit of a participant, and its pings, of which only the latest counts.

    ``protocol`` is the version of the protocol that its stream speaks, and ``noise`` what it says
    that it adds to its vectors.
    """

    name: str
    circuit: Circuit
    pinged_at: float
    protocol: int = SPOKEN.highest
    noise: VectorNoise | None = None
    pings: int = 0
    is_pinged: bool = False

    def strike(self) -> list[ActiveInstruction]:
        """Count a failure to answer."""
        if self.circuit.fail():
            return [LogLine("circuit_opened", {"participant": self.name})]
        return []

    def ping(self, now: float, *, every_s: float) -> list[ActiveInstruction]:
        """Ping it if its circuit is open and a ping is due."""
        if not self.circuit.is_open or now < self.pinged_at + every_s:
            return []
        self.pings += 1
        self.pinged_at = now
        self.is_pinged = True
        return [Send(self.name, Ping(self.pings))]

    def pong(self, number: int) -> list[ActiveInstruction]:
        """Handle the answer to a ping."""
        if not self.circuit.is_open or not self.is_pinged or number != self.pings:
            return []
        self.is_pinged = False
        self.circuit.succeed()
        return [LogLine("circuit_closed", {"participant": self.name})]
