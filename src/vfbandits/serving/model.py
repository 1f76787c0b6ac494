"""What learns at the active participant, as its service sees it."""

from collections.abc import Sequence
from typing import Protocol

from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix
from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import ArmId, Decision, DecisionId


class Model(Protocol):
    """What learns: ``DurableBandit`` or ``FleetingBandit``."""

    @property
    def bandit(self) -> Bandit:
        """The bandit in memory, for reading."""
        ...

    @property
    def epoch(self) -> int:
        """Of the masks that contexts must be behind."""
        ...

    @property
    def note(self) -> bytes:
        """What the last ``move`` left: the signed roster in force."""
        ...

    @property
    def since_snapshot(self) -> int:
        """Events that a restart would replay."""
        ...

    @property
    def n_decisions(self) -> int:
        """Decisions since it was opened."""
        ...

    @property
    def n_rewards(self) -> int:
        """Rewards learnt since it was opened."""
        ...

    @property
    def n_pending(self) -> int:
        """Decisions that wait for a reward."""
        ...

    async def decide(
        self,
        contexts: ArrayLike,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        decision_id: str | None = None,
        contributors: tuple[str, ...] = ...,
        user: str | None = None,
    ) -> Decision:
        """Choose an arm."""
        ...

    async def reward(self, decision: Decision | DecisionId, value: float) -> bool:
        """Learn a reward once."""
        ...

    async def move(self, matrix: Matrix, *, epoch: int, note: bytes = b"") -> None:
        """Carry what was learnt to another epoch."""
        ...

    async def snapshot(self) -> int:
        """Write down where it stands."""
        ...

    async def close(self) -> None:
        """Finish what is under way."""
        ...
