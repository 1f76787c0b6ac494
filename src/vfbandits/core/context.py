"""How the features of a context are split over participants, and the check of a round's blocks."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from vfbandits.core.arrays import Matrix, PlainBlock, as_array, frobenius
from vfbandits.errors import ContextError, SettingError


@dataclass(frozen=True, slots=True)
class Split:
    """Participants in order, the active one first, with the width of each one's block.

    >>> split = Split.of({"shop": 2, "bank": 3})
    >>> split.dim, split.columns("bank")
    (5, slice(2, 5, None))
    """

    names: tuple[str, ...]
    widths: tuple[int, ...]
    _plan: tuple[tuple[str, int, str], ...] = field(repr=False)

    @classmethod
    def of(cls, widths: Mapping[str, int], *, may_be_alone: bool = False) -> "Split":
        """Check names and widths, in the mapping's order.

        The active participant of a server ``may_be_alone``; elsewhere two at least are wanted.
        """
        if not isinstance(widths, Mapping):
            raise SettingError(f"widths must map names to widths, got {type(widths).__name__}")
        for name, width in widths.items():
            if not isinstance(name, str) or not name:
                raise SettingError(f"a participant's name must be text, got {name!r}")
            if isinstance(width, bool) or not isinstance(width, int) or width < 1:
                raise SettingError(
                    f"the width of {name!r} must be a whole number from 1, got {width!r}"
                )
        if len(widths) < (1 if may_be_alone else 2):
            raise SettingError(
                f"a federation needs an active and a passive participant, got {len(widths)}"
            )
        plan = tuple((name, width, f"block of {name!r}") for name, width in widths.items())
        return cls(tuple(widths), tuple(widths.values()), plan)

    @property
    def dim(self) -> int:
        """Width of the whole context."""
        return sum(self.widths)

    @property
    def active(self) -> str:
        """The participant that decides and receives rewards."""
        return self.names[0]

    @property
    def passive(self) -> tuple[str, ...]:
        """The participants that add features only."""
        return self.names[1:]

    def items(self) -> Iterator[tuple[str, int]]:
        """Names with widths, in order."""
        return zip(self.names, self.widths, strict=True)

    def columns(self, name: str) -> slice:
        """Where the block of ``name`` is in the whole context."""
        place = self.names.index(name)
        start = sum(self.widths[:place])
        return slice(start, start + self.widths[place])

    def check(self, blocks: Mapping[str, ArrayLike], *, ndim: int) -> dict[str, PlainBlock]:
        """The blocks that came, in order: right width, as many rows each, none unknown.

        Passive participants may be missing; None counts as missing.  Values are not looked at
        here: a rotation keeps NaN and infinity, so one check after aggregation finds them.
        """
        if type(blocks) is not dict and not isinstance(blocks, Mapping):
            raise ContextError(f"wanted a block for each participant, got {type(blocks).__name__}")
        came: dict[str, PlainBlock] = {}
        rows: tuple[int, ...] = ()
        for name, width, label in self._plan:
            block = blocks.get(name)
            if block is None:
                continue
            block = as_array(block, ndim=ndim, width=width, what=label)
            if not came:
                rows = block.shape[:-1]
            elif block.shape[:-1] != rows:
                raise ContextError(f"{label} must have shape {(*rows, width)}, got {block.shape}")
            came[name] = block  # type: ignore[assignment]  # a call of PlainBlock costs time here
        if len(came) < len(blocks):
            self._refuse_unknown(blocks)
        if self.names[0] not in came:
            raise ContextError(f"the active participant {self.active!r} must bring its block")
        return came

    def _refuse_unknown(self, blocks: Mapping[str, ArrayLike]) -> None:
        unknown = ", ".join(sorted(str(name) for name in set(blocks) - set(self.names)))
        if unknown:
            raise ContextError(f"wanted blocks of {', '.join(self.names)}, got {unknown}")

    def blame(self, blocks: Mapping[str, ArrayLike]) -> None:
        """Say whose block is not finite, if one is not."""
        for name, block in blocks.items():
            if block is not None:
                frobenius(np.asarray(block, dtype=np.float64), what=f"block of {name!r}")

    def join(self, blocks: Mapping[str, ArrayLike], *, ndim: int) -> Matrix:
        """The whole context in the open, zeros where a participant is missing: the plain twin's."""
        came = self.check(blocks, ndim=ndim)
        whole = np.zeros((*came[self.active].shape[:-1], self.dim))
        for name, block in came.items():
            whole[..., self.columns(name)] = block
        return whole
