"""Finds the operation for a path and a method.

Paths without parameters are found in a dict.  The others are grouped by the prefix before their
first parameter, so few patterns are tried for a path.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")
_NOTHING: Final[Mapping[str, str]] = {}
_PARAMETER: Final = re.compile(r"\\\{(\w+)\\\}")
# An event id may hold slashes; a campaign's name holds none.
_PATTERNS: Final = {"event_id": ".*", "other_call": ".*"}


class Match(NamedTuple, Generic[T]):
    """The operation, and the parameters of its path."""

    found: T
    params: Mapping[str, str]


class Router(Generic[T]):
    """Finds by method and path, which is written as in the table: ``/v1/events/{event_id}``.

    >>> router = Router([("GET", "/v1/events/{event_id}", 1), ("POST", "/v1/rank", 2)])
    >>> router.find("GET", "/v1/events/a/b")
    Match(found=1, params={'event_id': 'a/b'})
    >>> router.find("GET", "/v1/nothing") is None
    True
    """

    def __init__(self, table: Iterable[tuple[str, str, T]]) -> None:
        self._exact: dict[str, dict[str, Match[T]]] = {}
        by_path: dict[str, dict[str, T]] = {}
        for method, path, found in table:
            if "{" in path:
                by_path.setdefault(path, {})[method] = found
            else:
                self._exact.setdefault(path, {})[method] = Match(found, _NOTHING)
        self._groups: dict[str, list[tuple[re.Pattern[str], dict[str, T]]]] = {}
        # The longer first: "/v1/events/x/reward" fits "/v1/events/{event_id}" as well.
        for path in sorted(by_path, key=lambda path: -path.count("/")):
            group = self._groups.setdefault(path.partition("{")[0], [])
            group.append((_pattern(path), by_path[path]))

    def find(self, method: str, path: str) -> Match[T] | None:
        """The match; None if no path fits, HTTPException 405 if only the method does not.

        HEAD is answered where GET is.
        """
        if method == "HEAD":
            method = "GET"
        exact = self._exact.get(path)
        if exact is not None:
            if method in exact:
                return exact[method]
            raise _not_allowed(exact)
        return self._find_pattern(method, path)

    def _find_pattern(self, method: str, path: str) -> Match[T] | None:
        other: Mapping[str, T] | None = None
        for prefix, group in self._groups.items():
            if not path.startswith(prefix):
                continue
            for pattern, by_method in group:
                match = pattern.fullmatch(path)
                if match is None:
                    continue
                if method in by_method:
                    return Match(by_method[method], match.groupdict())
                other = other or by_method
        if other is not None:
            raise _not_allowed(other)
        return None


def _pattern(path: str) -> re.Pattern[str]:
    def group(match: re.Match[str]) -> str:
        name = match[1]
        return f"(?P<{name}>{_PATTERNS.get(name, '[^/]+')})"

    return re.compile(_PARAMETER.sub(group, re.escape(path)))


def _not_allowed(by_method: Iterable[str]) -> HTTPException:
    allowed = {*by_method} | ({"HEAD"} if "GET" in by_method else set())
    return HTTPException(405, headers={"allow": ", ".join(sorted(allowed))})
