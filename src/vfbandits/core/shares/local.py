"""All roles of a federation on secret shares in one process, message by message.

Each role has its own state and sees its messages only.  ``on_message`` is called with every
message, its sender and its receiver, so that a party's view can be recorded and sizes counted.
"""

import math
import os
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
from scipy.linalg import block_diag

from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.core.factor import arm_order_factor
from vfbandits.core.mask import Entropy, MaskShare
from vfbandits.core.ring import add, decode
from vfbandits.core.shares.active import ActiveServer, Event, Opened
from vfbandits.core.shares.covariance.form import HeldCovariance, revealed
from vfbandits.core.shares.dealer import Dealer
from vfbandits.core.shares.handover.epoch import HandoverDeal, plan_handover
from vfbandits.core.shares.handover.passage import HelperPassage, NextEpoch, hand_over
from vfbandits.core.shares.helper import MAX_OPEN, Helper
from vfbandits.core.shares.messages import Exchange, Message, WindowDeal, expect
from vfbandits.core.shares.offer import Offer
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError

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
        self.participants = self._make_participants(rotations)
        self.on_message = on_message
        self._entropy = entropy
        self._max_open = max_open
        self._turn: Matrix | None = None
        self._rotations = list(rotations)
        self._latest: tuple[Event, Vector, Offer] | None = None

    def hand_over(
        self, widths: Sequence[int], origins: Sequence[int], rotations: Sequence[MaskShare]
    ) -> None:
        """Go on with new secrets, and with participants of these widths.

        ``origins`` has each participant's number so far, or ``NEW``.  Nothing changes if it fails.
        """
        terms, plan = plan_handover(self.terms, widths, origins)
        if not self.active.needs_deal:
            self._close_window()
        dealer = Dealer(
            terms,
            entropy=self._entropy,
            epoch=self.dealer.epoch + 1,
            first_window=self.active.window,
            handover=plan,
        )
        deal = dealer.deal()
        dealt = expect(HandoverDeal, deal.deals[-1])
        self._record_deal(deal)
        passage = HelperPassage(
            self.helper.snapshot(),
            [*self.helper.open_contexts().items()],
            NextEpoch(terms, plan, dealer.helper_secrets()),
            dealt.place,
            entropy=self._entropy,
            max_open=self._max_open,
        )
        exchange = hand_over(
            self.active,
            NextEpoch(terms, plan, dealer.active_secrets()),
            dealt,
            entropy=self._entropy,
            max_open=self._max_open,
        )
        active = self._run_with(passage.answer, exchange)
        if passage.done is None:
            raise SharesError("the helper has not finished the hand-over")
        self.terms, self.dealer, self.active, self.helper = terms, dealer, active, passage.done
        self.active.take(deal)
        self.participants = self._make_participants(rotations)
        self._rotations, self._latest = list(rotations), None
        if terms.is_root and terms.layout == "per_arm" and not plan.keeps_all:
            self._turn = self._turn_of_twin()

    def _make_participants(self, rotations: Sequence[MaskShare]) -> list[SharingParticipant]:
        return [
            SharingParticipant(
                j,
                terms=self.terms,
                secrets=self.dealer.participant_secrets(j),
                rotation=rotation,
            )
            for j, rotation in enumerate(rotations)
        ]

    def _turn_of_twin(self) -> Matrix:
        """What turns the noise for a plain twin, which takes the symmetric root after a move.

        G = FQ with F symmetric; updates act on F and G alike, so Q stays.
        """
        _, G = self.reveal_root()
        w, V = np.linalg.eigh(G @ G.T)
        return np.asarray((V / np.sqrt(w)) @ V.T @ G)

    def check(self, blocks: Sequence[PlainBlock]) -> None:
        """Refuse blocks that a participant would not share."""
        for participant, block in zip(self.participants, blocks, strict=True):
            participant.check(block)

    def decide(self, blocks: Sequence[PlainBlock], offer: Offer | None = None) -> Opened:
        """The best arm for the participants' blocks, (n_arms, width) each, or (1, width).

        ``offer`` has the arms where participants share one row for all of them.
        """
        self.check(blocks)  # before a slot is used up
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
        if offer is not None:
            event = (place.window, place.slot)
            self._latest = event, self._user(blocks), offer
        return self._run(self.active.decide(ready, shared, offer))

    def _user(self, blocks: Sequence[PlainBlock]) -> Vector:
        """The row that participants share, behind the rotations, as the servers would see it."""
        turned = zip(self._rotations, blocks, strict=True)
        parts = [rotation.mask(block)[0] for rotation, block in turned]
        row = (np.ones(int(self.terms.intercept)), *parts, np.zeros(self.terms.idle))
        return np.concatenate(row) / self.terms.unit

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
        """What a plain twin draws for a decision of this window to have the same deviations.

        In "per_arm" that is z (dim,), behind the rotations.  In other layouts it is known for the
        latest decision.

        Only a federation in one process can do this; each server knows half of it.
        """
        if not self.terms.is_noisy:
            return np.zeros(self.terms.dim)
        halves = [server.half_noise(event) for server in (self.active, self.helper)]
        z = decode(add(*halves)) / self.terms.posterior_scale
        if self._latest is None or self._latest[0] != event:
            return z if self._turn is None else np.asarray(self._turn @ z)
        return self._normals(z, *self._latest[1:])

    def _normals(self, z: Vector, u: Vector, offer: Offer) -> Vector:
        """The normals by which a plain bandit of this layout has the deviations x·Gz.

        In "disjoint" it draws one for each arm, in "outer" one for each feature of an arm: no
        rotation is in them.
        """
        blocks = self._root_blocks()
        if self.terms.n_blocks > 1:
            parts = z.reshape(len(blocks), -1)
            turned = [(u @ blocks[b], parts[b]) for b in offer.blocks]
            lengths = [float(np.linalg.norm(f)) for f, _ in turned]
            deviations = [float(f @ part) for f, part in turned]
            pairs = zip(deviations, lengths, strict=True)
            return np.array([v / length if length else 0.0 for v, length in pairs])
        U = np.kron(u, np.eye(self.terms.arm_width))
        F = U @ blocks[0]
        L, wanted = arm_order_factor(F @ F.T), F @ z
        normals = np.zeros(len(L))
        for k, pivot in enumerate(np.diagonal(L)):
            if pivot > 0.0:
                normals[k] = (wanted[k] - L[k, :k] @ normals[:k]) / pivot
        return normals

    def _root_blocks(self) -> list[Matrix]:
        """The blocks of G."""
        active, helper = self.active.held(), self.helper.held()
        root, _, a, g, _ = (decode(add(*pair)) / 2.0 for pair in zip(active, helper, strict=True))
        n = self.terms.n_blocks
        parts = zip(*(np.split(part, n, axis=1) for part in (g, a)), strict=True)
        pairs = zip(np.split(root, n), parts, strict=True)
        return [block - of_g.T @ of_a for block, (of_g, of_a) in pairs]

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
        _, theta, _, g, h = (decode(add(*sides)) / 2.0 for sides in both)
        n, scale = self.terms.row_dim, math.sqrt(self.terms.ridge)
        kept = np.arange(self.terms.dim) % n < n - self.terms.idle * self.terms.arm_width
        G = block_diag(*self._root_blocks())
        return (theta + h @ g)[kept] / scale, G[kept] / scale

    def _close_window(self) -> None:
        while not self.active.is_full:
            self._run(self.active.fill())
        self._run(self.active.fold())

    def _ensure_deal(self) -> None:
        if self.active.needs_deal:
            deal = self.dealer.deal()
            self._record_deal(deal)
            self.active.take(deal)

    def _record_deal(self, deal: WindowDeal) -> None:
        for message in deal.deals:
            self._record(DEALER, ACTIVE, message)

    def _run(self, exchange: Exchange[_Result]) -> _Result:
        return self._run_with(self.helper.answer, exchange)

    def _run_with(
        self, answer: Callable[[Message], Message], exchange: Exchange[_Result]
    ) -> _Result:
        try:
            message = next(exchange)
            while True:
                self._record(ACTIVE, HELPER, message)
                reply = answer(message)
                self._record(HELPER, ACTIVE, reply)
                message = exchange.send(reply)
        except StopIteration as end:
            result: _Result = end.value
            return result

    def _record(self, sender: str, receiver: str, message: Message) -> None:
        if self.on_message is not None:
            self.on_message(sender, receiver, message)
