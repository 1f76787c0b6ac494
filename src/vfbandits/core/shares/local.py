"""All roles of a federation on secret shares in one process, message by message.

Each role has its own state and sees its messages only.  ``on_message`` is called with every
message, its sender and its receiver, so that a party's view can be recorded and sizes counted.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.core.mask import Entropy, MaskShare
from vfbandits.core.ring import add, decode
from vfbandits.core.shares.active import ActiveServer, Event, Opened
from vfbandits.core.shares.covariance import HeldCovariance, revealed
from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.helper import MAX_OPEN, Helper
from vfbandits.core.shares.messages import Exchange, Message
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.core.shares.terms import ShareTerms

_Result = TypeVar("_Result")
Recorder = Callable[[str, str, Message], None]

ACTIVE, HELPER, DEALER, PARTICIPANT = "active", "helper", "dealer", "participant"


class LocalShares:
    """A dealer, two servers and the participants, without a network between them.

    >>> import numpy as np
    >>> terms = ShareTerms(widths=(1, 1), max_arms=2, ridge=1.0, posterior_scale=0.0)
    >>> local = LocalShares(terms, rotations=[MaskShare(np.eye(1))] * 2)
    >>> X = np.array([[0.0], [0.5]])
    >>> event = local.pick(local.decide([X, X]), 1)
    >>> local.learn(event, 1.0)
    >>> local.decide([X, X]).arm
    1
    """

    def __init__(
        self,
        terms: ShareTerms,
        *,
        rotations: Sequence[MaskShare],
        entropy: Entropy = os.urandom,
        max_open: int = MAX_OPEN,
        on_message: Recorder | None = None,
    ) -> None:
        self.terms = terms
        self.dealer = Dealer(terms, entropy=entropy)
        self.active = ActiveServer(
            terms, self.dealer.active_secrets(), entropy=entropy, max_open=max_open
        )
        self.helper = Helper(
            terms, self.dealer.helper_secrets(), entropy=entropy, max_open=max_open
        )
        self.participants = [
            SharingParticipant(
                j, terms=terms, secrets=self.dealer.participant_secrets(j), rotation=rotation
            )
            for j, rotation in enumerate(rotations)
        ]
        self.on_message = on_message

    def decide(self, blocks: Sequence[PlainBlock]) -> Opened:
        """The best arm for the participants' blocks, (n_arms, width) each."""
        for participant, block in zip(self.participants, blocks, strict=True):
            participant.check(block)  # before a slot is used up
        if self.active.is_used_up or self.active.is_full:
            self._close_window()
        self._ensure_deal()
        place = self.active.next_place()
        ready = self._run(self.active.prepare(place))
        shared = [
            participant.share(place, block)
            for participant, block in zip(self.participants, blocks, strict=True)
        ]
        for message in shared:
            self._record(PARTICIPANT, ACTIVE, message)
        return self._run(self.active.decide(ready, shared))

    def pick(self, opened: Opened, arm: int) -> Event:
        """Keep the context of the arm that is shown; returns what names it."""
        return self._run(self.active.pick(opened, arm))

    def learn(self, event: Event, reward: float) -> None:
        """Learn a reward."""
        if self.active.is_full:  # its fold failed on the way
            self._close_window()
        self._ensure_deal()
        self._run(self.active.learn(event, reward))
        if self.active.is_full:
            self._close_window()

    def noise(self, event: Event) -> Vector:
        """The z of a decision of this window, (dim,), behind the rotations: for a plain twin.

        Only a federation in one process can do this; each server knows half of it.
        """
        if not self.terms.is_noisy:
            return np.zeros(self.terms.dim)
        halves = [server.half_noise(event) for server in (self.active, self.helper)]
        return decode(add(*halves)) / self.terms.posterior_scale

    def reveal(self) -> tuple[Vector, Matrix]:
        """The whole secret state: theta and Lambda⁻¹, behind the rotations.

        Only a federation in one process can do this; parity reports and tests need it.
        """
        active, helper = self.active.held(), self.helper.held()
        if isinstance(active, HeldCovariance) and isinstance(helper, HeldCovariance):
            return revealed(active, helper, self.terms.ridge)
        theta, G = self.reveal_root()
        return theta, G @ G.T

    def reveal_root(self) -> tuple[Vector, Matrix]:
        """As ``reveal``, with the square root G of Lambda⁻¹ = GG' that noise is multiplied by."""
        both = zip(self.active.held(), self.helper.held(), strict=True)
        root, theta, a, g, h = (decode(add(*sides)) / 2.0 for sides in both)
        scale = math.sqrt(self.terms.ridge)
        return (theta + h @ g) / scale, (root - g.T @ a) / scale

    def _close_window(self) -> None:
        while not self.active.is_full:
            self._run(self.active.fill())
        self._run(self.active.fold())

    def _ensure_deal(self) -> None:
        if self.active.needs_deal:
            deal = self.dealer.deal()
            if self.on_message is not None:
                for message in (*deal.decisions, *deal.rewards, deal.fold):
                    self.on_message(DEALER, ACTIVE, message)
            self.active.take(deal)

    def _run(self, exchange: Exchange[_Result]) -> _Result:
        try:
            message = next(exchange)
            while True:
                self._record(ACTIVE, HELPER, message)
                reply = self.helper.answer(message)
                self._record(HELPER, ACTIVE, reply)
                message = exchange.send(reply)
        except StopIteration as end:
            result: _Result = end.value
            return result

    def _record(self, sender: str, receiver: str, message: Message) -> None:
        if self.on_message is not None:
            self.on_message(sender, receiver, message)
