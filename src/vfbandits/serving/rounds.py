"""Contexts of decisions: own rows and the masked rows of all participants, one round per batch."""

import asyncio
import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat

import numpy as np

from vfbandits.campaign.query import Contexts, Query
from vfbandits.core.arrays import Matrix, PlainBlock
from vfbandits.core.context import Split
from vfbandits.errors import ArmError, ContextError, VFBanditsError
from vfbandits.features.open import Features
from vfbandits.protocol.active import ActiveParticipant
from vfbandits.protocol.application import GatherOutcome, GatherReply
from vfbandits.protocol.instructions import ActiveInstruction, Gathered
from vfbandits.protocol.roster import Terms
from vfbandits.protocol.rows import refuse_features_beyond
from vfbandits.protocol.trial import trial_block
from vfbandits.serving.batches import Batches, Waiting
from vfbandits.serving.concurrency import portions
from vfbandits.serving.drift import FeatureDrift


class Rounds:
    """Rounds of one active participant; ``carry_out`` takes the role's instructions."""

    def __init__(
        self,
        role: ActiveParticipant,
        features: Features | None,
        carry_out: Callable[[list[ActiveInstruction]], None],
    ) -> None:
        self.batches = Batches(self._start_round, row_bytes=self.row_bytes(role))
        self._role = role
        self._terms = role.roster.terms  # a live federation keeps them
        self._is_per_arm = self._terms.layout == "per_arm"
        self._features = features
        self.drift = FeatureDrift(
            role.split.names,
            width=role.split.widths[0],
            variances=None if features is None else features.fitted_variances,
        )
        self._carry_out = carry_out

    keep = None  # the journal has the contexts that rewards are learnt from

    @staticmethod
    def row_bytes(role: ActiveParticipant) -> int:
        """Bytes of the widest row that a participant sends."""
        return 8 * max(role.roster.rows_width.values())

    @property
    def max_rows(self) -> int:
        """How many rows may be asked for in one batch."""
        return self.batches.max_rows

    def n_rows(self, query: Query) -> int:
        """How many rows a query needs: one for each arm, or one for the user."""
        return len(query.arms) if self._is_per_arm else 1

    async def contexts(
        self, queries: Sequence[Query], *, campaign: str, waits: bool = False
    ) -> list[Contexts]:
        """The contexts of these queries, in their order; all are of one trial or campaign.

        A single query does not wait for others in the same turn of the event loop, unless ``waits``
        says that there may be some.
        """
        trial = queries[0].trial
        arm_features = [arm_features_of(query, self._terms) for query in queries]
        own = self.own_rows(queries)
        if not trial:
            self.drift.look_at_own(own)
        gathered = await self.batches.gather(
            tuple([query.user for query in queries]),
            tuple([query.arms for query in queries]),
            own,
            trial=trial,
            campaign="" if trial else campaign,
            waits=waits or len(queries) > 1,
        )
        split = self._role.split
        owned = split if self._terms.mask != "dense" else None
        stop, some = 0, []
        for place, (query, of_arms) in enumerate(zip(queries, arm_features, strict=True)):
            is_alone = place in gathered.alone
            contributors = (split.active,) if is_alone else gathered.contributors
            missing = missing_of(split, contributors)
            start, stop = stop, stop + self.n_rows(query)
            rows, size = gathered.rows[start:stop], gathered.bytes_received
            some.append(
                Contexts(
                    rows=rows,
                    contributors=contributors,
                    missing=missing,
                    arm_features=of_arms,
                    split=owned,
                    bytes_received=size,
                    epoch=self._role.epoch,
                )
            )
        return some

    def deliver(self, gathered: Gathered) -> None:
        """Take a complete round."""
        self.drift.look(gathered)
        self.batches.deliver(gathered)

    def release(self) -> None:
        """Release the contexts of one call; the masks may change."""
        self.batches.release()

    async def gather(self, queries: Sequence[Query], *, campaign: str) -> list[GatherOutcome]:
        """The contexts of decisions that a replica makes, in one round if they fit.

        A decision without contexts gets its error instead.
        """
        sizes = [*map(self.n_rows, queries)]
        some = portions(queries, sizes, most=self.max_rows, max_items=len(queries))
        gathered = await asyncio.gather(*(self._gather_batch(one, campaign) for one in some))
        return [*chain.from_iterable(gathered)]

    async def _gather_batch(self, queries: Sequence[Query], campaign: str) -> list[GatherOutcome]:
        try:
            contexts = await self.contexts(queries, campaign=campaign, waits=True)
        except VFBanditsError as error:
            if len(queries) == 1:
                return [error]
        else:
            try:
                epoch = self._role.epoch
                return [
                    GatherReply(one.rows.tobytes(), one.contributors, epoch, one.bytes_received)
                    for one in contexts
                ]
            finally:
                self.release()
        # At least one query fails: try each alone.
        alone = await asyncio.gather(*(self._gather_batch([one], campaign) for one in queries))
        return [outcome for (outcome,) in alone]

    def own_rows(self, queries: Sequence[Query]) -> PlainBlock:
        """The active participant's plain rows, looked up or from the requests."""
        keys = [self._keys(query) for query in queries]
        if self._features is not None and not any(one.own or one.trial for one in queries):
            rows = self._features.block([*chain.from_iterable(keys)]).values
        else:
            rows = _stacked([*map(self._own_block, queries, keys)])
        # A passive participant's own role, and ours, check its rows against the bound.
        refuse_features_beyond(rows, self._terms.bound, "own block")
        return rows

    def _keys(self, query: Query) -> list[tuple[str, ...]]:
        user = query.user
        if not user or not query.arms:
            raise ArmError("a decision needs a user and at least one arm")
        return list(zip(repeat(user), query.arms)) if self._is_per_arm else [(user,)]

    def _own_block(self, query: Query, keys: list[tuple[str, ...]]) -> PlainBlock:
        name, width = self._role.split.active, self._role.split.widths[0]
        if query.trial:
            return trial_block(query.trial, name, keys, width=width)
        if query.own:
            return PlainBlock(_floats(query.own, (len(keys), width), f"features of {name!r}"))
        if self._features is None:
            raise ContextError(
                f"features of {name!r}: wanted {width} numbers with the request, got none, "
                "and no store is configured under [features]"
            )
        return self._features.block(keys).values

    def _start_round(self, batch: list[Waiting]) -> int:
        users, arms, own, trial = batch[0].users, batch[0].arms, batch[0].own, batch[0].trial
        if len(batch) > 1:
            users = tuple(chain.from_iterable([waiting.users for waiting in batch]))
            arms = tuple(chain.from_iterable([waiting.arms for waiting in batch]))
            own = _stacked([waiting.own for waiting in batch])
        number, todo = self._role.ask(
            users, arms, own, time.monotonic(), trial=trial, campaigns=_campaigns(batch)
        )
        self._carry_out(todo)
        return number


def _campaigns(batch: Sequence[Waiting]) -> tuple[str, ...]:
    """As an ask has them: one name if all are of one campaign, else one for each user."""
    names = {waiting.campaign for waiting in batch}
    if len(names) == 1:
        return () if names == {""} else (batch[0].campaign,)
    return tuple([waiting.campaign for waiting in batch for _ in waiting.users])


def _stacked(blocks: list[PlainBlock]) -> PlainBlock:
    return PlainBlock(np.concatenate(blocks)) if len(blocks) > 1 else blocks[0]


def missing_of(split: Split, contributors: tuple[str, ...]) -> tuple[str, ...]:
    """Participants whose features did not come."""
    return tuple([name for name in split.names if name not in contributors])


def arm_features_of(query: Query, terms: Terms) -> Matrix | None:
    """The checked arm features of a query; None where the layout has none."""
    if not terms.arm_dim:
        if query.arm_features:
            raise ContextError(f"arm features need layout 'outer', got {terms.layout!r}")
        return None
    rows = _floats(query.arm_features, (len(query.arms), terms.arm_dim), "arm features")
    bound = terms.bound if terms.shares is None else terms.shares.arm_bound
    refuse_features_beyond(rows, bound, "arm features")
    return rows


def _floats(raw: bytes, shape: tuple[int, int], what: str) -> Matrix:
    if len(raw) != 8 * shape[0] * shape[1]:
        wanted = f"{shape[1]} numbers" + (f" in each of {shape[0]} rows" if shape[0] > 1 else "")
        came = f"{len(raw)} bytes" if len(raw) % 8 else f"{len(raw) // 8} numbers"
        raise ContextError(f"{what}: wanted {wanted}, got {came}")
    return np.frombuffer(raw, dtype="<f8").reshape(shape)
