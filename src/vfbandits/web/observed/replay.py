"""The end of a log, told again as it was when it happened, for charts after a restart.

The log does not hold everything: how long an answer took, what participants sent, the parts of an
estimate and the baseline of a decision that was the policy's are left out.
"""

import math
from collections.abc import Collection, Iterable, Iterator

import msgspec

from vfbandits.service.observer import Heard, Ranked
from vfbandits.store.book import COUNTED
from vfbandits.store.events import Decided, Event, Forgotten, Reported, Rewarded
from vfbandits.web.types import RankResponse

_NOTE = msgspec.json.Decoder(RankResponse)


def as_seen(
    campaign: str, events: Iterable[tuple[int, Event]], names: Collection[str]
) -> Iterator[Ranked | Heard]:
    """What an observer would have been told; rewards of decisions before the first are left out.

    ``names`` are the participants that there are: of a degraded decision the log only says who
    did contribute.
    """
    decided: dict[str, Ranked] = {}
    counted: set[str] = set()
    latest = 0.0
    for _, event in events:
        if isinstance(event, Decided):
            seen = _ranked(campaign, event, names)
            decided[seen.event_id] = seen
            latest = seen.at
            yield seen
        elif isinstance(event, Rewarded | Reported | Forgotten):
            event_id = str(event.decision_id)
            # Nobody wrote down when an event was forgotten; it was not before what came before it.
            latest = latest if isinstance(event, Forgotten) else event.at
            found = decided.get(event_id)
            if found is not None:
                yield _heard(found, event, at=latest, is_sum=event_id in counted)
            if isinstance(event, Reported) and event.why == COUNTED:
                counted.add(event_id)


def _heard(
    found: Ranked, event: Rewarded | Reported | Forgotten, *, at: float, is_sum: bool
) -> Heard:
    value = 0.0
    if isinstance(event, Forgotten):
        status = "forgotten"
    else:
        value = event.value
        status = event.why if isinstance(event, Reported) else "learnt"
    if isinstance(event, Rewarded) and event.reward_id is None:
        status = "summed" if is_sum else "default"
    return Heard(
        found.campaign, found.event_id, found.arm, found.group, status, value, at, at - found.at
    )


def _ranked(campaign: str, event: Decided, names: Collection[str]) -> Ranked:
    note = _note(event.note)
    arm = str(event.arm)
    choice = note.ranking[0].id if note is not None and note.ranking else arm
    shown = next((place for place in note.ranking if place.id == arm), None) if note else None
    is_degraded = note is not None and note.degraded
    return Ranked(
        campaign=campaign,
        event_id=str(event.decision_id),
        user=event.user or "",
        at=event.at,
        arm=arm,
        choice=arm if event.group == "policy" else choice,
        baseline="" if event.group == "policy" else arm,
        group=event.group,
        estimate=math.nan if shown is None else shown.estimate,
        bonus=math.nan if shown is None else shown.score - shown.estimate,
        parts=None,
        probability=math.nan if event.probability is None else event.probability,
        contributors=event.contributors,
        missing=tuple(name for name in names if is_degraded and name not in event.contributors),
        n_arms=len(note.ranking) if note is not None else 0,
        model_version=note.model_version if note is not None else 0,
        seconds=0.0,
        bytes_received=0,
    )


def _note(note: bytes) -> RankResponse | None:
    """The answer that was kept with a decision; None if it is not one of this version."""
    try:
        return _NOTE.decode(note)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
