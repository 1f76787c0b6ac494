"""A request to rank, and the contexts that it is decided on."""

from dataclasses import dataclass, field

from vfbandits.core.arrays import Matrix
from vfbandits.core.context import Split


@dataclass(slots=True)
class Query:
    """A request to rank.

    Attributes
    ----------
    user, arms
        Whom an arm is chosen for, and among which.
    event_id
        The idempotency key that the application gave; None for an id that is drawn.
    own, arm_features
        Features that came with the request, as bytes of float64; empty where they are looked up.
    baseline
        Position of the arm that is shown without us.
    activate
        Whether the arm is shown immediately; if not, the event is held until it is activated.
    trial
        Number of the parity run that it belongs to; 0 for a decision that counts.
    """

    user: str
    arms: tuple[str, ...]
    event_id: str | None = None
    own: bytes = field(default=b"", repr=False)
    arm_features: bytes = field(default=b"", repr=False)
    baseline: int = 0
    activate: bool = True
    trial: int = 0


@dataclass(slots=True, eq=False)
class Contexts:
    """The masked contexts of one query, and whose features are in them.

    Attributes
    ----------
    rows
        (n_arms, dim), or (1, dim) where the layout has one context for all arms.
    arm_features
        What is known of the arms, in layout "outer".
    contributors, missing
        Participants whose features counted, and those whose did not come.
    split
        Whose columns are which; None behind a mask that mixes them.
    bytes_received
        What the participants sent for it.
    epoch
        Of the masks that the rows are behind; None on secret shares, where the words have an epoch.
    """

    rows: Matrix = field(repr=False)
    contributors: tuple[str, ...]
    missing: tuple[str, ...] = ()
    arm_features: Matrix | None = field(default=None, repr=False)
    split: Split | None = None
    bytes_received: int = 0
    epoch: int | None = None
