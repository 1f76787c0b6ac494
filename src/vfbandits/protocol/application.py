"""What applications and operators ask of the active participant."""

from dataclasses import dataclass, field
from typing import TypeAlias

from vfbandits.errors import VFBanditsError


@dataclass(frozen=True, slots=True)
class DecideRequest:
    """Choose one of ``arms`` for ``user``.

    ``own`` is the active participant's own block for this decision, raw little-endian float64; if
    it is empty its feature store is asked.  ``arm_features`` (n_arms × arm_dim) go with layout
    "outer".  ``event_id`` names the decision, or is empty.  ``trial`` as in ``Ask``.
    ``campaign`` is set where contexts are gathered, and empty elsewhere.
    """

    user: str
    arms: tuple[str, ...]
    own: bytes = field(default=b"", repr=False)
    arm_features: bytes = field(default=b"", repr=False)
    event_id: str = ""
    trial: int = 0
    campaign: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class DecideReply:
    """A decision.  ``scores`` and ``means`` are raw float64, one per arm.

    ``contributors`` are the participants whose features counted; ``bytes_received`` is what the
    passive ones sent for it, its fraction of a batch.
    """

    event_id: str
    arm: str
    index: int
    probability: float
    scores: bytes = field(repr=False)
    means: bytes = field(repr=False)
    contributors: tuple[str, ...]
    epoch: int
    bytes_received: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RewardRequest:
    """The reward of a decision."""

    event_id: str
    value: float
    trial: int = 0


@dataclass(frozen=True, slots=True)
class RewardReply:
    """Whether it was learnt now; False if this very reward was learnt before."""

    learnt: bool


@dataclass(frozen=True, slots=True)
class StatusRequest:
    """Ask for the state of the federation."""


@dataclass(frozen=True, slots=True)
class StatusReply:
    """A JSON document of ids, counts and durations."""

    document: str


@dataclass(frozen=True, slots=True)
class ChangeRequest:
    """Move a live federation to the next mask epoch (operators only).

    ``roster`` is a signed roster, or empty to keep the one in force.  ``envelopes`` hold a sealed
    share for each participant by name, with dense masks.
    """

    roster: bytes = field(default=b"", repr=False)
    envelopes: dict[str, bytes] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ChangeReply:
    """The epoch and roster in force now."""

    epoch: int
    roster: str


@dataclass(frozen=True, slots=True)
class GatherRequest:
    """Decisions whose contexts are gathered in one batch; an error for an invalid request."""

    requests: tuple[DecideRequest | VFBanditsError, ...]


@dataclass(frozen=True, slots=True, eq=False)
class GatherReply:
    """The masked contexts of one decision, for another process of the active participant.

    ``rows`` is raw float64, one row for each arm or one of the user, behind the masks of ``epoch``.
    ``contributors`` and ``bytes_received`` as in ``DecideReply``.
    """

    rows: bytes = field(repr=False)
    contributors: tuple[str, ...]
    epoch: int
    bytes_received: int


GatherOutcome: TypeAlias = GatherReply | VFBanditsError


@dataclass(frozen=True, slots=True, eq=False)
class GatherReplies:
    """The outcome of each request of a ``GatherRequest``, in order; each fails alone."""

    outcomes: tuple[GatherOutcome, ...]
