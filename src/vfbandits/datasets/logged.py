"""Rounds that another policy played, which an offline evaluation replays."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.evaluate.log import LoggedBandit


@dataclass(frozen=True, slots=True, eq=False)
class LoggedRounds:
    """Consecutive rounds: users (n, dim), arms taken (n,) from 0, clicks (n,) of 0 and 1."""

    users: Matrix = field(repr=False)
    arms: NDArray[np.intp] = field(repr=False)
    clicks: Vector = field(repr=False)

    def __len__(self) -> int:
        """How many rounds."""
        return len(self.arms)

    def as_uniform_log(self, n_arms: int, *, arm_features: Matrix | None = None) -> LoggedBandit:
        """The same rounds for ``evaluate/``, each with probability 1/n_arms.

        Right for logs that were uniform, as the simulated ones are, and wrong for Criteo's own.
        With ``arm_features`` the layout is "outer", without it "disjoint".
        """
        return LoggedBandit.of(
            self.users,
            self.arms,
            rewards=self.clicks,
            probabilities=np.full(len(self), 1.0 / n_arms),
            arms=range(n_arms),
            layout="disjoint" if arm_features is None else "outer",
            arm_features=arm_features,
        )
