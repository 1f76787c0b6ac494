"""Replays a log through a running server, which learns only what its policy would have seen.

A row of a log has the reward of the arm that was shown, and of no other.  So the server is asked
for each row, and the reward is sent only if it chose that arm too (Li et al. 2011).  What is learnt
and the mean reward are then unbiased, *if the log's arms were drawn at random, each with the same
probability*.  If they were not, the rows that agree are a biased sample.

In layout ``per_arm`` a table has a reward for every arm of a user, and each decision has one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import chdtrc

from vfbandits.client import schemas
from vfbandits.core.arrays import Vector
from vfbandits.demo.tables import DISJOINT, LoggedRows, Owners
from vfbandits.errors import FeatureError

CONFIDENT_Z = 1.96
MAX_ARMS = schemas.MAX_ARMS
RANDOM_P = 1e-3  # below this, arms were not shown equally often by chance


class Server(Protocol):
    """The calls of ``vfbandits.client.client.Client`` that a replay makes."""

    def rank(
        self,
        user: str,
        arms: list[str],
        *,
        features: list[float] | None = None,
        activate: bool = True,
    ) -> schemas.RankResponse:
        """Choose an arm."""
        ...

    def activate(self, event_id: str) -> schemas.ActivateResponse:
        """The arm is shown."""
        ...

    def reward(self, event_id: str, value: float) -> schemas.RewardResponse:
        """Its reward."""
        ...


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean with half the width of its 95 % interval, by the normal approximation."""

    value: float
    margin: float
    count: int

    @classmethod
    def of(cls, values: Vector) -> "Mean":
        """Of these values; NaN where there are too few.

        >>> Mean.of(np.array([0.0, 1.0, 1.0, 0.0]))
        Mean(value=0.5, margin=0.565..., count=4)
        """
        n = len(values)
        value = float(values.mean()) if n else float("nan")
        margin = CONFIDENT_Z * float(values.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
        return cls(value, margin, n)


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The result of a replay.

    Attributes
    ----------
    rows
        Rows that were asked for.
    policy
        Mean reward of the rows in which the server chose the arm with a known reward.
    log
        Mean reward of the arms that were shown, or of all arms in layout per_arm.
    shown
        How often each arm was shown.
    evenness
        p-value of the hypothesis that arms were shown equally often; NaN in layout per_arm.
    """

    rows: int
    policy: Mean
    log: Mean
    shown: dict[str, int]
    evenness: float

    @property
    def is_every_reward_known(self) -> bool:
        """Whether no row had to be left out, so that nothing is assumed of the logging policy."""
        return bool(np.isnan(self.evenness))

    @property
    def is_biased(self) -> bool:
        """Whether arms were shown unequally often, so that the replay is biased."""
        return self.evenness < RANDOM_P


def replay(
    server: Server, owners: Owners, *, rows: int, on_row: Callable[[int], None] = lambda _: None
) -> ReplayReport:
    """Ask ``server`` about the first rows of the log, or users in layout per_arm."""
    if owners.log is None:
        raise FeatureError("a replay needs a reward column, got none")
    if owners.layout == DISJOINT:
        return _replay_shown(server, owners.log, rows, on_row)
    return _replay_all(server, owners.log, rows, on_row)


def _replay_shown(
    server: Server, log: LoggedRows, rows: int, on_row: Callable[[int], None]
) -> ReplayReport:
    arms = sorted(set(log.arms))
    _refuse_many(arms)
    earned = []
    n = min(rows, len(log.users))
    for row in range(n):
        # Held: an event that the log cannot reward is never activated, nor learnt from.
        answer = server.rank(log.users[row], arms, features=log.own[row].tolist(), activate=False)
        if answer.arm == log.arms[row]:
            server.activate(answer.event_id)
            server.reward(answer.event_id, float(log.rewards[row]))
            earned.append(log.rewards[row])
        on_row(row + 1)
    shown = {arm: log.arms[:n].count(arm) for arm in arms}
    return ReplayReport(
        n, Mean.of(np.array(earned)), Mean.of(log.rewards[:n]), shown, _evenness(shown)
    )


def _replay_all(
    server: Server, log: LoggedRows, rows: int, on_row: Callable[[int], None]
) -> ReplayReport:
    earned, offered, shown = [], [], dict.fromkeys(sorted(set(log.arms)), 0)
    for place, (user, places) in enumerate(_by_user(log, rows), start=1):
        arms = [log.arms[row] for row in places]
        _refuse_many(arms)
        answer = server.rank(user, arms)
        value = float(log.rewards[places[arms.index(answer.arm)]])
        server.reward(answer.event_id, value)
        earned.append(value)
        offered.append(float(log.rewards[places].mean()))
        shown[answer.arm] += 1
        on_row(place)
    means = Mean.of(np.array(earned)), Mean.of(np.array(offered))
    return ReplayReport(len(earned), *means, shown, float("nan"))


def _by_user(log: LoggedRows, most: int) -> Iterator[tuple[str, list[int]]]:
    rows: dict[str, list[int]] = {}
    for row, user in enumerate(log.users):
        rows.setdefault(user, []).append(row)
    yield from list(rows.items())[:most]


def _evenness(shown: dict[str, int]) -> float:
    """The χ² test of equal frequencies."""
    counts = np.array([*shown.values()], dtype=np.float64)
    expected = counts.mean()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return float(chdtrc(len(counts) - 1, statistic))


def _refuse_many(arms: list[str]) -> None:
    if len(arms) > MAX_ARMS:
        raise FeatureError(f"a request has at most {MAX_ARMS} arms, got {len(arms)}")
