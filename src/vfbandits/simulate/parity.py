"""Masked against plain, round by round: the federation must decide as a central bandit would."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.decision import Decision
from vfbandits.core.policy import LinTS
from vfbandits.core.round import Federation
from vfbandits.html_page import table


@dataclass(frozen=True, slots=True)
class ParityRound:
    """One round's input: every participant's block, and the reward that each arm would give.

    ``expected`` are those rewards without their noise, where a simulation knows them: for regret.
    """

    blocks: Mapping[str, ArrayLike]
    rewards: Vector
    arms: tuple[int | str, ...] | None = None
    arm_features: Matrix | None = None
    expected: Vector | None = None


@dataclass(frozen=True, slots=True)
class ParityReport:
    """How far masked and plain agreed.

    Attributes
    ----------
    equal, total
        Rounds in which both chose the same arm, of all rounds.
    first_difference
        The first round, from 0, in which they did not; None if there is none.
    largest_score_difference
        Over all rounds and arms, relative to the largest score of the round (at least 1); None
        where scores are secret shares.
    masked_norm, plain_norm
        ‖theta‖ at the end, masked and plain.
    rotated_draws
        Whether normals were turned by the mask, or taken from the two servers that each drew half
        of them: only LinTS in parameter space needs it.
    masked_regret, plain_regret
        Cumulative regret of each; None unless every round brought its expected rewards.
    """

    equal: int
    total: int
    first_difference: int | None
    largest_score_difference: float | None
    masked_norm: float
    plain_norm: float
    rotated_draws: bool = False
    masked_regret: float | None = None
    plain_regret: float | None = None

    @property
    def lossless(self) -> bool:
        """Whether every decision was the same."""
        return self.equal == self.total

    def rows(self) -> list[tuple[str, str]]:
        """What was compared, and the figure, for a terminal or a notebook."""
        first = self.first_difference
        rows = [
            ("decisions equal", f"{self.equal} of {self.total}"),
            ("first difference", "none" if first is None else f"round {first}, counted from 0"),
            ("largest relative score difference", self._score_difference()),
            ("‖θ̃‖, masked", f"{self.masked_norm:.12f}"),
            ("‖θ̂‖, plain", f"{self.plain_norm:.12f}"),
            ("their difference", f"{abs(self.masked_norm - self.plain_norm):.1e}"),
        ]
        if self.masked_regret is not None and self.plain_regret is not None:
            rows.append(("cumulative regret, masked", f"{self.masked_regret:.6f}"))
            rows.append(("cumulative regret, plain", f"{self.plain_regret:.6f}"))
        return rows

    def _score_difference(self) -> str:
        difference = self.largest_score_difference
        return "scores are secret shares" if difference is None else f"{difference:.1e}"

    def _repr_html_(self) -> str:
        return table([("", "masked against plain"), *self.rows()])


class TurnedDraws:
    """Draws of a masked run: the plain run's, turned by the mask where they live in its space."""

    def __init__(self, source: np.random.Generator, mask: Matrix) -> None:
        self._source = source
        self._mask = mask
        self.turning = False

    def standard_normal(self, size: int | tuple[int, ...], /) -> Matrix:
        """Independent N(0, 1), turned while ``turning``."""
        normals = self._source.standard_normal(size)
        return normals @ self._mask.T if self.turning else normals

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._source.random()


class ServersDraws:
    """Draws of the twin of a federation on secret shares: the normals that its servers drew."""

    def __init__(self, source: np.random.Generator) -> None:
        self._source = source
        self.normals: Vector = np.zeros(0)

    def standard_normal(self, size: int | tuple[int, ...], /) -> Matrix:
        """The normals of this decision."""
        del size
        return self.normals

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._source.random()


class ReleasedDraws:
    """Draws of a federation on secret shares, whose arm needs no draw once it was released."""

    def __init__(self, source: np.random.Generator) -> None:
        self._source = source
        self.is_released = False

    def standard_normal(self, size: int | tuple[int, ...], /) -> Matrix:
        """Independent N(0, 1)."""
        return self._source.standard_normal(size)

    def random(self) -> float:
        """Uniform in [0, 1); the first one of a decision is for the released arm, and is given."""
        if self.is_released:
            return self._source.random()
        self.is_released = True
        return 0.5


def parity(
    federation_factory: Callable[[], Federation],
    rounds: Iterable[ParityRound | tuple[Mapping[str, ArrayLike], Vector]],
    *,
    on_round: Callable[[int], None] | None = None,
) -> ParityReport:
    """Run a federation and its plain twin side by side on the same rounds and draws.

    ``rounds`` are ``ParityRound`` or pairs (blocks, rewards of all arms).  Each of the two gets
    the reward of the arm it chose itself, so a first difference may have consequences.

    >>> import vfbandits as vfb
    >>> rng = np.random.default_rng(0)
    >>> rounds = [({"shop": rng.normal(size=(4, 2)), "bank": rng.normal(size=(4, 3))},
    ...            rng.normal(size=4)) for _ in range(50)]
    >>> report = vfb.parity(
    ...     lambda: vfb.Federation(vfb.LinUCB(), widths={"shop": 2, "bank": 3}), rounds)
    >>> report.equal, report.total
    (50, 50)
    """
    federation = federation_factory()
    if federation.release == "arm":
        return _parity_on_shares(federation, rounds, on_round)
    twin = federation.twin()
    policy = federation.bandit.policy
    turned = TurnedDraws(np.random.default_rng(federation.bandit.seed), federation.reveal_mask())
    federation.bandit.draw_from(turned)
    tally = _Tally()
    ndim = 2 if federation.bandit.layout.layout == "per_arm" else 1
    for number, item in enumerate(rounds):
        given = item if isinstance(item, ParityRound) else ParityRound(*item)
        turned.turning = ndim == 2 and _in_parameter_space(policy, given, federation.split.dim)
        tally.rotated |= turned.turning
        masked = federation.decide(given.blocks, arms=given.arms, arm_features=given.arm_features)
        counted = {name: given.blocks[name] for name in masked.contributors}
        plain = twin.decide(
            federation.split.join(counted, ndim=ndim),
            arms=given.arms,
            arm_features=given.arm_features,
        )
        tally.note(number, masked, plain)
        tally.note_regret(given.expected, masked, plain)
        federation.reward(masked, float(given.rewards[masked.index]))
        twin.reward(plain, float(given.rewards[plain.index]))
        if on_round is not None:
            on_round(number)
    return ParityReport(
        equal=tally.equal,
        total=tally.total,
        first_difference=tally.first,
        largest_score_difference=tally.difference,
        masked_norm=federation.estimate_norm(),
        plain_norm=twin.estimate_norm(),
        rotated_draws=tally.rotated,
        masked_regret=tally.masked_regret if tally.knows_regret else None,
        plain_regret=tally.plain_regret if tally.knows_regret else None,
    )


def _parity_on_shares(
    federation: Federation,
    rounds: Iterable[ParityRound | tuple[Mapping[str, ArrayLike], Vector]],
    on_round: Callable[[int], None] | None,
) -> ParityReport:
    """As ``parity``, where the arm alone is released.

    A twin that draws noise is given what the two servers drew, half each.
    """
    twin = federation.twin()
    is_noisy = isinstance(twin.policy, LinTS)
    seed = federation.bandit.seed
    released = ReleasedDraws(np.random.default_rng(seed))
    servers = ServersDraws(np.random.default_rng(seed))
    federation.bandit.draw_from(released)
    twin.draw_from(servers)
    tally = _Tally()
    is_per_arm = federation.bandit.layout.layout == "per_arm"
    for number, item in enumerate(rounds):
        given = item if isinstance(item, ParityRound) else ParityRound(*item)
        released.is_released = False
        shared = federation.decide(given.blocks, arms=given.arms, arm_features=given.arm_features)
        counted = {name: given.blocks[name] for name in shared.contributors}
        if is_noisy:
            servers.normals = federation.noise_of(shared)
        plain = twin.decide(
            federation.split.join(counted, ndim=2 if is_per_arm else 1),
            arms=given.arms,
            arm_features=given.arm_features,
        )
        tally.note_arms(number, shared, plain)
        tally.note_regret(given.expected, shared, plain)
        federation.reward(shared, float(given.rewards[shared.index]))
        twin.reward(plain, float(given.rewards[plain.index]))
        if on_round is not None:
            on_round(number)
    return ParityReport(
        equal=tally.equal,
        total=tally.total,
        first_difference=tally.first,
        largest_score_difference=None,
        masked_norm=federation.estimate_norm(),
        plain_norm=twin.estimate_norm(),
        rotated_draws=is_noisy,
        masked_regret=tally.masked_regret if tally.knows_regret else None,
        plain_regret=tally.plain_regret if tally.knows_regret else None,
    )


class _Tally:
    """Counts of a parity run."""

    def __init__(self) -> None:
        self.equal = self.total = 0
        self.first: int | None = None
        self.difference = 0.0
        self.rotated = False
        self.masked_regret = self.plain_regret = 0.0
        self.knows_regret = True

    def note(self, number: int, masked: Decision, plain: Decision) -> None:
        self.note_arms(number, masked, plain)
        scale = max(1.0, float(np.abs(plain.scores).max()))
        difference = float(np.abs(masked.scores - plain.scores).max()) / scale
        self.difference = max(self.difference, difference)

    def note_arms(self, number: int, masked: Decision, plain: Decision) -> None:
        self.total += 1
        if masked.index == plain.index:
            self.equal += 1
        elif self.first is None:
            self.first = number

    def note_regret(self, expected: Vector | None, masked: Decision, plain: Decision) -> None:
        if expected is None:
            self.knows_regret = False
            return
        best = float(expected.max())
        self.masked_regret += best - float(expected[masked.index])
        self.plain_regret += best - float(expected[plain.index])


def _in_parameter_space(policy: object, given: ParityRound, dim: int) -> bool:
    if not isinstance(policy, LinTS) or policy.space == "arm":
        return False
    return policy.space == "parameter" or len(given.rewards) > dim
