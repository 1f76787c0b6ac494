"""The extras table of docs/dependencies.md: what is installed, and its first commands."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "dependencies.md"
ROW = re.compile(r"^\| `vfbandits(?:\[(?P<extras>[a-z,]+)\])?` \| (?P<use>.+?) \| (?P<cell>.+) \|$")


@dataclass(frozen=True)
class Row:
    extras: tuple
    commands: tuple

    @property
    def name(self):
        return ",".join(self.extras) or "bare"

    def requirement(self, wheel):
        return f"{wheel}[{','.join(self.extras)}]" if self.extras else str(wheel)


def rows():
    """Every row of the table; a line in it that cannot be read is an error."""
    section = PAGE.read_text("utf-8").split("## Extras\n")[1].split("\n## ")[0]
    head, line, *lines = [text for text in section.splitlines() if text.startswith("|")]
    assert head == "| install | for | first commands |"
    assert line == "|---|---|---|"
    return [_row(text) for text in lines]


def _row(text):
    match = ROW.match(text)
    assert match, f"a row of the extras table, got {text}"
    cell = match["cell"].split("<br>")
    assert all(part[0] == part[-1] == "`" and "`" not in part[1:-1] for part in cell), text
    commands = tuple(tuple(shlex.split(part.strip("`"))) for part in cell)
    return Row(tuple((match["extras"] or "").split(",")) if match["extras"] else (), commands)


ROWS = {row.name: row for row in rows()}
