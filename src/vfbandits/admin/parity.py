"""Public test data through a running federation, against a central bandit on the same data.

Wire, sums, pads and the order of rows are the real ones.  Features and masks are public and drawn
from the trial's number (protocol/trial.py), and the federation's own model is left alone.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from vfbandits.admin.session import Session
from vfbandits.admin.trial_world import TrialRound, TrialWorld
from vfbandits.campaign.draws import EventDraws
from vfbandits.core.bandit import Bandit
from vfbandits.core.context import Split
from vfbandits.core.decision import Decision
from vfbandits.core.policy import LinTS, Policy
from vfbandits.core.policy.registry import revive
from vfbandits.core.settings import whole
from vfbandits.core.snapshot import Record
from vfbandits.errors import LinkError, SettingError, SnapshotError, WireError
from vfbandits.protocol.application import DecideReply, DecideRequest, RewardRequest
from vfbandits.protocol.roster import Terms

MAX_TRIAL = (1 << 32) - 1
USUAL_ARMS = 10
ANSWER_S = 30.0


@dataclass(frozen=True, slots=True)
class Served:
    """The settings of a running federation, as its active participant states them."""

    split: Split
    policy: Policy
    ridge: float
    discount: float
    floor: float
    epoch: int

    @classmethod
    def of(cls, document: dict[str, object]) -> "Served":
        """From a status document."""
        try:
            record = Record(document)
            model, participants = record.child("model"), record.child("participants")
            widths = {
                name: participants.child(name).integer("width") for name in participants.values
            }
            return cls(
                split=Split.of(widths, may_be_alone=True),
                policy=revive(model.child("policy")),
                ridge=model.number("ridge"),
                discount=model.number("discount"),
                floor=model.number("floor"),
                epoch=record.integer("epoch"),
            )
        except SnapshotError as error:
            raise WireError(f"the status must have participants and a model: {error}") from error

    def central(self, terms: Terms, *, seed: int) -> Bandit:
        """A bandit with the same settings that sees all features unmasked."""
        return Bandit(
            self.policy,
            dim=self.split.dim,
            layout=terms.layout,
            arm_dim=terms.arm_dim or None,
            intercept=terms.intercept,
            ridge=self.ridge,
            discount=self.discount,
            floor=self.floor,
            seed=seed,
        )


@dataclass(frozen=True, slots=True)
class LiveReport:
    """How far the federation and the central bandit agreed.

    Attributes
    ----------
    trial, n_arms, epoch, served, terms
        What was run, and where.
    equal, total, first_difference, largest_score_difference
        As in a simulated parity report.
    incomplete
        Rounds in which a participant's features did not count, for both.
    latencies_s
        Seconds of each decision as the application saw them.
    bytes_per_decision
        What the passive participants sent, on average.
    """

    trial: int
    n_arms: int
    epoch: int
    served: Served
    terms: Terms
    equal: int
    total: int
    first_difference: int | None
    largest_score_difference: float
    incomplete: int
    latencies_s: tuple[float, ...]
    bytes_per_decision: float

    @property
    def lossless(self) -> bool:
        """Whether every decision was the same."""
        return self.equal == self.total

    def latency_ms(self, percentile: float) -> float:
        """A percentile of the latencies, in milliseconds."""
        return 1e3 * float(np.percentile(self.latencies_s, percentile))


def draw_trial() -> int:
    """A random number, so that no other run is likely to have it."""
    return 1 + secrets.randbelow(MAX_TRIAL)


async def live_parity(
    session: Session,
    *,
    rounds: int,
    trial: int | None = None,
    n_arms: int | None = None,
    on_round: Callable[[int], None] = lambda _: None,
) -> LiveReport:
    """Play ``rounds`` rounds of a trial through the federation and centrally."""
    whole(rounds, "rounds")
    number = draw_trial() if trial is None else trial
    if not 1 <= number <= MAX_TRIAL:
        raise SettingError(f"a trial's number is from 1 to {MAX_TRIAL}, got {number}")
    terms = session.roster.terms
    if terms.protection == "shares":
        raise SettingError(
            "protection 'shares' has no parity runs on a live federation: no party knows the noise "
            "of a decision.  vfb parity --protection shares compares in one process"
        )
    served = Served.of(await session.status())
    arms = _arms(served, terms, n_arms)
    world = TrialWorld(number, served.split, terms, n_arms=arms)
    run = _Run(session, world, served.central(terms, seed=number), number, served.epoch)
    for place, item in enumerate(world.rounds(rounds)):
        await run.play(place, item)
        on_round(place)
    return LiveReport(
        trial=number,
        n_arms=arms,
        epoch=served.epoch,
        served=served,
        terms=terms,
        equal=run.equal,
        total=rounds,
        first_difference=run.first,
        largest_score_difference=run.difference,
        incomplete=run.incomplete,
        latencies_s=tuple(run.latencies),
        bytes_per_decision=run.n_bytes / rounds,
    )


def _arms(served: Served, terms: Terms, wanted: int | None) -> int:
    """How many arms; LinTS must not leave arm space, or draws could not be compared."""
    dim, policy = served.split.dim, served.policy
    if terms.layout != "per_arm" or not isinstance(policy, LinTS) or policy.space == "arm":
        return whole(USUAL_ARMS if wanted is None else wanted, "arms")
    why = "there masked and plain agree in distribution only, and decisions cannot be compared"
    if policy.space == "parameter":
        raise SettingError(f"this federation's LinTS draws in parameter space; {why}")
    if wanted is not None and wanted > dim:
        raise SettingError(
            f"LinTS with more arms than features draws in parameter space; {why}.  Wanted at most "
            f"{dim} arms, got {wanted}"
        )
    return whole(min(USUAL_ARMS, dim) if wanted is None else wanted, "arms")


class _Run:
    """The two bandits, round by round."""

    def __init__(
        self, session: Session, world: TrialWorld, central: Bandit, trial: int, epoch: int
    ) -> None:
        self._client = session.client
        self._world = world
        self._central = central
        self._draws = EventDraws(central.seed)
        self._draws.lend_to(central)
        self._trial = trial
        self._epoch = epoch
        self.equal = self.incomplete = self.n_bytes = 0
        self.first: int | None = None
        self.difference = 0.0
        self.latencies: list[float] = []

    async def play(self, place: int, item: TrialRound) -> None:
        """One decision and its reward, on both sides."""
        reply = await self._decide(place, item.user)
        self._draws.seed(reply.event_id)
        plain = self._central.decide(
            self._world.context(item.blocks, reply.contributors),
            arms=self._world.arms,
            arm_features=self._world.arm_features,
        )
        self._compare(place, reply, plain)
        self.incomplete += set(reply.contributors) != set(item.blocks)
        self.n_bytes += reply.bytes_received
        value = float(item.rewards[reply.index])
        await self._client.reward(
            RewardRequest(reply.event_id, value, self._trial), timeout_s=ANSWER_S
        )
        self._central.reward(plain, float(item.rewards[plain.index]))

    async def _decide(self, place: int, user: str) -> DecideReply:
        features = self._world.arm_features
        request = DecideRequest(
            user,
            self._world.arms,
            arm_features=b"" if features is None else features.astype("<f8").tobytes(),
            event_id=f"trial-{self._trial}-{place}",
            trial=self._trial,
        )
        started = time.perf_counter()
        try:
            reply = await self._client.decide(request, timeout_s=ANSWER_S)
        except SettingError as error:
            raise SettingError(
                f"{error}; was trial {self._trial} run before?  Take another number, or none"
            ) from error
        self.latencies.append(time.perf_counter() - started)
        if reply.epoch != self._epoch:
            raise LinkError(
                f"the masks changed during the run, from epoch {self._epoch} to {reply.epoch}, and "
                "the trial with them; run it again"
            )
        return reply

    def _compare(self, place: int, reply: DecideReply, plain: Decision) -> None:
        scores = np.frombuffer(reply.scores, dtype="<f8")
        if scores.shape != plain.scores.shape or not 0 <= reply.index < len(scores):
            raise WireError(f"wanted {len(plain.scores)} scores, got {len(scores)}")
        if reply.index == plain.index:
            self.equal += 1
        elif self.first is None:
            self.first = place
        scale = max(1.0, float(np.abs(plain.scores).max()))
        self.difference = max(self.difference, float(np.abs(scores - plain.scores).max()) / scale)
