"""From a request to a decision: own rows, everybody's contexts, the model."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import chain, repeat

import numpy as np

from vfbandits.campaign.event_ids import EventIds
from vfbandits.campaign.settings import DEFAULT
from vfbandits.core.arrays import Matrix, PlainBlock
from vfbandits.core.context import Split
from vfbandits.core.decision import Decision
from vfbandits.core.reward import as_reward
from vfbandits.errors import ArmError, ContextError, VFBanditsError
from vfbandits.features.open import Features
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.application import (
    DecideReply,
    DecideRequest,
    GatherOutcome,
    GatherReply,
    RewardReply,
    RewardRequest,
)
from vfbandits.protocol.instructions import ActiveInstruction
from vfbandits.protocol.roster import Terms
from vfbandits.protocol.rows import refuse_features_beyond
from vfbandits.protocol.trial import trial_block
from vfbandits.serving.fleeting import FleetingBandit
from vfbandits.serving.in_groups import portions
from vfbandits.serving.model import Model
from vfbandits.serving.rounds import Batches, Contexts, Waiting
from vfbandits.settings.model import ModelSettings

MOST_TRIALS = 4


class Decisions:
    """Decisions of one active participant; ``carry_out`` takes what the role says to do."""

    def __init__(
        self,
        role: ActiveParticipant,
        model: Model,
        model_settings: ModelSettings,
        features: Features | None,
        carry_out: Callable[[list[ActiveInstruction]], None],
    ) -> None:
        self.model = model
        self.batches = Batches(self._start_round, row_bytes=self.row_bytes(role))
        self._role = role
        self._model_settings = model_settings
        self._features = features
        self._carry_out = carry_out
        self._trials: dict[int, FleetingBandit] = {}
        self._ids = EventIds()
        self.others: dict[str, Model] = {}
        self.check_reward: Callable[[float], float] = as_reward

    @property
    def models(self) -> dict[str, Model]:
        """The models of all campaigns, the default first."""
        return {DEFAULT: self.model, **self.others}

    @property
    def split(self) -> Split:
        """Whose columns are which."""
        return self._role.split

    @property
    def is_blockwise(self) -> bool:
        """Whether every participant keeps its own columns."""
        return self._role.roster.terms.mask != "dense"

    @property
    def is_per_arm(self) -> bool:
        """Whether there is a context for each arm, or one of the user."""
        return self._role.roster.terms.layout == "per_arm"

    @staticmethod
    def row_bytes(role: ActiveParticipant) -> int:
        """Bytes of the widest row that a participant sends."""
        return 8 * max(role.roster.rows_width.values())

    async def decide(self, request: DecideRequest) -> DecideReply:
        """Choose an arm for a user."""
        started = time.perf_counter()
        arm_features = self.arm_features(request)
        async with self.contexts(request) as contexts:
            epoch = self._role.epoch
            decision = await self._decide_on(contexts, request, arm_features)
        return DecideReply(
            str(decision.id),
            str(decision.arm),
            decision.index,
            decision.probability,
            decision.scores.tobytes(),
            decision.means.tobytes(),
            contexts.contributors,
            epoch,
            contexts.bytes_received,
            time.perf_counter() - started,
        )

    def contexts(self, *requests: DecideRequest) -> AbstractAsyncContextManager[Contexts]:
        """The masked contexts that these are decided on, in their order; all of one trial."""
        return self.batches.contexts(
            tuple([request.user for request in requests]),
            tuple([request.arms for request in requests]),
            self._own_rows(requests),
            trial=requests[0].trial,
        )

    async def gather(self, requests: Sequence[DecideRequest]) -> list[GatherOutcome]:
        """The contexts of decisions that another process makes, in one round if they fit.

        Where one cannot be had its error stands in its place.
        """
        rows = [len(request.arms) if self.is_per_arm else 1 for request in requests]
        some = portions(requests, rows, most=self.most_rows, at_once=len(requests))
        gathered = await asyncio.gather(*map(self._gather_together, some))
        return [*chain.from_iterable(gathered)]

    async def _gather_together(self, requests: Sequence[DecideRequest]) -> list[GatherOutcome]:
        try:
            async with self.contexts(*requests) as contexts:
                return self._replies(requests, contexts)
        except VFBanditsError as error:
            if len(requests) == 1:
                return [error]
        # One of them cannot be had, or none: each by itself gets its own answer.
        alone = await asyncio.gather(*(self._gather_together([one]) for one in requests))
        return [outcome for (outcome,) in alone]

    def _replies(
        self, requests: Sequence[DecideRequest], contexts: Contexts
    ) -> list[GatherOutcome]:
        replies: list[GatherOutcome] = []
        rows, per_arm, epoch, stop = contexts.rows, self.is_per_arm, self._role.epoch, 0
        for request in requests:
            start, stop = stop, stop + (len(request.arms) if per_arm else 1)
            its_rows = rows[start:stop].tobytes()
            came = contexts.contributors, epoch, contexts.bytes_received
            replies.append(GatherReply(its_rows, *came))
        return replies

    @property
    def most_rows(self) -> int:
        """How many rows may be asked for together."""
        return self.batches.most_rows

    async def reward(self, request: RewardRequest) -> RewardReply:
        """Learn a reward once."""
        model = self._model_for(request.trial)
        value = request.value if request.trial else self.check_reward(request.value)
        return RewardReply(await model.reward(request.decision_id, value))

    async def move(self, matrix: Matrix, *, epoch: int, note: bytes) -> None:
        """Carry what was learnt to another epoch; trials end with the old one."""
        # The first leads: should the process die before the others have it, they get it from there.
        for model in self.models.values():
            await model.move(matrix, epoch=epoch, note=note)
        self._trials.clear()

    async def _decide_on(
        self, contexts: Contexts, request: DecideRequest, arm_features: Matrix | None
    ) -> Decision:
        return await self._model_for(request.trial).decide(
            contexts.rows if self.is_per_arm else contexts.rows[0],
            arms=request.arms,
            arm_features=arm_features,
            decision_id=request.decision_id or self._ids.draw(),
            contributors=contexts.contributors,
            user=request.user,
        )

    def _model_for(self, trial: int) -> Model:
        if not trial:
            return self.model
        if trial not in self._trials:
            if len(self._trials) >= MOST_TRIALS:
                del self._trials[next(iter(self._trials))]
            roster = self._role.roster
            self._trials[trial] = FleetingBandit(
                lambda: self._model_settings.build(roster, seed=trial), epoch=0, note=b""
            )
        return self._trials[trial]

    def _own_rows(self, requests: Sequence[DecideRequest]) -> PlainBlock:
        keys = [self._keys(request) for request in requests]
        if self._features is not None and not any(one.own or one.trial for one in requests):
            rows = self._features.block([*chain.from_iterable(keys)]).values
        else:
            rows = _stacked([*map(self._own_block, requests, keys)])
        # A passive participant's rows are held to it by its own role, and by ours.
        refuse_features_beyond(rows, self._role.roster.terms.bound, "own block")
        return rows

    def _keys(self, request: DecideRequest) -> list[tuple[str, ...]]:
        user = request.user
        if not user or not request.arms:
            raise ArmError("a decision needs a user and at least one arm")
        return list(zip(repeat(user), request.arms)) if self.is_per_arm else [(user,)]

    def _own_block(self, request: DecideRequest, keys: list[tuple[str, ...]]) -> PlainBlock:
        name, width = self._role.split.active, self._role.split.widths[0]
        if request.trial:
            return trial_block(request.trial, name, keys, width=width)
        if request.own:
            return PlainBlock(_floats(request.own, (len(keys), width), "own block"))
        if self._features is None:
            raise ContextError(
                f"wanted the own block of {name!r} with the request, got none, "
                "and no [features] are configured"
            )
        return self._features.block(keys).values

    def arm_features(self, request: DecideRequest) -> Matrix | None:
        """What the request says of the arms, checked."""
        return arm_features_of(request, self._role.roster.terms)

    def _start_round(self, batch: list[Waiting]) -> int:
        users, arms, own, trial = batch[0].users, batch[0].arms, batch[0].own, batch[0].trial
        if len(batch) > 1:
            users = tuple(chain.from_iterable([waiting.users for waiting in batch]))
            arms = tuple(chain.from_iterable([waiting.arms for waiting in batch]))
            own = _stacked([waiting.own for waiting in batch])
        number, todo = self._role.ask(users, arms, own, time.monotonic(), trial=trial)
        self._carry_out(todo)
        return number


def _stacked(blocks: list[PlainBlock]) -> PlainBlock:
    return PlainBlock(np.concatenate(blocks)) if len(blocks) > 1 else blocks[0]


def arm_features_of(request: DecideRequest, terms: Terms) -> Matrix | None:
    """What a request says of the arms, checked; None where the layout has no arm features."""
    if not terms.arm_dim:
        if request.arm_features:
            raise ContextError("arm features go with layout 'outer'")
        return None
    rows = _floats(request.arm_features, (len(request.arms), terms.arm_dim), "arm features")
    refuse_features_beyond(rows, terms.bound, "arm features")
    return rows


def _floats(raw: bytes, shape: tuple[int, int], what: str) -> Matrix:
    if len(raw) != 8 * shape[0] * shape[1]:
        raise ContextError(f"{what}: wanted {shape} numbers of 8 bytes, got {len(raw)} bytes")
    return np.frombuffer(raw, dtype="<f8").reshape(shape)
