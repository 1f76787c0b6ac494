"""From what is asked to decisions on their way into the log; several are made together."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple, Protocol, TypeAlias

from vfbandits.campaign.draws import EventDraws
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.context import Split
from vfbandits.core.policy.linucb import LinUCB
from vfbandits.errors import ArmError, VFBanditsError
from vfbandits.protocol.application import DecideRequest
from vfbandits.serving.commit import ENOUGH
from vfbandits.serving.deciding import Asked, Deciding, Occasion, Outcome
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.in_groups import portions
from vfbandits.serving.rounds import Contexts
from vfbandits.serving.showing import Showing

MOST_TOGETHER = ENOUGH  # for a commit of their own
Named: TypeAlias = tuple[str, Asked]
Made: TypeAlias = Deciding | VFBanditsError


class ContextSource(Protocol):
    """Where the masked contexts of a decision come from."""

    @property
    def split(self) -> Split:
        """Whose columns are which."""
        ...

    @property
    def is_blockwise(self) -> bool:
        """Whether every participant keeps its own columns."""
        ...

    @property
    def is_per_arm(self) -> bool:
        """Whether there is a context for each arm, or one of the user."""
        ...

    @property
    def most_rows(self) -> int:
        """How many rows may be asked for together."""
        ...

    def contexts(self, *requests: DecideRequest) -> AbstractAsyncContextManager[Contexts]:
        """The contexts of these decisions, to be used before the masks change."""
        ...

    def arm_features(self, request: DecideRequest) -> Matrix | None:
        """What the request says of the arms, checked."""
        ...


class OneRound(NamedTuple):
    """What is asked for one event."""

    asked: Asked
    request: DecideRequest
    arm_features: Matrix | None


class Decider:
    """Decides with one model; what it decides is durable once the model was flushed."""

    def __init__(
        self,
        model: DurableBandit,
        source: ContextSource,
        settings: CampaignSettings,
        *,
        encode: Callable[[Outcome], bytes],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._model = model
        self._source = source
        self._encode = encode
        self._clock = clock
        self._draws = EventDraws(model.bandit.seed)
        self.adopt(settings)

    def adopt(self, settings: CampaignSettings) -> None:
        """Decide by these settings from now on."""
        bandit = self._model.bandit
        self._settings = settings
        bandit.policy, bandit.floor = settings.policy, settings.floor
        bandit.draw_from(self._draws.generator)
        self._draws_are_used = settings.floor > 0.0 or not isinstance(settings.policy, LinUCB)

    def rounds(self, named: Sequence[Named]) -> list[OneRound]:
        """What is asked for these events, checked."""
        return [self._round(event_id, asked) for event_id, asked in named]

    def contexts(self, rounds: Sequence[OneRound]) -> AbstractAsyncContextManager[Contexts]:
        """Theirs, to be used before the masks change."""
        return self._source.contexts(*[one.request for one in rounds])

    def decide(
        self, rounds: Sequence[OneRound], contexts: Contexts, *, started: float
    ) -> list[Made]:
        """Decisions that are on their way into the log, or why there are none; in their order.

        ``started`` is when they were asked for, by ``time.perf_counter``.
        """
        made: list[Made] = []
        per_arm, rows, stop = self._source.is_per_arm, contexts.rows, 0
        occasion = self._occasion(contexts, started)
        for one in rounds:
            start, stop = stop, stop + (len(one.asked.arms) if per_arm else 1)
            its_rows = rows[start:stop] if per_arm else rows[start]
            try:
                made.append(self._decide(one, its_rows, occasion))
            except VFBanditsError as error:
                made.append(error)
        return made

    def portions(self, named: Sequence[Named]) -> Iterator[list[Named]]:
        """These in their order, as many together as may be decided together."""
        per_arm = self._source.is_per_arm
        sizes = [len(asked.arms) if per_arm else 1 for _, asked in named]
        return portions(named, sizes, most=self._source.most_rows, at_once=MOST_TOGETHER)

    def _round(self, event_id: str, asked: Asked) -> OneRound:
        if not asked.arms:
            raise ArmError("a decision needs at least one arm that is not excluded, got none")
        request = DecideRequest(asked.user, asked.arms, asked.own, asked.arm_features, event_id)
        return OneRound(asked, request, self._source.arm_features(request))

    def _decide(self, one: OneRound, rows: Matrix | Vector, occasion: Occasion) -> Deciding:
        event_id, asked = one.request.decision_id, one.asked
        share = self._draws.share(event_id) if self._settings.holdback else 1.0
        deciding = Deciding(event_id, asked, occasion, share)
        if self._draws_are_used:
            self._draws.seed(event_id)
        self._model.decide_soon(
            rows,
            arms=asked.arms,
            arm_features=one.arm_features,
            decision_id=event_id,
            contributors=occasion.contexts.contributors,
            user=asked.user,
            showing=Showing(deciding.forced, deciding.keep),
        )
        return deciding

    def _occasion(self, contexts: Contexts, started: float) -> Occasion:
        model, source = self._model, self._source
        return Occasion(
            self._settings,
            contexts,
            at=self._clock(),
            config_version=model.book.n_settings,
            epoch=model.epoch,
            model=model,
            split=source.split,
            is_blockwise=source.is_blockwise,
            encode=self._encode,
            started=started,
        )
