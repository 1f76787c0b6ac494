"""The active participant's messages as bytes, both ways."""

from collections.abc import Callable
from typing import Final

from vfbandits.protocol.messages import (
    Abort,
    Ask,
    Commit,
    Help,
    Ping,
    Prepare,
    Refused,
    ToPassive,
    Welcome,
)
from vfbandits.transport.rpc import wire_pb2 as wire
from vfbandits.transport.rpc.ask import AskEncoder, decode_ask
from vfbandits.transport.rpc.checks import (
    MAX_MEMBERS,
    MAX_REASON_LENGTH,
    clipped,
    count,
    text,
    texts,
)


def _encode_prepare(m: Prepare) -> bytes:
    prepare = wire.Prepare(
        epoch=m.epoch, round=m.round, senders=m.senders, roster=m.roster, envelope=m.envelope
    )
    return wire.ToPassive(prepare=prepare).SerializeToString()


def _prepare(m: wire.Prepare) -> Prepare:
    return Prepare(
        epoch=count(m.epoch, "epoch"),
        round=count(m.round, "round"),
        senders=texts(m.senders, "senders", most=MAX_MEMBERS),
        roster=m.roster,
        envelope=m.envelope,
    )


def _encode_refused(m: Refused) -> bytes:
    refused = wire.Refused(code=m.code, reason=clipped(m.reason))
    return wire.ToPassive(refused=refused).SerializeToString()


def _refused(m: wire.Refused) -> Refused:
    return Refused(text(m.code, "code"), text(m.reason, "reason", most=MAX_REASON_LENGTH))


def _welcome(m: wire.Welcome) -> Welcome:
    return Welcome(count(m.epoch, "epoch"), m.envelope, m.protocol)


def _encode_welcome(m: Welcome) -> bytes:
    welcome = wire.Welcome(epoch=m.epoch, envelope=m.envelope, protocol=m.protocol)
    return wire.ToPassive(welcome=welcome).SerializeToString()


def _encode_help(m: Help) -> bytes:
    return wire.ToPassive(help=wire.Help(number=m.number, data=m.data)).SerializeToString()


ENCODERS: Final[dict[type, Callable[..., bytes]]] = {
    Welcome: _encode_welcome,
    Refused: _encode_refused,
    Ask: AskEncoder(),
    Prepare: _encode_prepare,
    Help: _encode_help,
    Ping: lambda m: wire.ToPassive(ping=wire.Ping(number=m.number)).SerializeToString(),
    Commit: lambda m: wire.ToPassive(commit=wire.Commit(epoch=m.epoch)).SerializeToString(),
    Abort: lambda m: wire.ToPassive(abort=wire.Abort(epoch=m.epoch)).SerializeToString(),
}
DECODERS: Final[dict[str | None, Callable[[wire.ToPassive], ToPassive]]] = {
    "welcome": lambda top: _welcome(top.welcome),
    "refused": lambda top: _refused(top.refused),
    "ask": lambda top: decode_ask(top.ask),
    "ping": lambda top: Ping(count(top.ping.number, "number")),
    "prepare": lambda top: _prepare(top.prepare),
    "help": lambda top: Help(count(top.help.number, "number"), top.help.data),
    "commit": lambda top: Commit(count(top.commit.epoch, "epoch")),
    "abort": lambda top: Abort(count(top.abort.epoch, "epoch")),
}
