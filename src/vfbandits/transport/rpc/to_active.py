"""A passive participant's messages as bytes, both ways."""

from collections.abc import Callable
from typing import Final

from vfbandits.core.noise import VectorNoise
from vfbandits.errors import SettingError, WireError
from vfbandits.protocol.messages import DECLINES, Answer, Declined, Hello, Helped, Pong, ToActive
from vfbandits.protocol.roster import CLEAR
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.answer import decode_answer, encode_answer
from vfbandits.transport.rpc.checks import (
    MAX_MEMBERS,
    MAX_REASON_LENGTH,
    clipped,
    count,
    refuse_more,
    text,
)


def _encode_hello(m: Hello) -> bytes:
    return wire.ToActive(
        hello=wire.Hello(
            lowest_protocol=m.lowest_protocol,
            highest_protocol=m.highest_protocol,
            federation=m.federation,
            roster=m.roster,
            name=m.name,
            width=m.width,
            dim=m.dim,
            layout=m.layout,
            mask=m.mask,
            aggregation=m.aggregation,
            scaling=m.scaling,
            dtype=m.dtype,
            epochs=m.epochs,
            next_round=m.next_round,
            noise=None if m.noise is None else _encode_noise(m.noise),
            users="" if m.users == CLEAR else m.users,
            protection="" if m.protection == _protection_of(m.aggregation) else m.protection,
        )
    ).SerializeToString()


def _protection_of(aggregation: str) -> str:
    """The protection level of a hello that names none."""
    return "sum" if aggregation == "secure" else "mask"


def _encode_noise(m: VectorNoise) -> wire.VectorNoise:
    return wire.VectorNoise(epsilon=m.epsilon, delta=m.delta, clip=m.clip)


def _hello(m: wire.Hello) -> Hello:
    refuse_more(m.epochs, "epochs", most=MAX_MEMBERS)
    return Hello(
        lowest_protocol=m.lowest_protocol,
        highest_protocol=m.highest_protocol,
        federation=text(m.federation, "federation"),
        roster=text(m.roster, "roster"),
        name=text(m.name, "name"),
        width=m.width,
        dim=m.dim,
        layout=text(m.layout, "layout"),
        mask=text(m.mask, "mask"),
        aggregation=text(m.aggregation, "aggregation"),
        scaling=text(m.scaling, "scaling"),
        dtype=text(m.dtype, "dtype"),
        epochs=tuple(count(epoch, "epoch") for epoch in m.epochs),
        next_round=count(m.next_round, "next_round"),
        noise=_noise(m.noise) if m.HasField("noise") else None,
        users=text(m.users, "users") or CLEAR,
        protection=text(m.protection, "protection") or _protection_of(m.aggregation),
    )


def _noise(m: wire.VectorNoise) -> VectorNoise:
    try:
        return VectorNoise(m.epsilon, m.delta, m.clip)
    except SettingError as error:
        raise WireError(f"noise: {error}") from error


def _encode_declined(m: Declined) -> bytes:
    declined = wire.Declined(
        round=m.round, attempt=m.attempt, code=m.code, reason=clipped(m.reason)
    )
    return wire.ToActive(declined=declined).SerializeToString()


def _declined(m: wire.Declined) -> Declined:
    if m.code not in DECLINES:
        raise WireError(f"the code of a declined ask is one of {', '.join(DECLINES)}")
    reason = text(m.reason, "reason", most=MAX_REASON_LENGTH)
    return Declined(count(m.round, "round"), m.attempt, m.code, reason)


def _encode_pong(m: Pong) -> bytes:
    return wire.ToActive(pong=wire.Pong(number=m.number)).SerializeToString()


def _encode_helped(m: Helped) -> bytes:
    helped = wire.Helped(number=m.number, data=m.data, problem=clipped(m.problem))
    return wire.ToActive(helped=helped).SerializeToString()


def _helped(m: wire.Helped) -> Helped:
    problem = text(m.problem, "problem", most=MAX_REASON_LENGTH)
    return Helped(count(m.number, "number"), m.data, problem)


ENCODERS: Final[dict[type, Callable[..., bytes]]] = {
    Hello: _encode_hello,
    Answer: encode_answer,
    Declined: _encode_declined,
    Pong: _encode_pong,
    Helped: _encode_helped,
}
DECODERS: Final[dict[str | None, Callable[[wire.ToActive], ToActive]]] = {
    "hello": lambda top: _hello(top.hello),
    "answer": lambda top: decode_answer(top.answer),
    "declined": lambda top: _declined(top.declined),
    "pong": lambda top: Pong(count(top.pong.number, "number")),
    "helped": lambda top: _helped(top.helped),
}
