"""A drawing: what a figure's plot.py makes of its rows."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """One image: file name without ending, what it shows in a sentence, and the canvas."""

    name: str
    caption: str
    canvas: "Canvas" = field(repr=False)

    def save(self, folder: Path) -> Path:
        """Write NAME.png; without date or version, so that equal rows give equal bytes."""
        path = folder / f"{self.name}.png"
        self.canvas.savefig(path, dpi=150, metadata={"Software": None})
        return path
