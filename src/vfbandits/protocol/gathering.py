"""One round at the active participant: who was asked, and what came.

An answer is accepted only if it is for this round, attempt and epoch, for these rows in this order,
of the right size, finite and within the declared bound; and once.  Anything else is refused and
never summed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate

import numpy as np

from vfbandits.core.aggregate import place_blocks
from vfbandits.core.arrays import MaskedBlock, Matrix
from vfbandits.core.context import Split
from vfbandits.core.fixed_point import FixedPoint
from vfbandits.core.pads import Stamp
from vfbandits.core.secure_sum import BlindedBlock, add_blinded
from vfbandits.errors import WireError
from vfbandits.protocol.messages import DTYPE, Answer
from vfbandits.protocol.rows import refuse_out_of_bounds

_DTYPE = np.dtype(DTYPE)
_COMPARED = (
    "round",
    "attempt",
    "epoch",
    "digest of the rows in their order",
    "rows",
    "columns",
    "bytes",
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the answers of all rounds must look like; columns by participant.

    ``n_terms`` are all passive participants, asked or not: both ends must use the same code.
    ``shared`` are words under masks of two servers, which may be any bits.
    """

    epoch: int
    n_columns: dict[str, int]
    bound: float
    secure: bool
    n_terms: int
    shared: bool = False


@dataclass(slots=True, eq=False)
class Gathering:
    """The answers of one round so far; those under pads are bits that mean nothing alone.

    ``n_rows`` has how many rows each participant that was asked must send, and ``digests`` the
    digests of their keys, which are needed before the first answer is taken.  ``user_rows`` are the
    rows of each user in a secure round.  There a row that one participant withholds counts for
    none.
    """

    round: int
    wanted: Wanted
    asked: tuple[str, ...]
    n_rows: dict[str, int]
    digests: Mapping[str, bytes]
    deadline: float
    user_rows: tuple[int, ...] = ()
    attempt: int = 0
    came: dict[str, Matrix] = field(default_factory=dict, repr=False)
    failed: set[str] = field(default_factory=set)
    withheld: set[int] = field(default_factory=set)
    bytes_received: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    _sum: Matrix | None = field(default=None, repr=False)
    _n_summed: int = 0  # of those that were asked

    @property
    def is_settled(self) -> bool:
        """Whether nobody is left to wait for."""
        return len(self.came) + len(self.failed) == len(self.asked)

    @property
    def is_complete(self) -> bool:
        """Whether everybody that was asked has answered."""
        return len(self.came) == len(self.asked)

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """Those that have neither answered nor failed."""
        return tuple(n for n in self.asked if n not in self.came and n not in self.failed)

    def next_attempt(self) -> None:
        """Discard all answers: the same participants are asked again."""
        self.attempt += 1
        self.came.clear()
        self.failed.clear()
        self.withheld.clear()
        self.unknown.clear()

    def take(self, sender: str, answer: Answer) -> None:
        """Accept an answer, or raise WireError and change nothing."""
        wanted = self.wanted
        n_rows = self.n_rows.get(sender)
        if n_rows is None:
            raise WireError(f"wanted an answer of {', '.join(self.asked)}, got one of {sender!r}")
        if sender in self.came or sender in self.failed:
            raise WireError(
                f"wanted one answer to round {self.round}, got a second one of {sender!r}"
            )
        n_columns = wanted.n_columns[sender]
        digest = self.digests[sender]
        ours = (self.round, self.attempt, wanted.epoch, digest, n_rows, n_columns)
        size = len(answer.values)
        if answer[:6] != ours or size != 8 * n_rows * n_columns:
            raise _refusal((*ours, 8 * n_rows * n_columns), (*answer[:6], size))
        if answer.withheld and not max(answer.withheld) < sum(self.user_rows):
            raise WireError(
                f"withheld rows: wanted places below {sum(self.user_rows)}, "
                f"got {max(answer.withheld)}"
            )
        rows = np.ndarray((n_rows, n_columns), _DTYPE, answer.values)
        if size and not wanted.secure and not wanted.shared:
            refuse_out_of_bounds(rows, wanted.bound)
        self.came[sender] = rows
        if answer.withheld:
            self.withheld.update(answer.withheld)
        self.bytes_received += size
        if answer.missing:
            self.unknown[sender] = min(answer.missing, n_rows)

    @property
    def alone(self) -> frozenset[int]:
        """Places of users all of whose rows are withheld."""
        if not self.withheld:
            return frozenset()
        stops = accumulate(self.user_rows)
        return frozenset(
            place
            for place, (stop, n_rows) in enumerate(zip(stops, self.user_rows, strict=True))
            if self.withheld.issuperset(range(stop - n_rows, stop))
        )

    def total(self) -> Matrix:
        """The sum of blinded blocks, zeros for withheld rows; only of a complete round."""
        stamp = Stamp(self.wanted.epoch, self.round, self.attempt)
        senders = tuple(sorted(self.asked))
        parts = [
            BlindedBlock(stamp, name, senders, rows.view(np.uint64))
            for name, rows in self.came.items()
        ]
        total = add_blinded(parts, _code(self.wanted.n_terms, self.wanted.bound))
        if self.withheld:
            total[sorted(self.withheld)] = 0.0
        refuse_out_of_bounds(total, self.wanted.bound * len(self.asked))
        return total

    def add_up(self, own: MaskedBlock, *, is_over: bool = False) -> Matrix:
        """The own block and those that came, added in the order in which they were asked.

        Sums of floats depend on the order.  So before the round ``is_over`` only blocks before the
        first missing one are added, while the others are waited for.
        """
        for name in self.asked[self._n_summed :]:
            if name in self.came:
                block = self.came[name]
                if self._sum is None:
                    self._sum = own + block
                else:
                    self._sum += block
            elif not is_over:
                break
            self._n_summed += 1
        return own if self._sum is None else self._sum

    def contexts(self, split: Split, own: MaskedBlock, *, dense: bool) -> Matrix:
        """Masked contexts of a plain round that is over, zeros for those that did not come."""
        if dense:
            return self.add_up(own, is_over=True)
        blocks = {name: MaskedBlock(block) for name, block in self.came.items()}
        return place_blocks(split, {split.active: own, **blocks})


def _refusal(ours: tuple[int | bytes, ...], theirs: tuple[int | bytes, ...]) -> WireError:
    place = next(k for k, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
    wrong = f"wanted {_shown(ours[place])}, got {_shown(theirs[place])}"
    return WireError(f"{_COMPARED[place]}: {wrong}")


def _shown(value: int | bytes) -> str:
    return value.hex()[:64] if isinstance(value, bytes) else str(value)


@cache
def _code(n_terms: int, bound: float) -> FixedPoint:
    return FixedPoint(n_terms=n_terms, bound=bound)
