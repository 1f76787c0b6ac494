"""Rounds on secret shares with all roles in one process, and the processor time of each role.

In a federation each server has a machine to itself.  So a block of rounds is played first by copies
of the servers, which record what they are sent and dealt, and then each server plays it again
alone, in one go, as the plain bandit beside it does.  Timed step by step and in turns, the servers,
the dealer and the participants would push each other out of the caches.
"""

import copy
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from vfbandits.core.arrays import Matrix, PlainBlock
from vfbandits.core.shares.active import ActiveServer
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.messages import Contribution, Exchange, Message, Place, WindowDeal
from vfbandits.core.shares.offer import Offer
from vfbandits.errors import SharesError

REWARD = 0.5
_Result = TypeVar("_Result")


class Clock:
    """Processor time by role, in seconds."""

    def __init__(self) -> None:
        self.spent: defaultdict[str, float] = defaultdict(float)

    def run(self, role: str, call: Callable[[], _Result]) -> _Result:
        """Call, and put the time down to ``role``."""
        started = time.process_time()
        try:
            return call()
        finally:
            self.spent[role] += time.process_time() - started


class Rounds:
    """Decisions with their rewards, as server A takes part in them; others come in by methods."""

    def __init__(self, active: ActiveServer, offer: Offer | None) -> None:
        self.active = active
        self.offer = offer

    def deal(self) -> WindowDeal:
        """What the dealer made for the next window."""
        raise NotImplementedError

    def share(self, place: Place, contexts: Matrix) -> list[Contribution]:
        """The participants' blocks."""
        raise NotImplementedError

    def run(self, exchange: Exchange[_Result]) -> _Result:
        """Send what A yields to the helper, and its answers to A."""
        raise NotImplementedError

    def play(self, rounds: list[Matrix]) -> None:
        """A decision and its reward for each of these contexts."""
        active, run = self.active, self.run
        for contexts in rounds:
            if active.needs_deal:
                active.take(self.deal())
            place = active.next_place()
            ready = run(active.prepare(place))
            opened = run(active.decide(ready, self.share(place, contexts), self.offer))
            arm = opened.arm
            if opened.statistics is not None:
                arm = int(opened.statistics.means.argmax())
            run(active.learn(run(active.pick(opened, arm)), REWARD))
            if active.is_full:
                run(active.fold())


class RecordedRounds(Rounds):
    """Rounds that copies of the servers play; what each server is given is recorded."""

    def __init__(self, local: LocalShares, offer: Offer | None, clock: Clock) -> None:
        super().__init__(copy.deepcopy(local.active), offer)
        self._helper = copy.deepcopy(local.helper)
        self._local = local
        self._cuts = np.cumsum(local.terms.widths)[:-1]
        self._clock = clock
        self.dealt: list[WindowDeal] = []
        self.shared: list[list[Contribution]] = []
        self.sent: list[Message] = []
        self.answers: list[Message] = []

    def deal(self) -> WindowDeal:
        """As in ``Rounds``."""
        deal = self._clock.run("dealer", self._local.dealer.deal)
        self.dealt.append(deal)
        return deal

    def share(self, place: Place, contexts: Matrix) -> list[Contribution]:
        """As in ``Rounds``."""
        blocks = [PlainBlock(block) for block in np.split(contexts, self._cuts, axis=1)]
        pairs = [*zip(self._local.participants, blocks, strict=True)]
        shared = self._clock.run(
            "participants", lambda: [one.share(place, block) for one, block in pairs]
        )
        self.shared.append(shared)
        return shared

    def run(self, exchange: Exchange[_Result]) -> _Result:
        """As in ``Rounds``."""
        try:
            message = next(exchange)
            while True:
                answer = self._helper.answer(message)
                self.sent.append(message)
                self.answers.append(answer)
                message = exchange.send(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result


class RepeatedRounds(Rounds):
    """The same rounds, played by server A alone."""

    def __init__(self, active: ActiveServer, before: RecordedRounds) -> None:
        super().__init__(active, before.offer)
        self._dealt = iter(before.dealt)
        self._shared = iter(before.shared)
        self._answers: Iterator[Message] = iter(before.answers)

    def deal(self) -> WindowDeal:
        """As in ``Rounds``."""
        return next(self._dealt)

    def share(self, place: Place, contexts: Matrix) -> list[Contribution]:
        """As in ``Rounds``."""
        del place, contexts
        return next(self._shared)

    def run(self, exchange: Exchange[_Result]) -> _Result:
        """As in ``Rounds``."""
        answers = self._answers
        try:
            next(exchange)
            while True:
                exchange.send(next(answers))
        except StopIteration as end:
            result: _Result = end.value
            return result


def timed_rounds(
    local: LocalShares, offer: Offer | None, rounds: list[Matrix]
) -> tuple[dict[str, float], RecordedRounds]:
    """Play these rounds: processor time by role, in seconds, and what the servers were given."""
    clock = Clock()
    before = RecordedRounds(local, offer, clock)
    before.play(rounds)
    again = RepeatedRounds(local.active, before)
    clock.run("A", lambda: again.play(rounds))
    answers = clock.run("B", lambda: [*map(local.helper.answer, before.sent)])
    if [a.to_bytes() for a in answers] != [a.to_bytes() for a in before.answers]:
        raise SharesError("the helper alone has not answered as it did before")
    return dict(clock.spent), before
