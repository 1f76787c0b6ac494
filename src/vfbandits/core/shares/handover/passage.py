"""The two servers' parts of a hand-over, from the state of one epoch to that of the next.

Neither changes the server that it starts from.  A hand-over that was interrupted is done again from
the start: both send the same bytes, and B answers what it has answered before.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from vfbandits.core.mask import Entropy
from vfbandits.core.ring import SECRET_SIZE, Words, WordSource, add, zeros
from vfbandits.core.shares.active import ActiveServer
from vfbandits.core.shares.dealer import ServerSecrets
from vfbandits.core.shares.handover.epoch import (
    BlockChange,
    Event,
    HandedOver,
    HandOver,
    Handover,
    HandoverDeal,
    Masked,
    Remasking,
    handover_sheet,
    kept_of,
    masked_of,
    new_seed,
    placed,
    refreshed,
    state_words,
)
from vfbandits.core.shares.handover.leaving import (
    Eliminate,
    Eliminated,
    Elimination,
    Scalars,
    Step,
    factors_of,
    inverse_root,
    n_factors,
    of_column,
    pivot_share,
    reopened,
    share_of,
    steps_of,
)
from vfbandits.core.shares.helper import MAX_OPEN, Helper
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import Exchange, Message, Place, expect
from vfbandits.core.shares.sides import side
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError


@dataclass(frozen=True, slots=True, eq=False)
class NextEpoch:
    """What a server needs of the next epoch, and how the state comes into it."""

    terms: ShareTerms
    plan: Handover
    secrets: ServerSecrets = field(repr=False)

    @property
    def change(self) -> BlockChange:
        """What becomes of each block of the state."""
        return self.plan.in_blocks(self.terms)

    def refuse_other_words(self, deal: HandoverDeal) -> None:
        """Refuse what was dealt for another hand-over."""
        if deal.plan.tolist() != self.plan.to_numbers().tolist():
            raise SharesError(
                "the dealer has made words for another hand-over, from other participants or idle "
                "columns than the state has: deal the epoch with the roster in force (--from), and "
                "with the dealer's state of the epoch before in its folder"
            )

    def refuse_other_state(self, masked: Masked) -> None:
        """Refuse a plan that starts from a state of another width."""
        self.plan.refuse_other(self.terms)
        dim = self.change.dim
        if masked.theta.shape[1] != dim:
            raise SharesError(
                f"a hand-over starts from {dim} columns, got a state of {masked.theta.shape[1]}"
            )


def hand_over(
    server: ActiveServer,
    after: NextEpoch,
    deal: HandoverDeal,
    *,
    entropy: Entropy = os.urandom,
    max_open: int = MAX_OPEN,
) -> Exchange[ActiveServer]:
    """Server A in the next epoch, before the window for which ``deal`` was made."""
    terms, change, place = after.terms, after.change, deal.place
    after.refuse_other_words(deal)
    kept = server.snapshot()
    masked = masked_of(kept.words, is_root=terms.is_root)
    after.refuse_other_state(masked)
    sheet = handover_sheet(after.secrets.own, place, state_words(change))
    seed = new_seed(WordSource(kept.secret("noise")), place)
    own = Remasking(masked, sheet, change, is_helper=False)
    reply = expect(HandedOver, (yield HandOver(place, seed, own.state, own.theta)))
    state = own.joined(reply.state, reply.theta)
    if change.lost:
        state = yield from _eliminate(state, after, deal, reply.scalars)
    words = kept_of(placed(state, change, is_gap=False), is_root=terms.is_root)
    header = {"window": place.window, "noise": entropy(SECRET_SIZE).hex(), "idle": terms.idle}
    contexts = refreshed(server.open_contexts().items(), seed, change, is_helper=False)
    return ActiveServer.restore(
        terms, after.secrets, Kept(header, words), contexts=contexts, max_open=max_open
    )


def _eliminate(
    state: Masked, after: NextEpoch, deal: HandoverDeal, factors: Words
) -> Exchange[Masked]:
    """A's part of taking the columns of those that leave out of the state."""
    change, place = after.change, deal.place
    if factors.shape != (2, n_factors(change)):
        raise SharesError(
            f"wanted {n_factors(change)} masked factors from the helper, got {factors.shape[1:]}"
        )
    elimination = Elimination(state, change)
    start, scalars = 0, zeros(change.n_blocks)
    for step in steps_of(change):
        sheet = handover_sheet(after.secrets.own, step.place(place), step.active_words())
        mask = deal.masks[:, start : start + step.size]
        start += step.size
        squares, put_in = zeros(0), zeros(0)
        if step.name == "scale":
            scalars, squares = factors_of(factors, step, change)
        elif step.name == "row":
            hidden = sheet.take("mask_scalar")
            put_in = add(scalars, hidden)
            scalars = side(put_in, hidden)
        own = share_of(elimination, step, scalars, sheet.take("rho"))
        message = Eliminate(step.place(place), own, put_in)
        reply = expect(Eliminated, (yield message))
        if step.name == "scale":
            blind = of_column(deal.opened, step, change)
            share = pivot_share(elimination, step, squares, blind)
            if reply.opened.shape != share.shape:
                raise SharesError(f"wanted the helper's shares of {change.n_blocks} numbers")
            scalars = inverse_root(share, reply.opened)
        elimination.take(step, reopened(own, reply.shares, np.ascontiguousarray(mask)))
    return elimination.result()


class HelperPassage:
    """B's part of a hand-over: one message in, one message out; ``done`` is B in the next epoch.

    A repeated message gets the same answer, and another one in its place is refused.
    """

    def __init__(
        self,
        kept: Kept,
        contexts: Iterable[tuple[Event, Words]],
        after: NextEpoch,
        place: Place,
        *,
        entropy: Entropy = os.urandom,
        max_open: int = MAX_OPEN,
    ) -> None:
        self._masked = masked_of(kept.words, is_root=after.terms.is_root)
        after.refuse_other_state(self._masked)
        self._own_source = WordSource(kept.secret("noise"))
        self._contexts = contexts
        self._after = after
        self._place = place
        self._entropy = entropy
        self._max_open = max_open
        self._change = after.change
        self._steps = steps_of(self._change)
        self._next: Step | None = None
        self._elimination: Elimination | None = None
        self._factors = zeros(0)
        self._seed = zeros(0)
        self._answered: dict[Place, tuple[bytes, Message]] = {}
        self.done: Helper | None = None

    def __repr__(self) -> str:
        """Its place; no share."""
        return f"HelperPassage({self._place}, answered={len(self._answered)})"

    def answer(self, message: Message) -> Message:
        """The answer to one message of A's."""
        before = self._answered.get(message.place)
        if before is not None:
            if before[0] != message.to_bytes():
                raise SharesError(
                    f"step {message.place.slot} of the hand-over to epoch {self._place.epoch} was "
                    "done before: a second message under the same words would show the "
                    "difference of the two"
                )
            return before[1]
        if isinstance(message, HandOver) and message.place == self._place:
            reply: Message = self._hand_over(message)
        elif isinstance(message, Eliminate) and self._next is not None:
            reply = self._eliminate(message, self._next)
        else:
            raise SharesError(
                f"a hand-over to epoch {self._place.epoch} is under way, got a "
                f"{type(message).__name__} message for {message.place}"
            )
        self._answered[message.place] = message.to_bytes(), reply
        return reply

    def _hand_over(self, message: HandOver) -> HandedOver:
        change = self._change
        shapes = state_words(change) | {"mask_scalars": (n_factors(change),)}
        sheet = handover_sheet(self._after.secrets.own, self._place, shapes)
        own = Remasking(self._masked, sheet, change, is_helper=True)
        if message.seed.shape != (2, 2):
            raise SharesError(f"wanted a seed of two words, got {message.seed.shape[1:]}")
        state = own.joined(message.state, message.theta)
        factors = Scalars(self._own_source, self._place, n_factors(change) // 2).words
        mask = sheet.take("mask_scalars")
        masked_factors = add(factors, mask)
        self._factors = side(masked_factors, mask)
        self._seed = message.seed
        if change.lost:
            self._elimination = Elimination(state, change)
            self._next = next(self._steps)
        else:
            self._finish(state)
        return HandedOver(self._place, own.state, own.theta, masked_factors)

    def _eliminate(self, message: Eliminate, step: Step) -> Eliminated:
        elimination, n_blocks = self._elimination, self._change.n_blocks
        wanted = (2, n_blocks) if step.name == "row" else (2, 0)
        fits = message.shares.shape == (2, step.size) and message.scalar.shape == wanted
        if elimination is None or message.place != step.place(self._place) or not fits:
            raise SharesError(
                f"the next step of the hand-over is {step.number}, with {step.size} numbers, got "
                f"step {message.place.slot - self._place.slot}"
            )
        place = message.place
        sheet = handover_sheet(self._after.secrets.own, place, step.helper_words())
        scalars, opened = zeros(n_blocks), zeros(0)
        if step.name == "scale":
            scalars, squares = factors_of(self._factors, step, self._change)
            opened = pivot_share(elimination, step, squares, sheet.take("blind"))
        elif step.name == "row":
            scalars = message.scalar  # A's mask alone is on it
        own = share_of(elimination, step, scalars, sheet.take("rho"))
        elimination.take(step, reopened(own, message.shares, sheet.take("mask")))
        self._next = next(self._steps, None)
        if self._next is None:
            self._finish(elimination.result())
        return Eliminated(place, own, opened)

    def _finish(self, state: Masked) -> None:
        terms, change = self._after.terms, self._change
        words = kept_of(placed(state, change, is_gap=False), is_root=terms.is_root)
        header = {
            "epoch": self._place.epoch,
            "window": self._place.window,
            "noise": self._entropy(SECRET_SIZE).hex(),
            "idle": terms.idle,
        }
        contexts = refreshed(self._contexts, self._seed, change, is_helper=True)
        self.done = Helper.restore(
            terms,
            self._after.secrets,
            Kept(header, words),
            contexts=contexts,
            max_open=self._max_open,
        )
