"""A log of bandit decisions: contexts, chosen arms, their probabilities, and rewards."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vfbandits.core.arrays import Matrix, Vector, as_array, frobenius
from vfbandits.core.decision import ArmId
from vfbandits.core.layout import LAYOUTS
from vfbandits.errors import ArmError, ContextError, RewardError, SettingError, VFBanditsError

Indices: TypeAlias = NDArray[np.intp]
Keep: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LoggedBandit:
    """Rounds in the order in which they were played.  Make it with ``of``.

    Attributes
    ----------
    contexts
        (n, n_arms, dim) in layout "per_arm", (n, dim) in "outer" and "disjoint".
    chosen
        Position in ``arms`` of the arm that was played, (n,).
    rewards, probabilities
        The reward of that arm, and the probability of the logging policy to play it, (n,) each.
    arms
        Ids of all arms.
    arm_features
        (n_arms, arm_dim) in layout "outer", or (n, n_arms, arm_dim) where they change from round to
        round; otherwise None.
    owners
        For each column of a context the participant that holds it, the active one first; None if
        it is not known.
    offered
        Which arms could be played in each round, (n, n_arms); None where all could.  Contexts and
        features of the others may be anything.

    Not checked, because a log cannot show it: that ``probabilities`` are the true ones.
    """

    contexts: Matrix = field(repr=False)
    chosen: Indices = field(repr=False)
    rewards: Vector = field(repr=False)
    probabilities: Vector = field(repr=False)
    arms: tuple[ArmId, ...]
    layout: str
    arm_features: Matrix | None = field(default=None, repr=False)
    owners: tuple[str, ...] | None = None
    offered: Keep | None = field(default=None, repr=False)

    @classmethod
    def of(  # noqa: PLR0913  (one argument for each column of a log)
        cls,
        contexts: ArrayLike,
        chosen: ArrayLike,
        *,
        rewards: ArrayLike,
        probabilities: ArrayLike,
        arms: Sequence[ArmId],
        layout: str = "disjoint",
        arm_features: ArrayLike | None = None,
        owners: Sequence[str] | None = None,
        offered: ArrayLike | None = None,
    ) -> Self:
        """Check everything once; the first bad row is named, counted from 0.

        >>> LoggedBandit.of([[1.0], [2.0]], [0, 1], rewards=[0, 1], probabilities=[0.5, 0.5],
        ...                 arms=["tea", "coffee"])
        LoggedBandit(arms=('tea', 'coffee'), layout='disjoint', owners=None)
        """
        ids = _arms(arms)
        if layout not in LAYOUTS:
            raise SettingError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
        rows = _contexts(contexts, layout=layout, n_arms=len(ids))
        index = np.asarray(chosen)
        if index.dtype.kind not in "iu" or index.ndim != 1:
            raise ArmError(f"chosen must be positions in arms, (n,), got dtype {index.dtype}")
        log = cls(
            contexts=rows,
            chosen=index.astype(np.intp),
            rewards=_column(rewards, "rewards", RewardError),
            probabilities=_column(probabilities, "probabilities", SettingError),
            arms=ids,
            layout=layout,
            arm_features=_arm_features(arm_features, layout=layout, n_arms=len(ids)),
            owners=None if owners is None else tuple(owners),
            offered=None if offered is None else np.asarray(offered, dtype=np.bool_),
        )
        log._check()
        return log

    def __len__(self) -> int:
        """Number of rounds."""
        return len(self.chosen)

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.arms)

    @property
    def dim(self) -> int:
        """Width of a context."""
        return int(self.contexts.shape[-1])

    @property
    def value(self) -> float:
        """The logging policy's own value: the mean reward."""
        return float(self.rewards.mean())

    @property
    def is_uniform(self) -> bool:
        """Whether every arm on offer was played with probability 1/K, up to rounding."""
        n_offered = self.n_arms if self.offered is None else self.offered.sum(axis=1)
        return bool(np.allclose(self.probabilities, 1.0 / n_offered, rtol=1e-6, atol=0.0))

    @property
    def has_one_offer(self) -> bool:
        """Whether arms and their features are the same in all rounds."""
        return self.offered is None and (self.arm_features is None or self.arm_features.ndim == 2)

    def offer(self, number: int) -> Indices:
        """Positions of the arms that could be played in round ``number``."""
        if self.offered is None:
            return np.arange(self.n_arms)
        return np.flatnonzero(self.offered[number])

    def features_of(self, rounds: int | slice | Indices) -> Matrix | None:
        """Features of all arms in a round, (n_arms, arm_dim), or in several."""
        if self.arm_features is None or self.arm_features.ndim == 2:
            return self.arm_features
        return self.arm_features[rounds]

    @property
    def widths(self) -> dict[str, int]:
        """Participants and how many columns each holds, as a ``Federation`` wants them."""
        if self.owners is None:
            raise SettingError(
                "a federation needs to know who holds which column, got a log without owners"
            )
        return {name: self.owners.count(name) for name in dict.fromkeys(self.owners)}

    def blocks(self, contexts: Matrix) -> dict[str, Matrix]:
        """Some of this log's contexts, cut into each owner's columns."""
        owners = np.array(self.owners)
        return {name: np.ascontiguousarray(contexts[..., owners == name]) for name in self.widths}

    def select(self, rounds: slice | Indices) -> Self:
        """The log of some of the rounds."""
        return replace(
            self,
            contexts=self.contexts[rounds],
            chosen=self.chosen[rounds],
            rewards=self.rewards[rounds],
            probabilities=self.probabilities[rounds],
            arm_features=self.features_of(rounds),
            offered=None if self.offered is None else self.offered[rounds],
        )

    def _check(self) -> None:
        n = len(self.contexts)
        for name in ("chosen", "rewards", "probabilities"):
            length = len(getattr(self, name))
            if length != n:
                raise SettingError(f"{name} must have one entry per round, {n}, got {length}")
        if n == 0:
            raise SettingError("a log must have at least one round, got none")
        if (bad := _first((self.chosen < 0) | (self.chosen >= self.n_arms))) is not None:
            raise ArmError(
                f"chosen must be positions from 0 to {self.n_arms - 1}, "
                f"got {self.chosen[bad]} in round {bad}"
            )
        self._check_offer()
        p = self.probabilities
        if (bad := _first(~((p > 0.0) & (p <= 1.0)))) is not None:
            raise SettingError(f"probabilities must be in (0, 1], got {p[bad]} in round {bad}")
        if self.owners is not None and len(self.owners) != self.dim:
            raise SettingError(
                f"owners must name one participant for each of {self.dim} columns, "
                f"got {len(self.owners)}"
            )

    def _check_offer(self) -> None:
        n, features, offered = len(self.contexts), self.arm_features, self.offered
        if features is not None and features.ndim == 3 and len(features) != n:
            raise ArmError(f"arm_features must have one block per round, {n}, got {len(features)}")
        if offered is None:
            return
        if offered.shape != (n, self.n_arms):
            raise ArmError(f"offered must be ({n}, {self.n_arms}), got {offered.shape}")
        if (bad := _first(~offered[np.arange(n), self.chosen])) is not None:
            raise ArmError(
                f"chosen must be an arm on offer, got {self.arms[self.chosen[bad]]!r} in round "
                f"{bad}, which was not"
            )


def _first(is_bad: NDArray[np.bool_]) -> int | None:
    return int(is_bad.argmax()) if is_bad.any() else None


def _arms(arms: Sequence[ArmId]) -> tuple[ArmId, ...]:
    ids = tuple(arms)
    if not ids or len(set(ids)) != len(ids):
        raise ArmError(f"arms must be different ids, at least one, got {ids!r}")
    return ids


def _contexts(contexts: ArrayLike, *, layout: str, n_arms: int) -> Matrix:
    ndim = 3 if layout == "per_arm" else 2
    shape = np.shape(contexts)
    width = shape[-1] if shape else 0
    rows = as_array(contexts, ndim=ndim, width=width, what="contexts")
    if ndim == 3 and rows.shape[1] != n_arms:
        raise ContextError(f"contexts must have a row for each of {n_arms} arms, got {rows.shape}")
    if width == 0:
        raise ContextError(f"contexts must have at least one column, got shape {rows.shape}")
    frobenius(rows, what="contexts")
    return rows


def _arm_features(value: ArrayLike | None, *, layout: str, n_arms: int) -> Matrix | None:
    if (value is not None) != (layout == "outer"):
        got = "none" if value is None else "some"
        raise ArmError(
            f"arm_features go with layout 'outer' alone; layout is {layout!r}, got {got}"
        )
    if value is None:
        return None
    shape = np.shape(value)
    ndim = 3 if len(shape) == 3 else 2
    features = as_array(value, ndim=ndim, width=shape[-1] if shape else 0, what="arm_features")
    if features.shape[-2] != n_arms:
        raise ArmError(
            f"arm_features must have a row for each of {n_arms} arms, got {features.shape[-2]}"
        )
    frobenius(features, what="arm_features")
    return features


def _column(values: ArrayLike, what: str, error: type[VFBanditsError]) -> Vector:
    column = np.asarray(values)
    if column.ndim != 1 or column.dtype.kind not in "fiub":
        raise error(f"{what} must be numbers, (n,), got {column.dtype} of shape {column.shape}")
    column = column.astype(np.float64)
    if (bad := _first(~np.isfinite(column))) is not None:
        raise error(f"{what} must be finite, got {column[bad]} in round {bad}")
    return column
