"""Records of a journal, as the calls that observers got when they were written.

For charts after a restart, and in a process that follows the journal of another.  A record does
not hold everything: what participants sent, the parts of an estimate and the baseline of a decision
that was the policy's are left out.
"""

import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from vfbandits.campaign.events import (
    Configured,
    Decided,
    Event,
    Forgotten,
    GuardrailRearmed,
    GuardrailTripped,
    Reported,
    Retracted,
    Rewarded,
)
from vfbandits.campaign.history import RETRACTED
from vfbandits.campaign.model import COUNTED
from vfbandits.campaign.observer import Guarded, Ranked, Reconfigured, RewardSeen
from vfbandits.client.schemas import RankResponse

MAX_PENDING: Final = 100_000
_ANSWER = msgspec.json.Decoder(RankResponse)


@dataclass(slots=True)
class _Pending:
    """A decision that waits for its reward; ``is_sum`` once a part of a sum came."""

    arm: str
    group: str
    at: float
    is_sum: bool = False


class Replay:
    """Follows the journal of one campaign, in its order, in bounded memory.

    Rewards of decisions that it has not seen, or no longer knows, are left out.
    """

    def __init__(self, *, max_pending: int = MAX_PENDING) -> None:
        self._max_pending = max_pending
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._latest = 0.0
        self._settings = b""

    def seen(
        self, campaign: str, events: Iterable[tuple[int, Event]], names: Collection[str]
    ) -> Iterator[Ranked | RewardSeen | Reconfigured | Guarded]:
        """What an observer would have received.

        ``names`` are all participants: of a degraded decision the journal names the contributors
        only.
        """
        for _, event in events:
            if isinstance(event, Decided):
                yield self._decided(ranked_of(campaign, event, names))
            elif isinstance(event, Rewarded | Reported | Forgotten):
                reward = self._rewarded(campaign, event)
                if reward is not None:
                    yield reward
            elif isinstance(event, Retracted):
                name = str(event.event_id)
                yield RewardSeen(
                    campaign=campaign,
                    event_id=name,
                    arm="",
                    group="",
                    status=RETRACTED,
                    value=event.value,
                    at=event.at,
                    waited_s=0.0,
                )
            elif isinstance(event, Configured):
                yield Reconfigured(campaign, self._settings, event.settings, event.at)
                self._settings = event.settings
            elif isinstance(event, GuardrailTripped | GuardrailRearmed):
                is_tripped = isinstance(event, GuardrailTripped)
                yield Guarded(campaign, event.describe(), event.at, is_tripped)

    def _decided(self, seen: Ranked) -> Ranked:
        self._pending[seen.event_id] = _Pending(seen.arm, seen.group, seen.at)
        if len(self._pending) > self._max_pending:
            self._pending.popitem(last=False)
        self._latest = seen.at
        return seen

    def _rewarded(self, campaign: str, event: Rewarded | Reported | Forgotten) -> RewardSeen | None:
        event_id = str(event.event_id)
        # A Forgotten record has no time; it is not earlier than the record before it.
        at = self._latest = self._latest if isinstance(event, Forgotten) else event.at
        is_report = isinstance(event, Reported)
        found = self._pending.get(event_id) if is_report else self._pending.pop(event_id, None)
        if found is None:
            return None
        status, value = _status(event, is_sum=found.is_sum)
        found.is_sum = found.is_sum or status == COUNTED
        return RewardSeen(
            campaign=campaign,
            event_id=event_id,
            arm=found.arm,
            group=found.group,
            status=status,
            value=value,
            at=at,
            waited_s=at - found.at,
        )


def _status(event: Rewarded | Reported | Forgotten, *, is_sum: bool) -> tuple[str, float]:
    if isinstance(event, Forgotten):
        return "forgotten", 0.0
    if isinstance(event, Reported):
        return event.why, event.value
    if event.reward_id is None:
        return "summed" if is_sum else "default", event.value
    return "learnt", event.value


def ranked_of(campaign: str, event: Decided, names: Collection[str]) -> Ranked:
    """A decision as an observer receives it, from its record."""
    answer = _decoded(event.answer)
    arm = str(event.arm)
    choice = answer.ranking[0].id if answer is not None and answer.ranking else arm
    shown = next((place for place in answer.ranking if place.id == arm), None) if answer else None
    is_degraded = answer is not None and answer.degraded
    score = None if shown is None else shown.score
    estimate = math.nan if shown is None or shown.estimate is None else shown.estimate
    return Ranked(
        campaign=campaign,
        event_id=str(event.event_id),
        user=event.user or "",
        at=event.at,
        arm=arm,
        choice=arm if event.group == "policy" else choice,
        baseline="" if event.group == "policy" else arm,
        group=event.group,
        estimate=estimate,
        bonus=math.nan if score is None else score - estimate,
        parts=None,
        probability=math.nan if event.probability is None else event.probability,
        contributors=event.contributors,
        missing=tuple(name for name in names if is_degraded and name not in event.contributors),
        n_arms=len(answer.ranking) if answer is not None else 0,
        model_version=answer.model_version if answer is not None else 0,
        seconds=event.seconds,
        bytes_received=0,
    )


def _decoded(answer: bytes) -> RankResponse | None:
    """The answer that was kept with a decision; None if it is not one of this version."""
    try:
        return _ANSWER.decode(answer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
