"""A bandit in the Criteo experiment: some of the user's features, and one of the two contexts.

With outer addition, theta·x = α·u + β·w: the user's part is the same for all arms, and the greedy
arm is the same for all users.  It is what the paper did.  The outer product is what personalises.
"""

import math
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.decision import Decision
from vfbandits.core.policy.base import Policy
from vfbandits.errors import DatasetError

Context: TypeAlias = Literal["addition", "product"]


class CriteoPlayer:
    """A bandit that is fed users (n_features,) and knows the arms (n_arms, arm_dim).

    "addition" is the paper's context; "product" is [1; u] ⊗ [1; w], in layout "outer".
    """

    def __init__(
        self,
        policy: Policy,
        n_features: int,
        arm_features: Matrix,
        *,
        context: Context,
        seed: int,
    ) -> None:
        arm_dim = arm_features.shape[1]
        self._arm_features = arm_features
        self._adds = context == "addition"
        if self._adds:
            self.bandit = Bandit(policy, dim=n_features * arm_dim, seed=seed)
        elif context == "product":
            self.bandit = Bandit(
                policy, dim=n_features, layout="outer", arm_dim=arm_dim, intercept=True, seed=seed
            )
        else:
            raise DatasetError(f"context must be 'addition' or 'product', got {context!r}")

    def decide(self, user: Vector) -> Decision:
        """Choose an arm."""
        if self._adds:
            return self.bandit.decide(outer_addition(user, self._arm_features))
        return self.bandit.decide(user, arm_features=self._arm_features)


def outer_addition(user: Vector, arm_features: Matrix) -> Matrix:
    """Rows with the entries u_i + w_j of each arm, (n_arms, n_user·n_arm_features).

    >>> import numpy as np
    >>> outer_addition(np.array([1.0, 2.0]), np.array([[10.0, 20.0]])).tolist()
    [[11.0, 21.0, 12.0, 22.0]]
    """
    sums = user[:, None] + arm_features[:, None, :]
    return sums.reshape(len(arm_features), -1)


def part_of_features(n_features: int, ratio: float, seed: int) -> NDArray[np.intp]:
    """A random subset of ⌈ratio·n⌉ columns, in order.

    >>> len(part_of_features(10, 0.2, seed=0)), len(part_of_features(10, 1.0, seed=0))
    (2, 10)
    """
    if not 0.0 < ratio <= 1.0:
        raise DatasetError(f"ratio must be above 0 and at most 1, got {ratio}")
    count = math.ceil(round(ratio * n_features, 9))
    rng = np.random.default_rng(seed)
    return np.sort(rng.choice(n_features, size=count, replace=False))
