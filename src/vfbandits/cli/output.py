"""What a command prints: tables and lines for people, or one JSON object for programs."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import PlotFormat
from vfbandits.cli.panels import OUTPUT

if TYPE_CHECKING:
    from rich.console import RenderableType

AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print one JSON object on stdout and nothing else.",
                 rich_help_panel=OUTPUT),
]  # fmt: skip

PlotFlag = Annotated[
    PlotFormat,
    typer.Option("--format", help="Plot format; none disables the plot.", rich_help_panel=OUTPUT),
]


def say(text: str) -> None:
    """Print one line for people as it is: no markup, no colour, no wrapping."""
    from rich.console import Console

    Console().print(text, highlight=False, markup=False, soft_wrap=True)


class Output:
    """The standard output of one command.

    With ``as_json`` it gets the document of ``show`` and nothing else; without, everything but
    the document.
    """

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def say(self, line: str) -> None:
        """A line for people."""
        if not self._as_json:
            say(line)

    def show(
        self, document: Mapping[str, object], for_people: "Callable[[], Sequence[RenderableType]]"
    ) -> None:
        """The result: the document, or tables and texts with the same content."""
        if self._as_json:
            typer.echo(json.dumps(plain(document), allow_nan=False))
            return
        from rich.console import Console

        console = Console()
        for item in for_people():
            console.print(item, highlight=False)


def plain(value: object) -> object:
    """``value`` in terms of JSON, where a number that JSON lacks, such as infinity, is null.

    >>> plain({"out": Path("a"), "gain": float("nan"), "rows": (1, 2)})
    {'out': 'a', 'gain': None, 'rows': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, Path | datetime):
        return str(value) if isinstance(value, Path) else value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
