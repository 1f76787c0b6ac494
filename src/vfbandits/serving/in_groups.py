"""Several answers at once: those that can be worked out together, and errors in their places."""

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Told: TypeAlias = bytes | Exception


def portions(
    items: Sequence[T], sizes: Sequence[int], *, most: int, at_once: int
) -> Iterator[list[T]]:
    """Items in their order, ``at_once`` of them together unless their sizes add up to too much.

    >>> list(portions("abcdef", [1, 1, 1, 9, 1, 1], most=5, at_once=2))
    [['a', 'b'], ['c'], ['d'], ['e', 'f']]
    """
    portion: list[T] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if portion and (total + size > most or len(portion) == at_once):
            yield portion
            portion, total = [], 0
        portion.append(item)
        total += size
    if portion:
        yield portion


def answer_or_raise(answer: Told) -> bytes:
    """The answer, if it is one."""
    if isinstance(answer, Exception):
        raise answer
    return answer


async def all_of(works: Sequence[Coroutine[object, object, None]]) -> None:
    """Wait for all; a single one needs no task of its own."""
    if len(works) == 1:
        await works[0]
    else:
        await asyncio.gather(*works)
