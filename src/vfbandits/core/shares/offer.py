"""The arms of a decision in the layouts in which participants share one row for all of them.

``disjoint``: a context is e_b ⊗ u, where b is the number of the arm's block.  A numbers arms in the
order in which it first offers them.  Words are dealt for every block, and the arms on offer are
those positions of the secret order that are live: B learns how many blocks are in use and how many
arms are on offer, and not which.

``outer``: a context is u ⊗ w, where w are features of the arm that only A knows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, as_array
from vfbandits.core.decision import ArmId
from vfbandits.core.layout.base import as_arms, refuse_arm_features, refuse_empty
from vfbandits.core.layout.disjoint import arm_ids
from vfbandits.core.ring import Words, encode
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import ArmError


@dataclass(frozen=True, slots=True, eq=False)
class Offer:
    """The arms of one decision: numbers of their blocks, or their features (n_arms, arm_dim)."""

    blocks: tuple[int, ...] = ()
    n_blocks: int = 0
    features: Matrix | None = field(default=None, repr=False)

    @property
    def n_arms(self) -> int:
        """How many arms are on offer."""
        return len(self.blocks) if self.features is None else len(self.features)


class ArmBlocks:
    """Which block of the state is an arm's: numbers in the order of first use, for ever.

    >>> blocks = ArmBlocks(3)
    >>> blocks.numbers(["tea", "milk"]), blocks.numbers(["milk", "soup"])
    ((0, 1), (1, 2))
    >>> blocks.numbers(["rice"])
    Traceback (most recent call last):
    vfbandits.errors.ArmError: layout 'disjoint' on secret shares has words dealt for \
max_arms=3 arms in all, and all blocks are in use; got the new arm 'rice'
    """

    def __init__(self, max_arms: int, arms: Iterable[ArmId] = ()) -> None:
        self._max_arms = max_arms
        self._numbers = {arm: number for number, arm in enumerate(arms)}

    def __len__(self) -> int:
        """How many blocks are in use."""
        return len(self._numbers)

    def new(self, arms: Sequence[ArmId]) -> list[ArmId]:
        """Those that have no block yet; refused if there are not enough blocks."""
        new = [arm for arm in arms if arm not in self._numbers]
        if len(self) + len(new) > self._max_arms:
            raise ArmError(
                f"layout 'disjoint' on secret shares has words dealt for max_arms={self._max_arms} "
                "arms in all, and all blocks are in use; got the new arm "
                f"{new[self._max_arms - len(self)]!r}"
            )
        return new

    def numbers(self, arms: Sequence[ArmId]) -> tuple[int, ...]:
        """The block of each arm; new arms take the next ones."""
        for arm in self.new(arms):
            self._numbers[arm] = len(self._numbers)
        return tuple(self._numbers[arm] for arm in arms)

    def offer(self, arms: Sequence[ArmId]) -> Offer:
        """These arms, for one decision."""
        return Offer(self.numbers(arms), len(self))


def checked_arms(
    terms: ShareTerms, arms: Sequence[ArmId] | None, arm_features: ArrayLike | None
) -> tuple[tuple[ArmId, ...] | None, Matrix | None]:
    """Ids and features of the arms of a decision, as the layout needs them."""
    if terms.layout == "disjoint":
        return arm_ids(arms, arm_features), None
    if terms.layout == "per_arm":
        refuse_arm_features(arm_features)
        return (None if arms is None else as_arms(arms)), None
    if arm_features is None:
        raise ArmError(f"layout 'outer' needs arm_features (n_arms, {terms.arm_dim}), got none")
    W = as_array(arm_features, ndim=2, width=terms.arm_dim, what="arm_features")
    refuse_empty(W)
    longest = float(np.linalg.norm(W, axis=1).max())
    if not longest <= terms.arm_bound * (1.0 + 1e-12):
        raise ArmError(
            f"rows of arm_features must be at most {terms.arm_bound:g} long on secret shares, the "
            f"declared arm_bound, got {longest:g}"
        )
    if len(W) > terms.max_arms:
        raise ArmError(
            f"a decision on secret shares has at most max_arms={terms.max_arms} arms, got {len(W)}"
        )
    return (None if arms is None else as_arms(arms, len(W))), W


def with_ones(terms: ShareTerms, features: Matrix) -> Matrix:
    """Arm features with the constant of an intercept, (n_arms, arm_width)."""
    return np.hstack((np.ones((len(features), int(terms.intercept))), features))


def feature_words(terms: ShareTerms, features: Matrix) -> Words:
    """Arm features as they are shared: at most 1 long, (n_arms, arm_width)."""
    rows = with_ones(terms, features) / terms.arm_length
    return encode(rows, bound=1.0 + 1e-9, what="arm_features")
