"""What the active participant knows of a round on secret shares, as policies see it.

With release "arm" that is the best arm; the policy has run on shares.  With release "statistics" it
is what the policy reads, and the policy runs in the open, as it does everywhere else.
"""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.estimate import ArmStatistics
from vfbandits.core.factor import arm_order_factor
from vfbandits.core.policy import OFUL, InverseGap, LinGreedy, LinTS, LinUCB
from vfbandits.core.policy.base import Policy, Scored
from vfbandits.core.sampler import Draws, FactorSampler, IndependentSampler, Sampler
from vfbandits.core.shares.covariance.active import Statistics
from vfbandits.core.shares.covariance.form import covariance_of, widths_of
from vfbandits.core.shares.offer import Offer, with_ones
from vfbandits.core.shares.terms import RELEASES, ShareTerms
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


def learns_of(release: str, reads: str, layout: str = "per_arm") -> str:
    """What the active participant learns of a decision, in words.

    >>> learns_of("statistics", "covariance", "outer")
    'the means and the covariance of all arm features in a decision'
    """
    learns = LEARNS[release, reads]
    if layout == "outer" and release == "statistics":
        return learns.replace("all arms of", "all arm features in")
    if layout == "disjoint":
        return learns.replace("all arms of a decision", "all arms so far in a decision")
    return learns


def leaks_to_active(terms: ShareTerms) -> bool:
    """Whether numbers of each arm are opened that are equations in one row of a participant."""
    return terms.layout != "per_arm" and (terms.release == "statistics" or terms.reads == "widths")


def refuse_leak(terms: ShareTerms, names: Sequence[str], accepted: Sequence[str]) -> None:
    """Refuse what opens as many equations in a row as it has unknowns, unless it is accepted.

    In "per_arm" each arm has a row of its own.  In "disjoint" and "outer" one row of a participant
    is in the numbers of all arms, or arm features, of a decision.

    >>> terms = ShareTerms(widths=(2, 3), max_arms=4, ridge=1.0, posterior_scale=0.0,
    ...                    release="statistics", reads="means", layout="disjoint")
    >>> refuse_leak(terms, ["shop", "bank"], [])
    Traceback (most recent call last):
    vfbandits.errors.SettingError: layout 'disjoint' opens numbers of 4 arms on secret shares, \
each an equation in the same row of a participant, and 'bank' has 3 features: its rows can be \
read from them.  Wanted release 'arm' with LinTS or LinGreedy, fewer than 3 arms (max_arms), or \
accept_leak with 'bank'
    >>> refuse_leak(terms, ["shop", "bank"], ["bank"])
    """
    for name in accepted:
        if name not in names[1:]:
            raise SettingError(
                f"accept_leak names passive participants, {', '.join(names[1:])}, got {name!r}"
            )
    if not leaks_to_active(terms):
        return
    n, is_outer = terms.max_rows, terms.layout == "outer"
    if is_outer:
        n = terms.arm_width
    for name, width in zip(names[1:], terms.widths[1:], strict=True):
        if width <= n and name not in accepted:
            what, setting = ("arm features", "arm_dim") if is_outer else ("arms", "max_arms")
            raise SettingError(
                f"layout {terms.layout!r} opens numbers of {n} {what} on secret shares, each an "
                f"equation in the same row of a participant, and {name!r} has {width} features: "
                "its rows can be read from them.  Wanted release 'arm' with LinTS or LinGreedy, "
                f"fewer than {width} {what} ({setting}), or accept_leak with {name!r}"
            )


def plan(policy: Policy, release: str, layout: str = "per_arm") -> Plan:
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
    return _released_arm(policy) if release == "arm" else _released_statistics(policy, layout)


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


def _released_statistics(policy: Policy, layout: str) -> Plan:
    # In "disjoint" no covariance of two arms is other than 0.  In "outer" a width is that of a sum
    # of arm features.
    of_arms = "widths" if layout == "disjoint" else "covariance"
    of_one = "covariance" if layout == "outer" else "widths"
    match policy:
        case LinTS(space="parameter"):
            raise SettingError(
                "release 'statistics' draws LinTS in arm space, from the covariance of the arms; "
                "got space 'parameter', which release='arm' has"
            )
        case LinTS():
            return Plan(dataclasses.replace(policy, space="arm"), of_arms)
        case LinGreedy() | InverseGap():
            return Plan(policy, "means")
        case LinUCB():
            return Plan(policy, of_one)
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
    is_independent
        Whether arms share no parameter, so that widths are the covariance.
    """

    means: Vector
    forms: Vector
    reads: str
    ridge: float
    n_updates: int
    length: float
    largest_reward: float
    is_independent: bool = False

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
        if self.is_independent and self.reads == "widths":
            return IndependentSampler(self.widths)
        if self.reads != "covariance" or space == "parameter":
            raise SettingError(
                f"a joint draw in {space} space {_HIDDEN.format(learns='statistics')}"
            )
        return FactorSampler(self.factor())

    def factor(self) -> Matrix:
        """L with LL' = C, in arm order."""
        return arm_order_factor(covariance_of(self.forms, self.n_arms), noise=_NOISE)


@dataclass(frozen=True, slots=True)
class ReleasedUnits:
    """Statistics of arms with features W, (n_arms, n), from those of the n arm features.

    A context is linear in the features of its arm: means are Wμ and covariances WGW'.
    """

    units: ReleasedStatistics
    W: Matrix

    @property
    def n_arms(self) -> int:
        """Number of arms, K."""
        return len(self.W)

    @property
    def means(self) -> Vector:
        """Wμ, (n_arms,)."""
        return self.W @ self.units.means

    @property
    def widths(self) -> Vector:
        """√(w'Gw), (n_arms,)."""
        if self.units.reads != "covariance":
            return self.units.widths  # refused
        widths: Vector = np.linalg.norm(self.W @ self.units.factor(), axis=1)
        return widths

    @property
    def magnitude(self) -> float:
        """As of the features, times the length of W."""
        return max(1.0, float(np.linalg.norm(self.W))) * self.units.magnitude

    @property
    def log_det_ratio(self) -> float:
        """Refused."""
        return self.units.log_det_ratio

    @property
    def ridge(self) -> float:
        """The prior weight λ."""
        return self.units.ridge

    @property
    def n_updates(self) -> int:
        """Rewards learnt so far."""
        return self.units.n_updates

    def sampler(self, space: str) -> Sampler:
        """WLz with LL' = G, as a plain bandit draws, whatever the space."""
        if self.units.reads != "covariance":
            return self.units.sampler(space)  # refused
        return FactorSampler(self.W @ self.units.factor())


def released_statistics(
    terms: ShareTerms,
    came: Statistics,
    offer: Offer | None,
    *,
    n_updates: int,
    largest_reward: float,
) -> ReleasedStatistics | ReleasedUnits:
    """What a policy sees of the arms on offer, from what was opened of the rows."""
    means, forms = came.means, came.forms
    is_disjoint = terms.layout == "disjoint"
    if is_disjoint and offer is not None:
        rows = list(offer.blocks)
        means, forms = means[rows], forms[rows] if len(forms) else forms
    released = ReleasedStatistics(
        means,
        forms,
        terms.reads,
        terms.ridge,
        n_updates,
        length=terms.max_length * math.sqrt(terms.ridge),
        largest_reward=largest_reward,
        is_independent=is_disjoint,
    )
    if not terms.has_units or offer is None or offer.features is None:
        return released
    return ReleasedUnits(released, with_ones(terms, offer.features) / terms.arm_length)
