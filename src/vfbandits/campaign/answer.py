"""The answer to a request to rank, as it is kept in the journal and sent."""

import math
from operator import attrgetter
from typing import NamedTuple

import msgspec

from vfbandits.client.schemas import RankedArm, RankResponse
from vfbandits.errors import ConflictError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RankResponse).decode
_by_score = attrgetter("score")


class Answer(NamedTuple):
    """The answer to the application; each list has one number per arm.

    ``choice`` is the policy's arm, which comes first where nobody knows the scores.
    """

    event_id: str
    arms: tuple[str, ...]
    shown: int
    scores: list[float]
    means: list[float]
    probabilities: list[float]
    contributors: tuple[str, ...]
    degraded: bool
    group: str
    model_version: int
    config_version: int
    epoch: int
    choice: int = 0


def encode_answer(answer: Answer) -> bytes:
    """A ``RankResponse`` as JSON.

    >>> answer = Answer("a", ("tea", "milk"), 1, [0.0, 2.0], [0.0, 1.5], [0.0, 1.0],
    ...                 ("shop",), False, "policy", 3, 0, 1)
    >>> decode_answer(encode_answer(answer)).arm
    'milk'
    """
    arms = answer.arms
    places = [*map(RankedArm, arms, answer.scores, answer.means, answer.probabilities)]
    if math.isnan(answer.scores[0]):  # on secret shares the released arm is all that is known
        ranking = [places.pop(answer.choice), *places]
    else:  # of equal ones the first stays first
        ranking = sorted(places, key=_by_score, reverse=True)
    response = RankResponse(
        event_id=answer.event_id,
        arm=arms[answer.shown],
        ranking=ranking,
        contributors=list(answer.contributors),
        degraded=answer.degraded,
        group=answer.group,  # type: ignore[arg-type]  # one of the three
        model_version=answer.model_version,
        config_version=answer.config_version,
        epoch=answer.epoch,
    )
    return _encode(response)


def read_answer(answer: bytes, arms: tuple[str, ...]) -> Answer:
    """The answer that was kept, with numbers in the order of ``arms``; NaN for unknown ones.

    >>> answer = Answer("a", ("tea", "milk"), 0, [0.0, 2.0], [0.0, 1.5], [1.0, 0.0],
    ...                 ("shop",), False, "holdback", 3, 0, 1, choice=1)
    >>> read_answer(encode_answer(answer), answer.arms) == answer
    True
    """
    kept = decode_answer(answer)
    by_arm = {one.id: one for one in kept.ranking}
    ranking = [by_arm[arm] for arm in arms]
    return Answer(
        event_id=kept.event_id,
        arms=arms,
        shown=arms.index(kept.arm),
        scores=[_number(one.score) for one in ranking],
        means=[_number(one.estimate) for one in ranking],
        probabilities=[_number(one.probability) for one in ranking],
        contributors=tuple(kept.contributors),
        degraded=kept.degraded,
        group=kept.group,
        model_version=kept.model_version,
        config_version=kept.config_version,
        epoch=kept.epoch,
        choice=arms.index(kept.ranking[0].id),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def decode_answer(answer: bytes) -> RankResponse:
    """The answer that was kept."""
    try:
        return _decode(answer)
    except msgspec.DecodeError as error:
        raise ConflictError(f"the event has an answer that cannot be read: {error}") from error
