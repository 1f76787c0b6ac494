"""Instructions of a role to the process around it, to be carried out in order.

Those that every decision needs are named tuples: immutable like the others, and faster to make.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, Never, TypeAlias

from vfbandits.core.arrays import Matrix
from vfbandits.core.mask import MaskShare
from vfbandits.core.move import Remask
from vfbandits.core.pads import Stamp
from vfbandits.protocol.messages import Answer, Ask, Declined, Help, Helped, ToActive, ToPassive

Facts: TypeAlias = dict[str, str | int | float]
NONE: Final[Mapping[str, Never]] = MappingProxyType({})


class Send(NamedTuple):
    """Send a message to a passive participant."""

    to: str
    message: ToPassive


@dataclass(frozen=True, slots=True)
class Close:
    """Close the stream of a passive participant, after what was sent before."""

    to: str


class Gathered(NamedTuple):
    """A round is complete: masked contexts (n_rows, dim), zeros for those that did not come.

    On secret shares ``contexts`` are the active participant's own masked rows alone, and ``blocks``
    are words under masks of both servers.

    ``alone`` are places of users whose rows have the features of the active participant only,
    although others have answered.

    For watching features: ``blocks`` are the masked rows that each sent, ``total`` is their sum
    where sums are secure, and ``unknown`` counts rows of users without features, by participant.
    """

    round: int
    contexts: Matrix
    contributors: tuple[str, ...]
    bytes_received: int
    alone: frozenset[int] = frozenset()
    blocks: Mapping[str, Matrix] = NONE
    total: Matrix | None = None
    unknown: Mapping[str, int] = NONE
    is_trial: bool = False

    def __repr__(self) -> str:
        """Numbers and names; the contexts stay inside."""
        return f"Gathered(round={self.round}, contributors={self.contributors})"


@dataclass(frozen=True, slots=True, eq=False)
class Changed:
    """Every part of a mask change has come; ``finish_change`` puts it into force."""

    epoch: int
    remask: Remask = field(repr=False)


@dataclass(frozen=True, slots=True)
class ChangeFailed:
    """A mask change was given up; nothing has changed."""

    epoch: int
    reason: str


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the log, and one more in the counter of its event."""

    event: str
    facts: Facts = field(default_factory=dict)


class Reply(NamedTuple):
    """Send a message to the active participant."""

    message: ToActive


class Fetch(NamedTuple):
    """Look up the features of these rows, then call ``answer``."""

    ask: Ask


@dataclass(frozen=True, slots=True, eq=False)
class Keep:
    """Write this message to the outbox before it is sent: it is the only one under its stamp.

    ``asked`` and ``senders`` are the digest of what was asked, and of whom.
    """

    stamp: Stamp
    senders: tuple[str, ...]
    answer: Answer | Declined
    asked: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Resend:
    """Send the very bytes that the outbox has for this ask, or decline.

    With "lost_bytes" if there are none under ``stamp``, and with "pads" if those are for another
    ask: ``asked`` is the digest of this one.
    """

    stamp: Stamp
    ask: Ask
    asked: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class StoreShare:
    """Write a share of the mask, and the signed roster that goes with it, before going on."""

    epoch: int
    share: MaskShare = field(repr=False)
    roster: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class StoreSecrets:
    """Write what the dealer of secret shares made for an epoch, sealed as it came."""

    epoch: int
    envelope: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class DropShares:
    """Shares of all epochs but this one are no longer needed."""

    keep: int


ActiveInstruction: TypeAlias = Send | Close | Gathered | Helped | Changed | ChangeFailed | LogLine
HelperInstruction: TypeAlias = Reply | Help | StoreShare | StoreSecrets | DropShares | LogLine
PassiveInstruction: TypeAlias = (
    Reply | Fetch | Keep | Resend | Help | StoreShare | StoreSecrets | DropShares | LogLine
)
