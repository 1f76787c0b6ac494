"""Decisions that wait for their contexts, gathered a batch at a time.

Requests that arrive together make one round and one message to each participant.  While
``MAX_OPEN_ROUNDS`` rounds are open, later requests accumulate, so that batches grow with the load.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np

from vfbandits.core.arrays import Matrix, PlainBlock
from vfbandits.errors import VFBanditsError
from vfbandits.protocol.instructions import Gathered

MAX_OPEN_ROUNDS = 2
MAX_BATCH_BYTES = 4 << 20  # of one participant's rows: far below the limit of a message


class Gathering(NamedTuple):
    """The masked contexts of one call's decisions, and the participants whose features are in them.

    ``bytes_received`` is per decision; ``alone`` has the places of decisions with features of the
    active participant alone.
    """

    rows: Matrix
    contributors: tuple[str, ...]
    bytes_received: int
    alone: frozenset[int] = frozenset()

    def __repr__(self) -> str:
        """Names and sizes; no contexts."""
        return f"Gathering({len(self.rows)} rows, contributors={self.contributors})"


class Waiting(NamedTuple):
    """Decisions of one call that wait for their contexts, one for each user."""

    users: tuple[str, ...]
    arms: tuple[tuple[str, ...], ...]
    own: PlainBlock
    trial: int
    campaign: str
    contexts: "asyncio.Future[Gathering]"

    def __repr__(self) -> str:
        """The number of decisions; no features."""
        return f"Waiting({len(self.users)} decisions, trial={self.trial})"


Start: TypeAlias = Callable[[list[Waiting]], int]


class Batches:
    """Batches of waiting decisions; ``start`` opens a round for one and returns its number."""

    def __init__(self, start: Start, *, row_bytes: int) -> None:
        self._start = start
        self._row_bytes = row_bytes
        self._waiting: list[Waiting] = []
        self._rounds: dict[int, list[Waiting]] = {}
        self._early: dict[int, Gathered] = {}
        self._is_due = False
        self._is_open = True
        self._n_in_use = 0
        self._ended: asyncio.Future[None] | None = None

    async def gather(
        self,
        users: tuple[str, ...],
        arms: tuple[tuple[str, ...], ...],
        own: PlainBlock,
        *,
        trial: int,
        campaign: str,
        waits: bool = True,
    ) -> Gathering:
        """The contexts of one call's decisions; a mask change waits for their ``release``.

        A round waits for other calls in the same turn of the event loop, unless ``waits`` is False
        and no round is open.
        """
        loop = asyncio.get_running_loop()
        contexts: asyncio.Future[Gathering] = loop.create_future()
        self._waiting.append(
            Waiting(
                users=users, arms=arms, own=own, trial=trial, campaign=campaign, contexts=contexts
            )
        )
        if waits or self._rounds:
            self._make_due(loop)
        else:
            self._flush()
        try:
            return await contexts
        except BaseException:
            if contexts.done() and not contexts.cancelled():  # they came, or cannot come
                self.release()
            raise

    @property
    def max_rows(self) -> int:
        """Maximum number of rows in a message."""
        return max(1, MAX_BATCH_BYTES // self._row_bytes)

    def release(self) -> None:
        """Release the contexts of one call."""
        self._n_in_use -= 1
        if not self._n_in_use:
            self._note_end()

    def deliver(self, gathered: Gathered) -> None:
        """Take a complete round: give each of its decisions its rows."""
        batch = self._rounds.pop(gathered.round, None)
        if batch is None:  # complete before ``start`` has returned its number
            self._early[gathered.round] = gathered
            return
        parts = [gathered.contexts]
        if len(batch) > 1:
            places = np.cumsum([len(waiting.own) for waiting in batch])[:-1]
            parts = np.split(gathered.contexts, places)
        bytes_each = gathered.bytes_received // sum(len(waiting.users) for waiting in batch)
        start = 0
        for waiting, rows in zip(batch, parts, strict=True):
            alone = gathered.alone and _within(gathered.alone, start, len(waiting.users))
            start += len(waiting.users)
            if not waiting.contexts.done():
                self._n_in_use += 1
                contributors = gathered.contributors
                waiting.contexts.set_result(Gathering(rows, contributors, bytes_each, alone))
        self._note_end()
        if self._waiting:
            self._make_due(asyncio.get_running_loop())

    async def pause(self) -> None:
        """Start no more rounds, and wait until the contexts of earlier ones are released."""
        self._is_open = False
        while self._rounds or self._n_in_use:
            await self._next_end()

    async def quiet(self) -> None:
        """Wait until no decision is open."""
        while self._rounds or self._n_in_use or self._waiting:
            await self._next_end()

    async def _next_end(self) -> None:
        self._ended = self._ended or asyncio.get_running_loop().create_future()
        await asyncio.shield(self._ended)

    def _note_end(self) -> None:
        """A round has ended, or its contexts are no longer used."""
        if self._ended is not None:
            self._ended.set_result(None)
            self._ended = None

    def resume(self, *, row_bytes: int) -> None:
        """Start rounds again."""
        self._row_bytes = row_bytes
        self._is_open = True
        self._make_due(asyncio.get_running_loop())

    def _make_due(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_due and self._is_open:
            self._is_due = True
            loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_due = False
        while self._waiting and self._is_open and len(self._rounds) < MAX_OPEN_ROUNDS:
            self._open(self._next_batch())

    def _open(self, batch: list[Waiting]) -> None:
        try:
            number = self._start(batch)
        except VFBanditsError as error:
            self._refuse(batch, error)
            return
        self._rounds[number] = batch
        early = self._early.pop(number, None)
        if early is not None:
            self.deliver(early)

    def _refuse(self, batch: list[Waiting], error: VFBanditsError) -> None:
        """Try the decisions of a refused round one by one; each gets its error or its own round."""
        if len(batch) > 1:
            for waiting in batch:
                self._open([waiting])
        elif not batch[0].contexts.done():
            self._n_in_use += 1
            batch[0].contexts.set_exception(error)

    def _next_batch(self) -> list[Waiting]:
        """The first waiting decisions that fit into a message, all of one trial or of none."""
        first = self._waiting[0]
        batch: list[Waiting] = []
        size = 0
        for waiting in self._waiting:
            size += self._row_bytes * len(waiting.own)
            if waiting.trial != first.trial or (batch and size > MAX_BATCH_BYTES):
                break
            batch.append(waiting)
        del self._waiting[: len(batch)]
        return batch


def _within(places: frozenset[int], start: int, count: int) -> frozenset[int]:
    """The ``places`` in the range of ``count`` from ``start``, relative to ``start``."""
    return frozenset(place - start for place in places if start <= place < start + count)
