"""A reward finds its decision: late, out of order, twice or never.

The ledger keeps, for each open decision, the context that was chosen *then*.  A reward is learnt
once: the same value again changes nothing, another value is refused.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from numbers import Real
from typing import NamedTuple

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.decision import ArmId, DecisionId
from vfbandits.core.settings import whole
from vfbandits.core.snapshot import AnyArray, Record
from vfbandits.errors import RewardError, SettingError, SnapshotError, UnknownDecisionError

REWARD_LIMIT = 1e100


class Observation(NamedTuple):
    """What a decision leaves behind to learn from: the chosen context, and the arm's own model."""

    x: Vector
    model: ArmId | None = None

    def __repr__(self) -> str:
        """Without the context."""
        return f"Observation(model={self.model!r})"


class Ledger:
    """Open decisions, and the rewards of the latest ones that were settled.

    At most ``max_open`` and ``max_settled`` are kept: past that the oldest is forgotten, and a
    reward for it is refused as unknown.  Memory does not grow with the number of rounds.
    """

    __slots__ = ("max_open", "max_settled", "open", "settled")

    def __init__(self, *, max_open: int, max_settled: int) -> None:
        self.max_open = whole(max_open, "max_open")
        self.max_settled = whole(max_settled, "max_settled")
        # A plain dict would look past all that was ever deleted to find its oldest entry.
        self.open: OrderedDict[DecisionId, Observation] = OrderedDict()
        self.settled: OrderedDict[DecisionId, float] = OrderedDict()

    def new_name(self, name: str) -> str:
        """``name`` if it may name a new decision; numbers are the bandit's own."""
        if not isinstance(name, str) or not name:
            raise SettingError(f"decision_id must be text that is not empty, got {name!r}")
        if name in self.open or name in self.settled:
            raise SettingError(f"decision_id must be new, got {name!r}, which was used before")
        return name

    def enter(self, decision_id: DecisionId, observation: Observation) -> None:
        """Open a decision."""
        self.open[decision_id] = observation
        if len(self.open) > self.max_open:
            self.open.popitem(last=False)

    def match(self, decision_id: DecisionId, reward: float) -> Observation | None:
        """What to learn from, or None when this very reward was learnt before."""
        observation = self.open.get(decision_id)
        if observation is not None:
            return observation
        known = self.settled.get(decision_id)
        if known is None:
            raise UnknownDecisionError(
                f"a reward needs an open decision, got id {decision_id!r}, which was never made, "
                f"was forgotten, or is older than the {self.max_open} open and "
                f"{self.max_settled} settled ones that are kept"
            )
        if known != reward:
            raise RewardError(
                f"decision {decision_id!r} already has the reward {known}, got {reward}; "
                "nothing was changed"
            )
        return None

    def settle(self, decision_id: DecisionId, reward: float) -> None:
        """Close a decision with the reward that was learnt."""
        self.open.pop(decision_id, None)
        self.settled[decision_id] = reward
        if len(self.settled) > self.max_settled:
            self.settled.popitem(last=False)

    def resize(self, max_open: int) -> None:
        """Keep so many open decisions from now on; the oldest go first."""
        self.max_open = whole(max_open, "max_open")
        while len(self.open) > self.max_open:
            self.open.popitem(last=False)

    def forget(self, decision_id: DecisionId) -> None:
        """Drop an open decision whose reward will not come."""
        if decision_id not in self.open:
            raise UnknownDecisionError(f"there is no open decision {decision_id!r} to forget")
        del self.open[decision_id]

    def move(self, move: Callable[[Vector], Vector]) -> None:
        """Carry the open contexts along when the state moves to another mask or width."""
        for key, observation in self.open.items():
            self.open[key] = Observation(move(observation.x), observation.model)

    def unpack(self, record: Record, contexts: AnyArray | None) -> None:
        """Take the entries of a snapshot."""
        opened = record.items("open")
        rows = np.zeros((0, 0)) if contexts is None else contexts
        if len(opened) != len(rows):
            raise SnapshotError(f"{len(opened)} decisions are open, got {len(rows)} contexts")
        for entry, x in zip(opened, rows, strict=True):
            key, model = _pair(entry)
            if model is not None and not isinstance(model, int | str):
                raise SnapshotError(f"an arm's id is a number or text, got {model!r}")
            self.open[key] = Observation(np.array(x), model)
        for entry in record.items("settled"):
            key, reward = _pair(entry)
            self.settled[key] = as_reward(reward)

    def __iter__(self) -> Iterator[DecisionId]:
        """Ids of the open decisions, oldest first."""
        return iter(self.open)


def _as_float(value: object) -> float:
    return float(value) if isinstance(value, Real) else math.nan


def _pair(entry: object) -> tuple[DecisionId, object]:
    match entry:
        case [int() | str() as key, value]:
            return key, value
    raise SnapshotError("an entry of the ledger is a decision's id and a value")


def as_reward(value: object) -> float:
    """``value`` as a finite float."""
    number = value if type(value) is float else _as_float(value)
    if abs(number) <= REWARD_LIMIT:
        return number
    raise RewardError(f"a reward must be a finite number up to {REWARD_LIMIT:g}, got {value!r}")
