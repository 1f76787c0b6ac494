"""What the two servers send to each other, and what the dealer and participants send to a server.

A message does not change once it is made, and has one encoding in bytes, so that views can be
recorded and sizes counted.  Its fields are uniform words, shares of products without their low 36
bits (``cut``), without their low 44 (``clipped``), the low half of those (``short``), or of 80 bits
of them (``narrow``), masked numbers of 43 bits, look-ups of 13 bits, single bits and public
counts.  None holds a context, an arm, a reward, a score, a width or a mean.  Bytes are in
little-endian order on every machine.
"""

import math
import struct
from collections.abc import Generator
from dataclasses import dataclass, field, fields
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeAlias,
    TypeVar,
    dataclass_transform,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.ring import Words
from vfbandits.core.shares.comparison import Bits, Lookups, Numbers
from vfbandits.errors import SharesError, WireError

Array: TypeAlias = NDArray[np.uint64] | NDArray[np.uint16] | NDArray[np.uint8]

Full: TypeAlias = Annotated[Words, "words"]
Cut: TypeAlias = Annotated[Words, "cut"]
Clipped: TypeAlias = Annotated[Words, "clipped"]
Narrow: TypeAlias = Annotated[Words, "narrow"]
Short: TypeAlias = Annotated[NDArray[np.uint64], "short"]
MaskedNumbers: TypeAlias = Annotated[Numbers, "numbers"]
LookupBits: TypeAlias = Annotated[Lookups, "lookups"]
PackedBits: TypeAlias = Annotated[Bits, "bits"]
Count: TypeAlias = Annotated[int, "count"]

_PLACE = struct.Struct("<4Q")
_COUNTS = struct.Struct("<4I")
_LENGTH = struct.Struct("<I")
_NUMBER_SIZE = 6
_HIGH = {"cut": 4, "clipped": 3, "narrow": 2}
"""Bytes of the high half of a word that are sent."""


class Place(NamedTuple):
    """A slot: the only one that this event will ever use."""

    epoch: int
    window: int
    attempt: int
    slot: int


_Kind = TypeVar("_Kind")


@dataclass_transform(frozen_default=True, eq_default=False)
def message_class(kind: type[_Kind]) -> type[_Kind]:
    """A class whose fields a type checker keeps from being set.

    A dataclass that is frozen at run time takes three times as long to make, and each round makes
    two dozen messages.
    """
    return dataclass(slots=True, eq=False, repr=False)(kind)


@message_class
class Message:
    """Base of all messages; ``place`` is where in the order of events it belongs."""

    KIND: ClassVar[int] = 0

    place: Place

    def to_bytes(self) -> bytes:
        """The message as it travels: its kind, its place, then field by field."""
        head = _PLACE.pack(*self.place)
        parts = [bytes([self.KIND]), head]
        parts += [_encoded(getattr(self, name), form) for name, form in _forms(type(self))]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The message that was encoded."""
        start = 1 + _PLACE.size
        if len(data) < start or data[0] != cls.KIND:
            raise WireError(
                f"wanted the bytes of a {cls.__name__} message, got {len(data)} bytes of another "
                "kind"
            )
        values: list[object] = [Place(*_PLACE.unpack_from(data, 1))]
        for _, form in _forms(cls):
            value, start = _decoded(data, start, form)
            values.append(value)
        if start != len(data):
            raise WireError(f"a {cls.__name__} message ends after {start} bytes, got {len(data)}")
        return cls(*values)  # type: ignore[arg-type]  # fields in their order

    @classmethod
    def is_in(cls, data: bytes) -> bool:
        """Whether these bytes begin as a message of this kind does."""
        return data[:1] == bytes([cls.KIND])

    @property
    def size_bytes(self) -> int:
        """Size of the encoding."""
        return len(self.to_bytes())

    def __repr__(self) -> str:
        """Kind and place only."""
        return f"{type(self).__name__}({self.place})"


_Reply = TypeVar("_Reply", bound=Message)
_Result = TypeVar("_Result")
Exchange: TypeAlias = Generator[Message, Message, _Result]
"""Yields a message for the helper, is sent the answer, and returns a result at the end."""


def expect(kind: type[_Reply], message: Message) -> _Reply:
    """The message, which must be of that kind."""
    if not isinstance(message, kind):
        raise SharesError(f"wanted a {kind.__name__} message, got {type(message).__name__}")
    return message


_known_forms: dict[int, list[tuple[str, str]]] = {}


def _forms(kind: type[Message]) -> list[tuple[str, str]]:
    """Names of the fields after the place, and how each is encoded."""
    if kind.KIND not in _known_forms:
        hints = get_type_hints(kind, include_extras=True)
        names = [part.name for part in fields(kind)[1:]]
        _known_forms[kind.KIND] = [(name, str(hints[name].__metadata__[0])) for name in names]
    return _known_forms[kind.KIND]


def _encoded(value: object, form: str) -> bytes:
    if form == "count":
        return struct.pack("<q", value)
    array: Array = value  # type: ignore[assignment]  # by the forms of the fields
    shape = array.shape[1:] if form in ("words", *_HIGH) else array.shape
    head = struct.pack(f"<B{len(shape)}I", len(shape), *shape)
    if form in _HIGH:
        high = array[1].astype("<u4").reshape(-1, 1).view(np.uint8)[:, : _HIGH[form]]
        return b"".join((head, array[0].astype("<u8").tobytes(), high.tobytes()))
    if form == "numbers":
        each = array.astype("<u8").reshape(-1, 1).view(np.uint8)
        return head + each[:, :_NUMBER_SIZE].tobytes()
    if form == "bits":
        return head + np.packbits(array.astype(np.uint8)).tobytes()
    return head + array.astype("<u2" if form == "lookups" else "<u8").tobytes()


def _decoded(data: bytes, start: int, form: str) -> tuple[object, int]:
    try:
        if form == "count":
            return struct.unpack_from("<q", data, start)[0], start + 8
        ndim = data[start]
        shape = struct.unpack_from(f"<{ndim}I", data, start + 1)
        start += 1 + 4 * ndim
        return _decoded_array(data, start, form, shape)
    except (IndexError, ValueError, struct.error) as error:
        raise WireError("a message of secret shares ends too early") from error


def _decoded_array(data: bytes, start: int, form: str, shape: tuple[int, ...]) -> tuple[Array, int]:
    n = math.prod(shape)
    if form == "words":
        array = _numbers(data, "<u8", 2 * n, start).reshape(2, *shape)
        return array, start + 16 * n
    if form == "short":
        return _numbers(data, "<u8", n, start).reshape(shape), start + 8 * n
    if form in _HIGH:
        size = _HIGH[form]
        high = np.zeros((n, 4), np.uint8)
        high[:, :size] = np.frombuffer(data, np.uint8, size * n, start + 8 * n).reshape(n, size)
        words = np.empty((2, n), np.uint64)
        words[0], words[1] = np.frombuffer(data, "<u8", n, start), high.view("<u4")[:, 0]
        return words.reshape(2, *shape), start + (8 + size) * n
    if form == "numbers":
        padded = np.zeros((n, 8), np.uint8)
        raw = np.frombuffer(data, np.uint8, _NUMBER_SIZE * n, start)
        padded[:, :_NUMBER_SIZE] = raw.reshape(n, _NUMBER_SIZE)
        return _native(padded.view("<u8")).reshape(shape), start + _NUMBER_SIZE * n
    if form == "bits":
        size = (n + 7) // 8
        bits = np.unpackbits(np.frombuffer(data, np.uint8, size, start), count=n)
        return bits.reshape(shape), start + size
    return _numbers(data, "<u2", n, start).reshape(shape), start + 2 * n


def _numbers(data: bytes, kind: str, n: int, start: int) -> NDArray[Any]:
    return _native(np.frombuffer(data, kind, n, start))


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in the machine's order that can be written to: loops are compiled for such arrays."""
    return array.astype(array.dtype.newbyteorder("="))


# Participants to server A, which passes them on to B.


@message_class
class Contribution(Message):
    """One participant's block of the contexts, (n_arms, width), under masks of both servers."""

    KIND: ClassVar[int] = 1

    participant: Count
    contexts: Full


# A decision: A asks, B answers, four times; the first of them while participants still share.


@message_class
class Ask(Message):
    """A's masked half of the noise, and the window's rows so far."""

    KIND: ClassVar[int] = 2

    n_rows: Count
    noise: Full


@message_class
class Asked(Message):
    """B's masked half of the noise, and its share of a_l·z for each row of the window."""

    KIND: ClassVar[int] = 3

    noise: Full
    projections: Cut


@message_class
class Sample(Message):
    """Masked contexts, and A's shares of a_l·z and of the direction w − theta.

    ``contexts`` are what participants share: a row for each of ``n_arms`` arms, or one row for all.
    They are empty if a ``Lift`` has brought them.
    """

    KIND: ClassVar[int] = 4

    n_arms: Count
    contexts: Full
    projections: Cut
    direction: Cut


@message_class
class Sampled(Message):
    """B's share of the direction, and its shares of the scores under its masks ρ."""

    KIND: ClassVar[int] = 5

    direction: Cut
    scores: Full


@message_class
class Compare(Message):
    """Scores in a secret order under both servers' masks, and A's look-ups for each pair.

    ``live`` says which positions of the order hold an arm of this decision.
    """

    KIND: ClassVar[int] = 6

    live: PackedBits
    numbers: MaskedNumbers
    lookups: LookupBits


@message_class
class Compared(Message):
    """B's look-ups."""

    KIND: ClassVar[int] = 7

    lookups: LookupBits


@message_class
class Results(Message):
    """A's shares of the results of all comparisons."""

    KIND: ClassVar[int] = 8

    results: PackedBits


@message_class
class Candidates(Message):
    """Which live positions no other one beats: one of them, or several that tie."""

    KIND: ClassVar[int] = 9

    candidates: PackedBits


@message_class
class Pick(Message):
    """The arm that is shown, as a masked row with one 1, (max_arms,)."""

    KIND: ClassVar[int] = 10

    choice: Full


@message_class
class Picked(Message):
    """B has its share of the arm's context."""

    KIND: ClassVar[int] = 11


# Layout "outer": rows u ⊗ w, from what participants share and arm features that A has.


@message_class
class Lift(Message):
    """Arm features under masks of A's, (n, arm_width), and A's shares of u ⊗ w, (n, dim).

    ``contexts`` is the masked u (1, sum of widths), or empty for the u of a decision under way, of
    which the row of the shown arm is asked for.
    """

    KIND: ClassVar[int] = 62

    contexts: Full
    arms: Full
    products: Cut


@message_class
class Lifted(Message):
    """The rows u ⊗ w under masks of both servers, without the low bits, which A does not see."""

    KIND: ClassVar[int] = 63

    rows: Clipped


# A reward: A asks, B answers, three times; then A sends the last shares.


@message_class
class Recall(Message):
    """A's share of the context that a reward belongs to, masked again.

    ``window`` and ``slot`` name the decision.  -1 and -1 are a blank: the context is 0, and the row
    of the window that it fills changes nothing.
    """

    KIND: ClassVar[int] = 12

    window: Count
    slot: Count
    context: Full


@message_class
class Recalled(Message):
    """B's share of the context, masked again, and of g_l·x for each row of the window."""

    KIND: ClassVar[int] = 13

    context: Full
    overlaps: Cut


@message_class
class Whiten(Message):
    """A's shares of g_l·x and of f = G'x."""

    KIND: ClassVar[int] = 14

    overlaps: Cut
    whitened: Cut


@message_class
class Whitened(Message):
    """B's shares of f, of a_l·f, of q = f·f and of the difference r − x·theta."""

    KIND: ClassVar[int] = 15

    whitened: Cut
    projections: Cut
    square: Short
    difference: Cut


@message_class
class Learn(Message):
    """A's shares of a_l·f, of q, of r − x·theta, of c and 1/(1 + q), and of g."""

    KIND: ClassVar[int] = 16

    projections: Cut
    square: Short
    difference: Cut
    scalars: Cut
    gain: Cut


@message_class
class Learnt(Message):
    """B's shares of c and 1/(1 + q), of g, of cf and of h."""

    KIND: ClassVar[int] = 17

    scalars: Cut
    gain: Cut
    row: Cut
    residual: Cut


@message_class
class Settle(Message):
    """A's shares of cf and h.  Nothing of A's waits for the answer."""

    KIND: ClassVar[int] = 23

    row: Cut
    residual: Cut


@message_class
class Settled(Message):
    """B has the row."""

    KIND: ClassVar[int] = 24


# A fold: A asks, B answers, and the next window begins.


# A participant that does not answer: A asks for the masks of a block that stays empty.


@message_class
class Absent(Message):
    """The blocks of these participants are zeros in this slot, which they never answer in."""

    KIND: ClassVar[int] = 60

    n_arms: Count
    absent: PackedBits


@message_class
class Absence(Message):
    """B's masks of the absent participants' blocks, (n_arms, sum of their widths)."""

    KIND: ClassVar[int] = 61

    masks: Full


@message_class
class Fold(Message):
    """A's shares of −Σ g_l a_l' and Σ h_l g_l."""

    KIND: ClassVar[int] = 18

    root: Narrow
    theta: Cut


@message_class
class Folded(Message):
    """B's shares of the same."""

    KIND: ClassVar[int] = 19

    root: Narrow
    theta: Cut


# The dealer to server A, ahead of time.  B needs its secret only.


@message_class
class DecisionDeal(Message):
    """For one decision: A's parts of masks, and terms of products, each blinded by words of B's.

    Attributes
    ----------
    projections, direction
        A's parts of the masks of a_l·z, (window,), and of the direction, (dim,).
    rows, scores, context
        The dealer's terms of g_l(a_l·z − h_l), (window, dim), of the scores, (max_arms,), and of
        the chosen context, (dim,).  Each number is blinded by a word that blinds nothing else.
        ``rows`` are added to a share that is cut, and do not need its low bits.
    tables, tops
        A's shares of the tables of all comparisons, and of the top bits of r.
    lift
        A's parts of the masks of u ⊗ w, (lift_rows, dim); empty but in layout "outer".
    """

    KIND: ClassVar[int] = 20

    projections: Full
    direction: Full
    rows: Clipped
    scores: Full
    context: Full
    tables: Full
    tops: PackedBits
    lift: Full


@message_class
class RewardDeal(Message):
    """For one reward: A's parts of masks, and its shares of a table; each blinded by B's words.

    ``coefficients`` are those of c and 1/(1 + q) as functions of the masked q.
    """

    KIND: ClassVar[int] = 21

    overlaps: Full
    whitened: Full
    projections: Full
    difference: Full
    coefficients: Full
    scalars: Full
    gain: Full
    row: Full
    residual: Full


@message_class
class FoldDeal(Message):
    """For one fold: A's parts of the masks of −Σ g_l a_l' and Σ h_l g_l."""

    KIND: ClassVar[int] = 22

    root: Full
    theta: Full


@dataclass(frozen=True, slots=True, eq=False)
class WindowDeal:
    """All that A needs for one window; with the first of an epoch come words of a hand-over."""

    window: int
    attempt: int
    decisions: tuple[Message, ...] = field(repr=False)
    rewards: tuple[Message, ...] = field(repr=False)
    fold: Message = field(repr=False)
    handover: Message | None = field(default=None, repr=False)

    @property
    def deals(self) -> tuple[Message, ...]:
        """All of them, as they are encoded."""
        last = () if self.handover is None else (self.handover,)
        return (*self.decisions, *self.rewards, self.fold, *last)

    @property
    def size_bytes(self) -> int:
        """Size of all deals together."""
        return sum(deal.size_bytes for deal in self.deals)

    def to_bytes(self) -> bytes:
        """The window and all deals, each after its length."""
        head = _COUNTS.pack(self.window, self.attempt, len(self.decisions), len(self.rewards))
        deals = (deal.to_bytes() for deal in self.deals)
        return head + b"".join(_LENGTH.pack(len(data)) + data for data in deals)

    @classmethod
    def from_bytes(cls, data: bytes) -> "WindowDeal":
        """The window that was encoded.

        >>> from vfbandits.core.shares.dealer import Dealer
        >>> from vfbandits.core.shares.terms import ShareTerms
        >>> terms = ShareTerms(widths=(1, 1), max_arms=2, ridge=1.0, posterior_scale=0.1)
        >>> dealt = Dealer(terms).deal()
        >>> WindowDeal.from_bytes(dealt.to_bytes()).to_bytes() == dealt.to_bytes()
        True
        """
        deals, start = [], _COUNTS.size
        try:
            window, attempt, n_decisions, n_rewards = _COUNTS.unpack_from(data)
            while start < len(data):
                (length,) = _LENGTH.unpack_from(data, start)
                start += _LENGTH.size
                deals.append(data[start : start + length])
                start += length
        except struct.error as error:
            raise WireError("a dealt window ends too early") from error
        n_slots = n_decisions + n_rewards
        if start != len(data) or len(deals) - n_slots not in (1, 2):
            raise WireError(f"a dealt window ends too early, after {len(deals)} deals")
        parts = [read_message(part) for part in deals]
        decisions, rewards = parts[:n_decisions], parts[n_decisions:n_slots]
        return cls(window, attempt, tuple(decisions), tuple(rewards), *parts[n_slots:])


def read_message(data: bytes) -> Message:
    """The message that was encoded, of whichever kind.

    >>> read_message(Picked(Place(0, 1, 0, 2)).to_bytes())
    Picked(Place(epoch=0, window=1, attempt=0, slot=2))
    """
    kinds = {kind.KIND: kind for kind in Message.__subclasses__()}
    if not data or data[0] not in kinds:
        raise WireError(
            f"wanted a message of secret shares, got {len(data)} bytes of an unknown kind"
        )
    return kinds[data[0]].from_bytes(data)
