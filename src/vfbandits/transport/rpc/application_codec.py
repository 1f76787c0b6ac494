"""Calls of applications as bytes, both ways; checked as the participants' messages are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from vfbandits.errors import VFBanditsError, WireError
from vfbandits.protocol.application import (
    ChangeReply,
    ChangeRequest,
    DecideReply,
    DecideRequest,
    GatherOutcome,
    GatherReplies,
    GatherReply,
    GatherRequest,
    RewardReply,
    RewardRequest,
    StatusReply,
    StatusRequest,
)
from vfbandits.protocol.messages import MAX_ROWS
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.checks import (
    MAX_MEMBERS,
    campaign,
    count,
    doubles,
    parse,
    refuse_more,
    sized,
    text,
    texts,
)
from vfbandits.transport.rpc.status import status_of, told_error

MAX_GATHERED: Final = 10_000  # decisions in one call
SERVICE: Final = "vfbandits.v1.Application"

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """One kind of message, to bytes and back.

    >>> RewardRequest("d-1", 0.5) == REWARD.request.decode(REWARD.request.encode(
    ...     RewardRequest("d-1", 0.5)))
    True
    """

    write: Callable[[T], bytes]
    decode: Callable[[bytes], T]

    def encode(self, message: T) -> bytes:
        """As it travels."""
        try:
            return sized(self.write(message))
        except (BufferError, TypeError, ValueError) as error:
            if isinstance(error, WireError):
                raise
            kind = type(message).__name__
            raise WireError(f"{kind} has a field that the wire format cannot hold") from None


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """One call of an application: its request and its reply."""

    name: str
    request: Codec[Q]
    reply: Codec[R]
    service: str = SERVICE

    @property
    def path(self) -> str:
        """The name under which gRPC finds it."""
        return f"/{self.service}/{self.name}"


def _write_decide(m: DecideRequest) -> bytes:
    return _put_decide(m, wire.DecideRequest()).SerializeToString()


def _put_decide(m: DecideRequest, top: wire.DecideRequest) -> wire.DecideRequest:
    top.user, top.event_id, top.trial = m.user, m.event_id, m.trial
    top.arms.extend(m.arms)
    top.own, top.arm_features, top.campaign = m.own, m.arm_features, m.campaign
    return top


def _read_decide(data: bytes) -> DecideRequest:
    return _decide_in(parse(wire.DecideRequest, data))


def _decide_in(m: wire.DecideRequest) -> DecideRequest:
    return DecideRequest(
        user=text(m.user, "user"),
        arms=texts(m.arms, "arms", most=MAX_ROWS),
        own=doubles(m.own, "own"),
        arm_features=doubles(m.arm_features, "arm_features"),
        event_id=text(m.event_id, "event_id"),
        trial=count(m.trial, "trial"),
        campaign=campaign(m.campaign) if m.campaign else "",
    )


def _write_decided(m: DecideReply) -> bytes:
    return wire.DecideReply(
        event_id=m.event_id,
        arm=m.arm,
        index=m.index,
        probability=m.probability,
        scores=m.scores,
        means=m.means,
        contributors=m.contributors,
        epoch=m.epoch,
        bytes_received=m.bytes_received,
        seconds=m.seconds,
    ).SerializeToString()


def _read_decided(data: bytes) -> DecideReply:
    m = parse(wire.DecideReply, data)
    return DecideReply(
        event_id=text(m.event_id, "event_id"),
        arm=text(m.arm, "arm"),
        index=count(m.index, "index", most=MAX_ROWS),
        probability=m.probability,
        scores=doubles(m.scores, "scores"),
        means=doubles(m.means, "means"),
        contributors=texts(m.contributors, "contributors", most=MAX_MEMBERS),
        epoch=count(m.epoch, "epoch"),
        bytes_received=count(m.bytes_received, "bytes_received"),
        seconds=m.seconds,
    )


def _write_reward(m: RewardRequest) -> bytes:
    top = wire.RewardRequest(event_id=m.event_id, value=m.value, trial=m.trial)
    return top.SerializeToString()


def _read_reward(data: bytes) -> RewardRequest:
    m = parse(wire.RewardRequest, data)
    return RewardRequest(text(m.event_id, "event_id"), m.value, count(m.trial, "trial"))


def _read_rewarded(data: bytes) -> RewardReply:
    return RewardReply(parse(wire.RewardReply, data).learnt)


def _read_status(data: bytes) -> StatusRequest:
    parse(wire.StatusRequest, data)
    return StatusRequest()


def _read_stated(data: bytes) -> StatusReply:
    return StatusReply(parse(wire.StatusReply, data).document)


def _write_change(m: ChangeRequest) -> bytes:
    return wire.ChangeRequest(roster=m.roster, envelopes=m.envelopes).SerializeToString()


def _read_change(data: bytes) -> ChangeRequest:
    m = parse(wire.ChangeRequest, data)
    envelopes = dict(m.envelopes)
    refuse_more(list(envelopes), "envelopes", most=MAX_MEMBERS)
    for name in envelopes:
        text(name, "a name among the envelopes")
    return ChangeRequest(roster=m.roster, envelopes=envelopes)


def _read_changed(data: bytes) -> ChangeReply:
    m = parse(wire.ChangeReply, data)
    return ChangeReply(count(m.epoch, "epoch"), text(m.roster, "roster"))


def _write_gather(m: GatherRequest) -> bytes:
    top = wire.GatherRequest()
    for request in m.requests:
        if isinstance(request, VFBanditsError):
            raise WireError("a request that cannot be read cannot be sent") from request
        _put_decide(request, top.requests.add())
    return top.SerializeToString()


def _read_gather(data: bytes) -> GatherRequest:
    m = parse(wire.GatherRequest, data)
    refuse_more(m.requests, "requests", most=MAX_GATHERED)
    return GatherRequest(tuple([_decide_or_error(request) for request in m.requests]))


def _decide_or_error(m: wire.DecideRequest) -> DecideRequest | VFBanditsError:
    """An invalid request is an error of its own; the others are read."""
    try:
        return _decide_in(m)
    except WireError as error:
        return error


def _write_gathered(m: GatherReplies) -> bytes:
    top = wire.GatherReplies()
    for outcome in m.outcomes:
        one = top.outcomes.add()
        if isinstance(outcome, VFBanditsError):
            status = status_of(outcome)
            one.refused.code, one.refused.reason = status.kind, status.sentence
        else:
            reply = one.reply
            reply.rows, reply.epoch = outcome.rows, outcome.epoch
            reply.bytes_received = outcome.bytes_received
            reply.contributors.extend(outcome.contributors)
    return top.SerializeToString()


def _read_gathered(data: bytes) -> GatherReplies:
    m = parse(wire.GatherReplies, data)
    return GatherReplies(tuple([_outcome_in(one) for one in m.outcomes]))


def _outcome_in(one: wire.GatherOutcome) -> GatherOutcome:
    which = one.WhichOneof("outcome")
    if which == "refused":
        return told_error(one.refused.code, one.refused.reason)
    if which is None:
        raise WireError("wanted a reply or a refusal as an outcome, got an empty GatherOutcome")
    m = one.reply
    return GatherReply(
        rows=doubles(m.rows, "rows"),
        contributors=texts(m.contributors, "contributors", most=MAX_MEMBERS),
        epoch=count(m.epoch, "epoch"),
        bytes_received=count(m.bytes_received, "bytes_received"),
    )


DECIDE: Final[Method[DecideRequest, DecideReply]] = Method(
    "Decide", Codec(_write_decide, _read_decide), Codec(_write_decided, _read_decided)
)
REWARD: Final[Method[RewardRequest, RewardReply]] = Method(
    "Reward",
    Codec(_write_reward, _read_reward),
    Codec(lambda m: wire.RewardReply(learnt=m.learnt).SerializeToString(), _read_rewarded),
)
STATUS: Final[Method[StatusRequest, StatusReply]] = Method(
    "Status",
    Codec(lambda _: wire.StatusRequest().SerializeToString(), _read_status),
    Codec(lambda m: wire.StatusReply(document=m.document).SerializeToString(), _read_stated),
)
CHANGE: Final[Method[ChangeRequest, ChangeReply]] = Method(
    "Change",
    Codec(_write_change, _read_change),
    Codec(
        lambda m: wire.ChangeReply(epoch=m.epoch, roster=m.roster).SerializeToString(),
        _read_changed,
    ),
)
GATHER: Final[Method[GatherRequest, GatherReplies]] = Method(
    "Gather", Codec(_write_gather, _read_gather), Codec(_write_gathered, _read_gathered)
)
