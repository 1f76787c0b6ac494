"""The functions of ``vfbandits`` that run while a journey lasts, and the figures made of them."""

import dis
import gc
import inspect
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import vfbandits

PACKAGE = "vfbandits"
SOURCE = Path(vfbandits.__file__).parent
FUNCTION_START = 0  # the argument of RESUME, but for its flags: not after a yield or an await
RESUME_KINDS = 3


class Call(NamedTuple):
    """The start of a function: its thread, its file below ``src/vfbandits``, and its name."""

    thread: int
    file: str
    function: str

    @property
    def room(self) -> str:
        """The package directly below ``vfbandits``, or a module that stands there alone.

        >>> Call(1, "http/access/guard.py", "Guard.__call__").room
        'http'
        >>> Call(1, "files.py", "sync_folder").room
        'files'
        """
        return self.file.partition("/")[0].removesuffix(".py")


@dataclass(frozen=True, slots=True)
class Journey:
    """One journey: every call in order, and for each class the rooms that saw a new instance."""

    calls: Sequence[Call]
    rooms_by_class: Mapping[str, Sequence[str]]

    @property
    def functions(self) -> int:
        """How many distinct functions ran."""
        return len({(call.file, call.function) for call in self.calls})

    @property
    def files(self) -> int:
        """How many files these functions are in."""
        return len({call.file for call in self.calls})

    @property
    def changes_of_package(self) -> int:
        """How often a call is in another room than the call before it in the same thread."""
        return sum(
            here.room != there.room for calls in self._threads() for here, there in pairwise(calls)
        )

    @property
    def shapes(self) -> list[str]:
        """The classes whose new instances a function took or returned."""
        return sorted(self.rooms_by_class)

    @property
    def shapes_between_packages(self) -> list[str]:
        """The shapes that functions of two rooms or more took or returned."""
        return sorted(name for name, rooms in self.rooms_by_class.items() if len(set(rooms)) > 1)

    def entries_by_file(self) -> Counter[str]:
        """How often the sequence of calls enters each file from another one."""
        return Counter(
            file for calls in self._threads() for file, _ in groupby(call.file for call in calls)
        )

    def calls_by_file(self) -> Counter[str]:
        """How many calls each file has."""
        return Counter(call.file for call in self.calls)

    def figures(self) -> dict[str, object]:
        """The figures of the table, and what they count."""
        return {
            "functions": self.functions,
            "files": self.files,
            "changes_of_package": self.changes_of_package,
            "shapes": len(self.shapes),
            "shapes_between_packages": len(self.shapes_between_packages),
            "rooms_by_shape": dict(self.rooms_by_class),
            "entries_by_file": dict(self.entries_by_file().most_common()),
            "calls_by_file": dict(self.calls_by_file().most_common()),
        }

    def _threads(self) -> Iterable[list[Call]]:
        threads: dict[int, list[Call]] = defaultdict(list)
        for call in self.calls:
            threads[call.thread].append(call)
        return threads.values()


class Tracer:
    """A profile function for ``sys.setprofile`` and ``threading.setprofile``; idle until ``begin``.

    It keeps the start of each function in ``source``: no coroutine that goes on, no comprehension,
    no class body, and nothing that runs because a module is imported.
    """

    def __init__(self, source: Path = SOURCE, package: str = PACKAGE) -> None:
        self._source = f"{source}/"
        self._package = package
        self._is_on = False
        self._calls: list[Call] = []
        self._rooms: dict[str, set[str]] = {}
        self._known: set[int] = set()
        self._old: list[object] = []
        self._functions: dict[CodeType, _Function | None] = {}

    def begin(self) -> None:
        """Forget what was seen, and keep what comes from now on."""
        self._calls, self._rooms = [], defaultdict(set)
        gc.unfreeze()  # get_objects leaves out what a server froze
        # Held until the end: the id of an object that died could come back as a new one's.
        self._old = [one for one in gc.get_objects() if self._is_ours(one)]
        self._known = {id(one) for one in self._old}
        self._is_on = True

    def end(self) -> Journey:
        """Keep no more; returns what was seen."""
        self._is_on = False
        self._old, self._known = [], set()
        rooms = {name: sorted(seen) for name, seen in sorted(self._rooms.items())}
        return Journey(tuple(self._calls), rooms)

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        """Take note of one event of the interpreter."""
        if not self._is_on or event not in {"call", "return"}:
            return
        code = frame.f_code
        if code not in self._functions:
            self._functions[code] = _function_of(code, self._source)
        function = self._functions[code]
        if function is None:
            return
        if event == "return":
            self._see(arg, function.file)
        elif frame.f_lasti in function.starts and not self._is_importing(frame):
            self._calls.append(Call(threading.get_ident(), function.file, function.name))
            variables = frame.f_locals
            for name in function.parameters:
                self._see(variables.get(name), function.file)

    def _is_importing(self, frame: FrameType) -> bool:
        above: FrameType | None = frame
        while above is not None:
            code = above.f_code
            if code.co_name == "<module>" and code.co_filename.startswith(self._source):
                return True
            above = above.f_back
        return False

    def _see(self, value: object, file: str) -> None:
        for one in _with_items(value):
            if self._is_ours(one) and id(one) not in self._known:
                kind = type(one)
                self._rooms[f"{kind.__module__}.{kind.__qualname__}"].add(Call(0, file, "").room)

    def _is_ours(self, value: object) -> bool:
        return str(type(value).__module__).partition(".")[0] == self._package


class _Function(NamedTuple):
    file: str
    name: str
    parameters: tuple[str, ...]
    starts: frozenset[int]


def _function_of(code: CodeType, source: str) -> _Function | None:
    is_function = code.co_flags & inspect.CO_OPTIMIZED
    has_name = not code.co_name.startswith("<") or code.co_name == "<lambda>"
    if not (code.co_filename.startswith(source) and is_function and has_name):
        return None
    count = code.co_argcount + code.co_kwonlyargcount
    count += sum(
        bool(code.co_flags & more) for more in (inspect.CO_VARARGS, inspect.CO_VARKEYWORDS)
    )
    return _Function(
        code.co_filename.removeprefix(source),
        code.co_qualname,
        code.co_varnames[:count],
        frozenset(_starts(code)),
    )


def _starts(code: CodeType) -> Iterator[int]:
    for instruction in dis.get_instructions(code):
        argument = instruction.arg or 0
        if instruction.opname == "RESUME" and argument & RESUME_KINDS == FUNCTION_START:
            yield instruction.offset


def _with_items(value: object) -> Iterator[object]:
    """A value and, if it is a plain collection, what is in it."""
    yield value
    if type(value) in {list, tuple, set, frozenset}:
        yield from tuple(value)  # type: ignore[arg-type]
    elif type(value) is dict:
        yield from tuple(value.values())
