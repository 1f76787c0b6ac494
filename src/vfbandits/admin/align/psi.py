"""The set intersection itself: openmined.psi in its raw mode, on all cores.

Keys are drawn for each alignment and never leave the process.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

import private_set_intersection.python as psi

from vfbandits.errors import WireError

_NO_RATE: Final = 0.5  # of false matches: required, although the raw mode has none

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")


class Cores:
    """Threads that work on parts of a list: the library releases the GIL."""

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = n_threads or os.cpu_count() or 1
        self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="align")

    def map(self, work: Callable[[Sequence[T]], list[bytes]], items: Sequence[T]) -> list[bytes]:
        """The results of ``work`` for all parts, in the order of ``items``."""
        size = max(1, -(-len(items) // self.n_threads))
        parts = [items[start : start + size] for start in range(0, len(items), size)]
        return [one for made in self.each(work, parts) for one in made]

    def each(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """The result of ``work`` for each item, in their order."""
        return [*self._pool.map(work, items)]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown()


class _Copies(Generic[C]):
    """Ciphers with one key, each for one thread at a time: two threads in one crash the process."""

    def __init__(self, copies: Iterable[C]) -> None:
        self._free: SimpleQueue[C] = SimpleQueue()
        for copy in copies:
            self._free.put(copy)

    @contextmanager
    def one(self) -> Iterator[C]:
        """Borrow a copy for exclusive use."""
        copy = self._free.get()
        try:
            yield copy
        finally:
            self._free.put(copy)


class Sender:
    """The end that is asked, and does not learn the common users here."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        key = psi.server.CreateWithNewKey(reveal_intersection=True).GetPrivateKeyBytes()
        self._ciphers = _Copies(
            psi.server.CreateFromKey(key, reveal_intersection=True) for _ in range(cores.n_threads)
        )

    def own(self, users: Sequence[str]) -> list[bytes]:
        """Users under the own key, sorted by element, so that the order reveals nothing."""
        return sorted(self._cores.map(self._own, users))

    def _own(self, users: Sequence[str]) -> list[bytes]:
        with self._ciphers.one() as cipher:
            made = cipher.CreateSetupMessage(_NO_RATE, len(users), [*users], psi.DataStructure.RAW)
        return [*made.raw.encrypted_elements]

    def cover(self, elements: Sequence[bytes]) -> list[bytes]:
        """Elements of the other end, under both keys; WireError if one is no element."""
        return self._cores.map(self._cover, elements)

    def _cover(self, elements: Sequence[bytes]) -> list[bytes]:
        request = psi.Request(reveal_intersection=True, encrypted_elements=elements)
        with self._ciphers.one() as cipher, _refusing_others():
            return [*cipher.ProcessRequest(request).encrypted_elements]


class Receiver:
    """The end that asks, and learns the common users."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        key = psi.client.CreateWithNewKey(reveal_intersection=True).GetPrivateKeyBytes()
        self._ciphers = _Copies(
            psi.client.CreateFromKey(key, reveal_intersection=True) for _ in range(cores.n_threads)
        )

    def blind(self, users: Sequence[str]) -> list[bytes]:
        """Users under the own key, in their order."""
        return self._cores.map(self._blind, users)

    def _blind(self, users: Sequence[str]) -> list[bytes]:
        with self._ciphers.one() as cipher:
            return [*cipher.CreateRequest([*users]).encrypted_elements]

    def common(self, covered: Sequence[bytes], theirs: Sequence[bytes]) -> list[int]:
        """Indices of the own users that the other end has too."""
        setup = psi.ServerSetup()
        setup.raw.encrypted_elements.extend(sorted(theirs))  # it is searched in this order
        starts = range(0, len(covered), max(1, -(-len(covered) // self._cores.n_threads)))

        def match(start: int) -> list[int]:
            part = psi.Response(encrypted_elements=covered[start : start + starts.step])
            with self._ciphers.one() as cipher, _refusing_others():
                return [start + place for place in cipher.GetIntersection(setup, part)]

        return [place for places in self._cores.each(match, starts) for place in places]


@contextmanager
def _refusing_others() -> Iterator[None]:
    """Turn the library's error for bytes that are no element into a WireError."""
    try:
        yield
    except RuntimeError:
        raise WireError("elements: wanted points of the curve, got other bytes") from None
