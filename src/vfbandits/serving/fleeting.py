"""A model that lives in memory only: for trials, and where nothing needs to survive a restart."""

from collections.abc import Callable, Sequence

from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix
from vfbandits.core.bandit import ALONE, Bandit
from vfbandits.core.decision import ArmId, Decision, DecisionId
from vfbandits.journal.fold import remask


class FleetingBandit:
    """Behaves as ``DurableBandit`` does, without a log."""

    def __init__(self, make_bandit: Callable[[], Bandit], *, epoch: int, note: bytes) -> None:
        self.bandit = make_bandit()
        self.epoch = epoch
        self.note = note
        self.since_snapshot = 0
        self.n_decisions = 0
        self.n_rewards = 0

    @property
    def n_pending(self) -> int:
        """Decisions that wait for a reward."""
        return len(self.bandit.open_decisions)

    async def decide(
        self,
        contexts: ArrayLike,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        decision_id: str | None = None,
        contributors: tuple[str, ...] = ALONE,
        user: str | None = None,
    ) -> Decision:
        """Choose an arm, as ``Bandit.decide``."""
        del user
        decision = self.bandit.decide(
            contexts,
            arms=arms,
            arm_features=arm_features,
            decision_id=decision_id,
            contributors=contributors,
        )
        self.n_decisions += 1
        return decision

    async def reward(self, decision: Decision | DecisionId, value: float) -> bool:
        """Learn a reward, as ``Bandit.reward``."""
        is_new = self.bandit.reward(decision, value)
        self.n_rewards += is_new
        return is_new

    async def move(self, matrix: Matrix, *, epoch: int, note: bytes = b"") -> None:
        """Carry all that was learnt to the masks of a later epoch."""
        self.bandit.move(remask(matrix))
        self.epoch, self.note = epoch, note

    async def snapshot(self) -> int:
        """Nothing to write."""
        return 0

    async def close(self) -> None:
        """Nothing to give back."""
