"""From one epoch of the dealer to the next: new secrets, and perhaps other participants.

Between two windows the servers mask their state again, under words of the new epoch.  A server has
its side P of each number v (``sides``), and P_A + P_B = 2v.  Both sides are odd or both are even:
P_A/2 rounded down and P_B/2 rounded up add up to v, but for the top bit, which no product sees.
Each server adds a word of its own and sends the sum; the new dealer knows the words and so the new
gap, and needs nothing of the old epoch.  Nothing is rounded.

Contexts that wait for a reward are shared as sums.  Server A draws a seed and sends it; A adds, and
B subtracts, words that follow from it.  With the secrets of the old dealer, one server's new state
tells nothing then; the seed must not be kept.

A participant that joins starts at the prior, which is public and has no mask.  One that leaves is
eliminated column by column (``leaving``), under words of the new epoch.  Of Lambda⁻¹ its rows and
columns are cut out then.  A square root keeps them, back at the prior and apart from all others:
they are *idle* and count as zeros in each context, until a participant that joins takes them over.

In layout "disjoint" all blocks of the state change alike, in the same messages.  In "outer" a
feature has as many columns as it meets arm features.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.ring import (
    SECRET_SIZE,
    Layout,
    Sheet,
    SheetName,
    Words,
    WordSource,
    add,
    shifted_down,
    subtract,
    symmetric,
    zeros,
)
from vfbandits.core.shares.blocks import split_blocks
from vfbandits.core.shares.covariance.form import identity
from vfbandits.core.shares.messages import Full, Message, Place, Short, message_class
from vfbandits.core.shares.sides import side
from vfbandits.core.shares.terms import Shapes, ShareTerms
from vfbandits.errors import SettingError, SharesError, SnapshotError

NEW = -1
KIND = "handover"

Event = tuple[int, int]
Columns = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Handover:
    """Whose columns the state has before, and who of the participants after was there.

    Attributes
    ----------
    widths
        Of the participants before.
    idle
        How many columns of the state before belong to no participant.
    origins
        For each participant after, its number before; ``NEW`` for one that joins.

    >>> Handover(widths=(2, 3, 1), idle=0, origins=(0, 2, NEW)).lost
    (2, 3, 4)
    """

    widths: tuple[int, ...]
    idle: int
    origins: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse participants that were not there, or that come twice."""
        stay = [number for number in self.origins if number != NEW]
        if len({*stay}) != len(stay) or not {*stay} <= {*range(len(self.widths))} or not stay:
            raise SettingError(
                f"a hand-over keeps some of {len(self.widths)} participants, each once, got "
                f"{list(self.origins)}"
            )

    @property
    def dim(self) -> int:
        """Features before, with idle ones."""
        return sum(self.widths) + self.idle

    @property
    def keeps_all(self) -> bool:
        """Whether the participants are the same after it, in the same order."""
        return self.origins == (*range(len(self.widths)),)

    @property
    def lost(self) -> tuple[int, ...]:
        """Features of those that leave."""
        gone = [number for number in range(len(self.widths)) if number not in self.origins]
        return tuple(column for number in gone for column in self._block(number))

    def _block(self, number: int) -> range:
        start = sum(self.widths[:number])
        return range(start, start + self.widths[number])

    def columns(self, after: ShareTerms) -> Columns:
        """For each feature after, its number before; ``NEW`` where it starts at the prior."""
        free = [*range(sum(self.widths), self.dim), *self.lost] if after.is_root else []
        columns: list[int] = []
        for number, width in zip(self.origins, after.widths, strict=True):
            if number == NEW:
                taken, free = free[:width], free[width:]
                columns += taken + [NEW] * (width - len(taken))
            else:
                columns += self._block(number)
        return np.array(columns + free, dtype=np.intp)

    def in_blocks(self, after: ShareTerms) -> "BlockChange":
        """The same for each block of the state."""
        return BlockChange(
            n_blocks=after.n_blocks,
            before=(self.dim + after.intercept) * after.arm_width,
            after=after.row_dim,
            is_root=after.is_root,
            columns=_of_block(self.columns(after), after),
            idle=_of_features([*self.lost, *range(sum(self.widths), self.dim)], after),
            lost=tuple(_of_features(self.lost, after).tolist()),
        )

    def refuse_other(self, after: ShareTerms) -> None:
        """Refuse terms of which it does not lead to the widths."""
        stay = zip(self.origins, after.widths, strict=False)
        fits = len(self.origins) == len(after.widths) and all(
            number == NEW or self.widths[number] == width for number, width in stay
        )
        if not fits or len(self.columns(after)) != sum(after.widths) + after.idle:
            raise SettingError(
                f"a hand-over from widths {list(self.widths)} that keeps {list(self.origins)} does "
                f"not lead to widths {list(after.widths)} with {after.idle} idle columns"
            )

    def to_numbers(self) -> NDArray[np.uint64]:
        """Its form among dealt words, for server A to compare."""
        origins = [number + 1 for number in self.origins]
        numbers = [len(self.widths), *self.widths, self.idle, *origins]
        return np.array(numbers, dtype=np.uint64)

    def to_record(self) -> dict[str, object]:
        """For the dealer's state."""
        return {"widths": [*self.widths], "idle": self.idle, "origins": [*self.origins]}

    @classmethod
    def from_record(cls, record: object) -> "Handover | None":
        """What was kept; None for an epoch that begins without a hand-over."""
        match record:
            case {"widths": [*widths], "idle": int(idle), "origins": [*origins]}:
                return cls(tuple(widths), idle, tuple(origins))
        if record is None:
            return None
        raise SnapshotError("the state of a dealer has a hand-over that cannot be read")


@dataclass(frozen=True, slots=True, eq=False)
class BlockChange:
    """A hand-over in the columns of one block of the state; all blocks change alike.

    Attributes
    ----------
    before, after
        Width of a block.
    columns
        For each column after, its number before; ``NEW`` where it starts at the prior.
    idle
        Columns before that count as zeros in each context after.
    lost
        Those of them that are eliminated.
    """

    n_blocks: int
    before: int
    after: int
    is_root: bool
    columns: Columns
    idle: Columns
    lost: tuple[int, ...]

    @property
    def dim(self) -> int:
        """Width of the state before."""
        return self.n_blocks * self.before

    def carried(self, context: Words) -> Words:
        """A whole context in the columns after: what those that left have shown is zero."""
        carried = np.where(np.isin(self.columns, self.idle), NEW, self.columns)
        old = np.flatnonzero(carried != NEW)
        new = zeros(self.n_blocks, self.after)
        new[:, :, old] = context.reshape(2, self.n_blocks, self.before)[:, :, carried[old]]
        return new.reshape(2, -1)


def _of_features(features: Iterable[int], terms: ShareTerms) -> Columns:
    """The columns of a block that have features: [1; u] ⊗ w has w for each feature."""
    p, first = terms.arm_width, np.array([*features], dtype=np.intp) + terms.intercept
    return (first[:, None] * p + np.arange(p)).reshape(-1)


def _of_block(features: Columns, terms: ShareTerms) -> Columns:
    """As ``_of_features``, with the columns of the constant, and ``NEW`` for new features."""
    p = terms.arm_width
    columns = _of_features(features, terms)
    columns[np.repeat(features == NEW, p)] = NEW
    return np.concatenate((np.arange(terms.intercept * p), columns))


def plan_handover(
    before: ShareTerms, widths: Iterable[int], origins: Iterable[int]
) -> tuple[ShareTerms, Handover]:
    """The terms after a hand-over to participants of these widths, and the hand-over.

    >>> before = ShareTerms(widths=(2, 3), max_arms=4, ridge=1.0, posterior_scale=0.1)
    >>> after, handover = plan_handover(before, (2, 3, 1), (0, 1, NEW))
    >>> after.dim, handover.lost
    (6, ())
    """
    plan = Handover(before.widths, before.idle, tuple(origins))
    bare = replace(before, widths=tuple(widths), idle=0)
    after = replace(bare, idle=len(plan.columns(bare)) - sum(bare.widths))
    plan.refuse_other(after)
    return after, plan


# --- words and messages ---------------------------------------------------------------------------


def state_words(change: BlockChange) -> Shapes:
    """Words of either server for the state: of a matrix that is no root, for triangles."""
    d = change.before
    size = d * d if change.is_root else d * (d + 1) // 2
    return {"mask_state": (change.n_blocks * size,), "mask_theta": (change.dim,)}


@message_class
class HandOver(Message):
    """A's parts of the state and theta, masked again, and the seed for waiting contexts."""

    KIND: ClassVar[int] = 70

    seed: Full
    state: Full
    theta: Full


@message_class
class HandedOver(Message):
    """B's parts of the same, and its masked scalars for the columns that leave."""

    KIND: ClassVar[int] = 71

    state: Full
    theta: Full
    scalars: Full


@message_class
class HandoverDeal(Message):
    """For a hand-over: A's parts of the masks of all steps that eliminate columns, in order.

    ``plan`` says which hand-over it is for (``Handover.to_numbers``).  ``opened`` has the dealer's
    terms of the numbers that A opens, each blinded by a word of B's.
    """

    KIND: ClassVar[int] = 74

    plan: Short
    masks: Full
    opened: Full


def handover_sheet(source: WordSource, place: Place, shapes: Shapes) -> Sheet:
    """The words of one step of a hand-over."""
    return source.sheet(SheetName(KIND, *place), Layout(shapes))


# --- the state ------------------------------------------------------------------------------------


class Masked(NamedTuple):
    """Sides, or the dealer's gaps, of a state: the rows of its blocks, (dim, d), and theta."""

    matrix: Words
    theta: Words


def masked_of(words: Mapping[str, Words], *, is_root: bool) -> Masked:
    """From what a server keeps between two windows."""
    if is_root:
        return Masked(words["rows"], words["theta"][:, 0])
    return Masked(words["S"], words["theta"])


def kept_of(masked: Masked, *, is_root: bool) -> dict[str, Words]:
    """As a server keeps it between two windows."""
    if is_root:
        return {"rows": masked.matrix, "theta": masked.theta[:, None]}
    return {"S": masked.matrix, "theta": masked.theta}


def halved(sides: Words, *, is_helper: bool) -> Words:
    """A server's part of a number, from its side: both parts add up to it modulo 2^127."""
    half = shifted_down(sides, 1)
    if not is_helper:
        return half
    odd = zeros(*sides.shape[1:])
    odd[0] = sides[0] & np.uint64(1)
    return add(half, odd)


def flat(matrix: Words, change: BlockChange) -> Words:
    """The numbers of a state that are masked again: all, or the triangles of its blocks."""
    if change.is_root:
        return matrix.reshape(2, -1)
    d = change.before
    i, j = np.tril_indices(d)
    return matrix.reshape(2, change.n_blocks, d, d)[:, :, i, j].reshape(2, -1)


def unflat(numbers: Words, change: BlockChange) -> Words:
    """The rows of the blocks of which these are the numbers."""
    if change.is_root:
        return numbers.reshape(2, change.dim, change.before)
    blocks = split_blocks(numbers, change.n_blocks)
    return np.concatenate([symmetric(block, change.before) for block in blocks], axis=1)


class Remasking:
    """One server's part of masking its state again."""

    def __init__(self, held: Masked, sheet: Sheet, change: BlockChange, *, is_helper: bool) -> None:
        self._change = change
        self._masks = sheet.take("mask_state"), sheet.take("mask_theta")
        parts = (
            halved(flat(held.matrix, change), is_helper=is_helper),
            halved(held.theta, is_helper=is_helper),
        )
        self.state, self.theta = (
            add(part, mask) for part, mask in zip(parts, self._masks, strict=True)
        )

    def joined(self, state: Words, theta: Words) -> Masked:
        """The sides after the hand-over, with what the other server has sent."""
        if (state.shape, theta.shape) != (self.state.shape, self.theta.shape):
            raise SharesError(
                f"wanted a state of shape {self.state.shape[1:]} and theta of shape "
                f"{self.theta.shape[1:]}, got {state.shape[1:]} and {theta.shape[1:]}: the other "
                "server has other terms"
            )
        numbers = side(add(self.state, state), self._masks[0])
        return Masked(unflat(numbers, self._change), side(add(self.theta, theta), self._masks[1]))


def dealt_gaps(A: Sheet, B: Sheet, change: BlockChange) -> Masked:
    """The dealer's gaps of the state after it was masked again."""
    numbers = subtract(A.take("mask_state"), B.take("mask_state"))
    theta = subtract(A.take("mask_theta"), B.take("mask_theta"))
    return Masked(unflat(numbers, change), theta)


def placed(masked: Masked, change: BlockChange, *, is_gap: bool) -> Masked:
    """The state with the columns that it has after; new ones are at the prior.

    Of sides, new ones have the public number; of gaps, none.
    """
    columns, n, d = change.columns, change.before, change.after
    old, new = np.flatnonzero(columns != NEW), np.flatnonzero(columns == NEW)
    theta = zeros(change.n_blocks, d)
    theta[:, :, old] = masked.theta.reshape(2, -1, n)[:, :, columns[old]]
    blocks = masked.matrix.reshape(2, -1, n, n)
    start = zeros(change.n_blocks, d, d)
    if change.is_root:
        # New columns of a root come after all others, which are as many as there were before.
        start[:, :, old, :n] = blocks[:, :, columns[old]]
        fresh = n + np.arange(len(new))
    else:
        start[:, :, old[:, None], old] = blocks[:, :, columns[old][:, None], columns[old]]
        fresh = new
    if not is_gap:
        start[:, :, new, fresh] = identity(1)[:, None, :, 0]
    return Masked(start.reshape(2, -1, d), theta.reshape(2, -1))


# --- contexts that wait for a reward --------------------------------------------------------------


def new_seed(own: WordSource, place: Place) -> Words:
    """A's seed for the contexts that wait, (2,): the same if the message has to be sent again."""
    return own.sheet(SheetName("seed", *place), {"seed": (2,)}).take("seed")


def refreshed(
    contexts: Iterable[tuple[Event, Words]],
    seed: Words,
    change: BlockChange,
    *,
    is_helper: bool,
) -> list[tuple[Event, Words]]:
    """A server's shares of the contexts that wait, with other words, in the columns after."""
    if seed.shape != (2, 2):
        raise SharesError(f"wanted a seed of {SECRET_SIZE} bytes, got words of shape {seed.shape}")
    source = WordSource(seed.astype("<u8").tobytes())
    layout = Layout({"words": (change.dim,)})
    mix = subtract if is_helper else add
    result = []
    for (window, slot), share in contexts:
        words = source.sheet(SheetName("refresh", 0, window, 0, slot), layout).take("words")
        result.append(((window, slot), change.carried(mix(share, words))))
    return result
