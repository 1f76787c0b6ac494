"""The active participant's messages as bytes, both ways."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Final

from vfbandits.core.shares.messages import Place
from vfbandits.errors import WireError
from vfbandits.protocol.messages import (
    MAX_ROWS,
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
from vfbandits.transport.rpc.checks import (
    MAX_COUNT,
    MAX_MEMBERS,
    MAX_REASON_LENGTH,
    MAX_TEXT_LENGTH,
    campaign,
    clipped,
    count,
    text,
    texts,
)


class AskEncoder:
    """The same ask goes to every participant, one after the other: it is encoded once."""

    def __init__(self) -> None:
        self._last: Ask | None = None
        self._data = b""

    def __call__(self, m: Ask) -> bytes:
        """``m`` as it travels."""
        if m is not self._last:
            self._data, self._last = _encode_ask(m), m
        return self._data


def _encode_ask(m: Ask) -> bytes:
    # Fields set one by one: the constructor takes twice as long.
    top = wire.ToPassive()
    ask = top.ask
    ask.round, ask.attempt, ask.epoch, ask.trial = m.round, m.attempt, m.epoch, m.trial
    ask.users.extend(m.users)
    if m.arms:
        ask.arms.extend(chain.from_iterable(m.arms))
        ask.arms_per_user.extend(map(len, m.arms))
    ask.senders.extend(m.senders)
    ask.campaigns.extend(m.campaigns)
    if m.place is not None:
        place = ask.place
        place.SetInParent()  # also if all its numbers are 0
        place.epoch, place.window, place.attempt, place.slot = m.place
        ask.absent.extend(m.absent)
    return top.SerializeToString()


def _ask(m: wire.Ask, size: int) -> Ask:
    # A slice is a copy in one go: without it a tuple asks for each text by itself.
    users, arms, shares = tuple(m.users[:]), tuple(m.arms[:]), m.arms_per_user[:]
    senders, number, epoch, trial = tuple(m.senders[:]), m.round, m.epoch, m.trial
    if (shares or arms) and (len(shares) != len(users) or sum(shares) != len(arms)):
        raise WireError(
            f"arms_per_user splits {len(arms)} arms over {len(users)} users, "
            f"got {len(shares)} parts of another sum"
        )
    if size > MAX_TEXT_LENGTH:  # else none of the texts can be too long, nor their lists
        texts(users, "users", most=MAX_ROWS)
        texts(arms, "arms", most=MAX_ROWS)
        texts(senders, "senders", most=MAX_MEMBERS)
    if number > MAX_COUNT or epoch > MAX_COUNT or trial > MAX_COUNT:
        raise WireError(
            f"round, epoch and trial are at most {MAX_COUNT}, got {number}, {epoch} and {trial}"
        )
    campaigns = tuple(m.campaigns[:])
    if campaigns:
        if len(campaigns) not in (1, len(users)):
            raise WireError(
                f"campaigns has one name, or one for each of {len(users)} users, "
                f"got {len(campaigns)}"
            )
        for name in {*campaigns}:
            campaign(name)
    by_user = (arms,) if len(shares) == 1 else tuple(_split(arms, shares))
    ask = Ask(number, m.attempt, epoch, users, by_user, senders, trial, campaigns)
    return _in_slot(ask, m) if m.HasField("place") else ask


def _in_slot(ask: Ask, m: wire.Ask) -> Ask:
    place = m.place
    numbers = (place.epoch, place.window, place.attempt, place.slot)
    absent = texts(m.absent, "absent", most=MAX_MEMBERS)
    return ask._replace(place=Place(*(count(n, "place") for n in numbers)), absent=absent)


def _split(arms: tuple[str, ...], shares: Sequence[int]) -> Iterator[tuple[str, ...]]:
    start = 0
    for share in shares:
        yield arms[start : start + share]
        start += share


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
DECODERS: Final[dict[str | None, Callable[[wire.ToPassive, int], ToPassive]]] = {
    "welcome": lambda top, _: _welcome(top.welcome),
    "refused": lambda top, _: _refused(top.refused),
    "ask": lambda top, size: _ask(top.ask, size),
    "ping": lambda top, _: Ping(count(top.ping.number, "number")),
    "prepare": lambda top, _: _prepare(top.prepare),
    "help": lambda top, _: Help(count(top.help.number, "number"), top.help.data),
    "commit": lambda top, _: Commit(count(top.commit.epoch, "epoch")),
    "abort": lambda top, _: Abort(count(top.abort.epoch, "epoch")),
}
