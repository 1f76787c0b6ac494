"""What applications ask and get as bytes, both ways; checked as the participants' messages are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from vfbandits.errors import WireError
from vfbandits.protocol.application import (
    ChangeReply,
    ChangeRequest,
    DecideReply,
    DecideRequest,
    GatherReply,
    RewardReply,
    RewardRequest,
    StatusReply,
    StatusRequest,
)
from vfbandits.protocol.messages import MOST_ROWS
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.checks import (
    MOST_MEMBERS,
    count,
    doubles,
    parse,
    refuse_more,
    sized,
    text,
    texts,
)

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
            raise WireError(f"{kind} has a field that its place on the wire cannot hold") from None


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, R]):
    """One call of an application: what goes there, and what comes back."""

    name: str
    request: Codec[Q]
    reply: Codec[R]

    @property
    def path(self) -> str:
        """The name under which gRPC finds it."""
        return f"/{SERVICE}/{self.name}"


def _write_decide(m: DecideRequest) -> bytes:
    top = wire.DecideRequest(user=m.user, decision_id=m.decision_id, trial=m.trial)
    top.arms.extend(m.arms)
    top.own, top.arm_features = m.own, m.arm_features
    return top.SerializeToString()


def _read_decide(data: bytes) -> DecideRequest:
    m = parse(wire.DecideRequest, data)
    return DecideRequest(
        user=text(m.user, "user"),
        arms=texts(m.arms, "arms", most=MOST_ROWS),
        own=doubles(m.own, "own"),
        arm_features=doubles(m.arm_features, "arm_features"),
        decision_id=text(m.decision_id, "decision_id"),
        trial=count(m.trial, "trial"),
    )


def _write_decided(m: DecideReply) -> bytes:
    return wire.DecideReply(
        decision_id=m.decision_id,
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
        decision_id=text(m.decision_id, "decision_id"),
        arm=text(m.arm, "arm"),
        index=count(m.index, "index", most=MOST_ROWS),
        probability=m.probability,
        scores=doubles(m.scores, "scores"),
        means=doubles(m.means, "means"),
        contributors=texts(m.contributors, "contributors", most=MOST_MEMBERS),
        epoch=count(m.epoch, "epoch"),
        bytes_received=count(m.bytes_received, "bytes_received"),
        seconds=m.seconds,
    )


def _write_reward(m: RewardRequest) -> bytes:
    top = wire.RewardRequest(decision_id=m.decision_id, value=m.value, trial=m.trial)
    return top.SerializeToString()


def _read_reward(data: bytes) -> RewardRequest:
    m = parse(wire.RewardRequest, data)
    return RewardRequest(text(m.decision_id, "decision_id"), m.value, count(m.trial, "trial"))


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
    refuse_more(list(envelopes), "envelopes", most=MOST_MEMBERS)
    for name in envelopes:
        text(name, "a name among the envelopes")
    return ChangeRequest(roster=m.roster, envelopes=envelopes)


def _read_changed(data: bytes) -> ChangeReply:
    m = parse(wire.ChangeReply, data)
    return ChangeReply(count(m.epoch, "epoch"), text(m.roster, "roster"))


def _write_gathered(m: GatherReply) -> bytes:
    return wire.GatherReply(
        rows=m.rows,
        contributors=m.contributors,
        epoch=m.epoch,
        bytes_received=m.bytes_received,
    ).SerializeToString()


def _read_gathered(data: bytes) -> GatherReply:
    m = parse(wire.GatherReply, data)
    return GatherReply(
        rows=doubles(m.rows, "rows"),
        contributors=texts(m.contributors, "contributors", most=MOST_MEMBERS),
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
GATHER: Final[Method[DecideRequest, GatherReply]] = Method(
    "Gather", DECIDE.request, Codec(_write_gathered, _read_gathered)
)
