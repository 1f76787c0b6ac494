"""What the active participant knows of a round on secret shares, as policies see it.

With release "arm" that is the best arm; the policy has run on shares.  With release "statistics" it
is what the policy reads, and the policy runs in the open, as it does everywhere else.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.factor import arm_order_factor
from vfbandits.core.policy import OFUL, InverseGap, LinGreedy, LinTS, LinUCB
from vfbandits.core.policy.base import Policy, Scored
from vfbandits.core.sampler import Draws, FactorSampler, Sampler
from vfbandits.core.shares.covariance import covariance_of, widths_of
from vfbandits.core.shares.terms import RELEASES
from vfbandits.errors import SettingError

_HIDDEN = "is not released under protection 'shares': the active participant learns {learns} alone"
_ARM = _HIDDEN.format(learns="the arm")
_NOISE = 2.0**-35
"""A pivot of a released covariance that is smaller is rounding."""

LEARNS = {
    ("arm", "noise"): "the arm of a decision",
    ("arm", "means"): "the arm of a decision",
    ("arm", "widths"): "the arm and the widths of all arms of a decision",
    ("statistics", "means"): "the means of all arms of a decision",
    ("statistics", "widths"): "the means and widths of all arms of a decision",
    ("statistics", "covariance"): "the means and the covariance of all arms of a decision",
}


@dataclass(frozen=True, slots=True)
class ReleasedPolicy:
    """The policy that runs on secret shares, as the bandit of the active participant sees it."""

    policy: LinTS | LinGreedy | LinUCB

    def score(self, statistics: ArmStatistics, rng: Draws) -> Scored:
        """All of the probability on the released arm.  Scores stay secret: they are NaN.

        A round without the helper, on the active participant's own features, is a plain one.
        """
        if not isinstance(statistics, ReleasedArm):
            return self.alone().score(statistics, rng)
        chances = np.zeros(statistics.n_arms)
        chances[statistics.arm] = 1.0
        hidden = np.full(statistics.n_arms, np.nan)
        match self.policy:
            case LinGreedy(epsilon=epsilon):
                return Scored(hidden, chances, uniform=epsilon)
            case LinUCB():
                return Scored(hidden, chances)
        return Scored(hidden, chances, law=HiddenLaw())

    def plain(self) -> LinTS | LinGreedy | LinUCB:
        """The policy of a plain twin, which draws in the same space."""
        if isinstance(self.policy, LinTS):
            return dataclasses.replace(self.policy, space="parameter")
        return self.policy

    def alone(self) -> LinTS | LinGreedy | LinUCB:
        """The policy of rounds without the helper: in arm space a draw changes no state."""
        if isinstance(self.policy, LinTS):
            return dataclasses.replace(self.policy, space="arm")
        return self.policy


class Plan(NamedTuple):
    """How a policy runs on secret shares: the bandit's policy, and what the terms say of it."""

    policy: Policy
    reads: str
    posterior_scale: float = 0.0
    beta: float = 0.0


def plan(policy: Policy, release: str) -> Plan:
    """How a policy runs on secret shares; others are refused.

    >>> plan(LinGreedy(epsilon=0.1), "arm").reads
    'means'
    >>> plan(LinTS(), "statistics").reads
    'covariance'
    """
    policy = policy.policy if isinstance(policy, ReleasedPolicy) else policy
    if release not in RELEASES:
        raise SettingError(f"release must be one of {', '.join(RELEASES)}, got {release!r}")
    if isinstance(policy, LinUCB) and isinstance(policy.beta, OFUL):
        raise SettingError(
            "protection 'shares' runs LinUCB with a constant beta, got an OFUL schedule: it reads "
            "det Lambda, which no party knows"
        )
    return _released_arm(policy) if release == "arm" else _released_statistics(policy)


def _released_arm(policy: Policy) -> Plan:
    match policy:
        case LinTS(space="arm"):
            raise SettingError(
                "protection 'shares' draws LinTS in parameter space, with noise that no party "
                "knows; got space 'arm', which needs the covariance of the arms in the open: "
                "release='statistics' opens it"
            )
        case LinTS():
            return Plan(ReleasedPolicy(policy), "noise", posterior_scale=policy.posterior_scale)
        case LinGreedy():
            return Plan(ReleasedPolicy(policy), "means")
        case LinUCB(beta=float() | int() as beta):
            return Plan(ReleasedPolicy(policy), "widths", beta=float(beta))
    raise SettingError(
        "protection 'shares' decides by LinTS, LinUCB or LinGreedy, got "
        f"{type(policy).__name__}: it would need means of the arms in the open"
        + (", as release='statistics' opens" if isinstance(policy, InverseGap) else "")
    )


def _released_statistics(policy: Policy) -> Plan:
    match policy:
        case LinTS(space="parameter"):
            raise SettingError(
                "release 'statistics' draws LinTS in arm space, from the covariance of the arms; "
                "got space 'parameter', which release='arm' has"
            )
        case LinTS():
            return Plan(dataclasses.replace(policy, space="arm"), "covariance")
        case LinGreedy() | InverseGap():
            return Plan(policy, "means")
        case LinUCB():
            return Plan(policy, "widths")
    raise SettingError(
        "release 'statistics' knows what LinTS, LinUCB, LinGreedy and InverseGap read, got "
        f"{type(policy).__name__}"
    )


class HiddenLaw:
    """The law of the scores, which nobody knows."""

    n_draws = 1
    is_known = False

    def draw_scores(self, rng: Draws, count: int) -> Matrix:
        """Refused: a Monte Carlo estimate would need means and covariances in the open."""
        raise SettingError(f"the probability of an arm {_ARM}; floor=… gives a lower bound")


@dataclass(frozen=True, slots=True)
class ReleasedArm:
    """What the active participant knows of a round: how many arms there are, and the best."""

    n_arms: int
    arm: int
    ridge: float
    n_updates: int

    magnitude = 0.0

    @property
    def means(self) -> Vector:
        """NaN: means stay secret."""
        return np.full(self.n_arms, np.nan)

    @property
    def widths(self) -> Vector:
        """Refused."""
        raise SettingError(f"the width of an arm {_ARM}")

    @property
    def log_det_ratio(self) -> float:
        """Refused."""
        raise SettingError(f"the information gathered {_ARM}")

    def sampler(self, space: str) -> Sampler:
        """Refused."""
        raise SettingError(f"a joint draw in {space} space {_ARM}")


@dataclass(frozen=True, slots=True)
class ReleasedStatistics:
    """Means of the arms, and forms x_a'Lambda⁻¹x_b as far as they were released.

    Attributes
    ----------
    means
        (n_arms,), each off by a unit of 2^-40.
    forms
        Squared widths, the lower triangle of 2C row by row, or empty.
    reads
        Which of these ``forms`` are: "widths", "covariance" or "means".
    length
        The longest that a context can be.
    largest_reward
        That was learnt so far.
    """

    means: Vector
    forms: Vector
    reads: str
    ridge: float
    n_updates: int
    length: float
    largest_reward: float

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.means)

    @property
    def widths(self) -> Vector:
        """√(x'Lambda⁻¹x), (n_arms,)."""
        if self.reads == "covariance":
            return widths_of(np.diagonal(covariance_of(self.forms, self.n_arms)))
        if self.reads == "widths":
            return widths_of(self.forms)
        raise SettingError(f"the width of an arm {_HIDDEN.format(learns='means')}")

    @property
    def magnitude(self) -> float:
        """A bound on the size of the terms of the means, as far as one is known.

        ‖X‖·‖theta‖ is secret.  Of its parts, ‖X‖ is at most √K·length, and ‖theta‖ is at least
        max|m|/length; one reward r moves theta by at most |r|/(2√ridge).  The 1 is for the error of
        fixed point, which does not shrink with the means.
        """
        means = float(np.abs(self.means).max(initial=0.0))
        moved = self.length * self.largest_reward / (2.0 * math.sqrt(self.ridge))
        return 1.0 + math.sqrt(self.n_arms) * (means + moved)

    @property
    def log_det_ratio(self) -> float:
        """Refused."""
        raise SettingError(f"the information gathered {_HIDDEN.format(learns='statistics')}")

    def sampler(self, space: str) -> Sampler:
        """Draws in arm space, as far as the covariance was released."""
        if self.reads != "covariance" or space == "parameter":
            raise SettingError(
                f"a joint draw in {space} space {_HIDDEN.format(learns='statistics')}"
            )
        return FactorSampler(arm_order_factor(covariance_of(self.forms, self.n_arms), noise=_NOISE))
