"""Criteo's rows as logged rounds: user features, an arm among 40, a click.

The recipe is that of Malekzadeh et al. (2020), which the paper follows: columns with too many gaps
are dropped, the other gaps filled forward and then backward, the categories of a row become one
label (``label.py``), and the rows of the 40 most common labels are kept.

Only files grow with the number of rows.  The text is parsed once, into a spool beside the
output; labels need every category's values first, so they are made from the spool, and counted;
a last pass keeps the rows of the arms.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from vfbandits.datasets.criteo.columns import CATEGORIES, LABEL, NUMBERS
from vfbandits.datasets.criteo.file import CriteoFile
from vfbandits.datasets.criteo.label import N_PACKED, Labeller, label_of, unpack
from vfbandits.datasets.criteo.survey import FEATURES, Survey
from vfbandits.datasets.criteo.table import Arm, CriteoTable, Facts, PartWriter
from vfbandits.errors import DatasetError

REFERENCE_DROPPED = ("I1", "I10", "I12", "C19", "C20", "C22", "C25", "C26")
N_ARMS = 40


@dataclass(frozen=True, slots=True)
class Recipe:
    """The choices that the recipe leaves open.

    ``dropped`` names the columns to leave out, ``REFERENCE_DROPPED`` for those of the reference
    method; None leaves out every column of which more than ``max_missing`` is missing.
    """

    n_arms: int = N_ARMS
    max_missing: float = 0.4
    dropped: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no arms."""
        if self.n_arms < 2:
            raise DatasetError(f"n_arms must be at least 2, got {self.n_arms}")
        if not 0.0 <= self.max_missing <= 1.0:
            raise DatasetError(f"max_missing must be between 0 and 1, got {self.max_missing}")
        unknown = [name for name in self.dropped or () if name not in FEATURES]
        if unknown:
            raise DatasetError(f"dropped must name columns I1..I13, C1..C26, got {unknown}")


def featurise(
    source: CriteoFile,
    folder: Path,
    *,
    recipe: Recipe | None = None,
    on_rows: Callable[[str, int], None] | None = None,
) -> CriteoTable:
    """Write the rounds of ``source`` into ``folder``, and open them.

    The folder holds Parquet parts and facts.json; what was in it under those names is replaced.
    While it is made, a spool there takes about as much room as the text.  ``on_rows`` is called
    with the stage ("read", "label", "write") and the number of its rows that are done.
    """
    recipe = recipe or Recipe()
    folder.mkdir(parents=True, exist_ok=True)
    spool = Path(tempfile.mkdtemp(prefix="spool-", dir=folder))
    report = on_rows or (lambda _stage, _rows: None)
    try:
        survey, n_pieces = _read(source, spool, report)
        numbers, categories = _kept(survey, recipe)
        counts = _label(spool, n_pieces, survey, categories, report)
        arms = _most_common(counts, recipe.n_arms)
        parts = _parts(spool, n_pieces, survey, numbers, arms, report)
        dropped = tuple(name for name in FEATURES if name not in {*numbers, *categories})
        return _write(folder, parts, survey, numbers, dropped, arms)
    finally:
        shutil.rmtree(spool)


def _read(
    source: CriteoFile, spool: Path, report: Callable[[str, int], None]
) -> tuple[Survey, int]:
    survey = Survey()
    n_pieces = 0
    for piece in source.pieces():
        survey.note(piece)
        piece.frame.write_ipc(_rows_file(spool, n_pieces), compression="uncompressed")
        n_pieces += 1
        report("read", survey.n_rows)
    return survey, n_pieces


def _kept(survey: Survey, recipe: Recipe) -> tuple[tuple[str, ...], tuple[str, ...]]:
    dropped = survey.gappy(recipe.max_missing) if recipe.dropped is None else recipe.dropped
    numbers = tuple(name for name in NUMBERS if name not in dropped)
    categories = tuple(name for name in CATEGORIES if name not in dropped)
    if not numbers or not categories:
        raise DatasetError(
            "wanted at least one numerical and one categorical column to stay, got "
            f"{len(numbers)} and {len(categories)} after dropping {', '.join(dropped)}"
        )
    empty = [name for name in (*numbers, *categories) if name not in survey.first]
    if empty:
        raise DatasetError(f"wanted a value in every column that stays, got none in {empty}")
    return numbers, categories


def _label(
    spool: Path,
    n_pieces: int,
    survey: Survey,
    categories: tuple[str, ...],
    report: Callable[[str, int], None],
) -> NDArray[np.int64]:
    """Write each row's packed counts beside it; returns how often each number occurs."""
    labeller = Labeller({name: survey.distinct[name].values() for name in categories})
    filler = _Filler(survey.first)
    counts = np.zeros(N_PACKED, dtype=np.int64)
    for number in range(n_pieces):
        frame = pl.read_ipc(_rows_file(spool, number), columns=list(categories))
        packed = labeller.pack(filler.fill(frame))
        np.save(_labels_file(spool, number), packed)
        counts += np.bincount(packed, minlength=N_PACKED)
        report("label", int(counts.sum()))
    return counts


def _most_common(counts: NDArray[np.int64], n_arms: int) -> tuple[int, ...]:
    """Packed counts of the arms, the most common first; of equally common, the smaller label."""
    seen = [int(packed) for packed in np.flatnonzero(counts)]
    if len(seen) < n_arms:
        raise DatasetError(f"wanted {n_arms} different labels for the arms, got {len(seen)}")
    seen.sort(key=lambda packed: (-counts[packed], label_of(unpack(packed))))
    return tuple(seen[:n_arms])


def _parts(
    spool: Path,
    n_pieces: int,
    survey: Survey,
    numbers: tuple[str, ...],
    arms: tuple[int, ...],
    report: Callable[[str, int], None],
) -> Iterator[pl.DataFrame]:
    """The rows of the arms: filled numbers, click, and the arm's place."""
    filler = _Filler({name: survey.first[name] for name in numbers})
    arm_of = np.full(N_PACKED, len(arms), dtype=np.uint16)
    arm_of[list(arms)] = np.arange(len(arms))
    done = 0
    for number in range(n_pieces):
        frame = pl.read_ipc(_rows_file(spool, number), columns=[LABEL, *numbers])
        place = arm_of[np.load(_labels_file(spool, number))]
        full = filler.fill(frame.select(numbers))
        rows = full.with_columns(click=frame[LABEL], arm=pl.Series(place, dtype=pl.UInt16))
        yield rows.filter(pl.Series(place < len(arms)))
        done += frame.height
        report("write", done)


def _write(
    folder: Path,
    parts: Iterable[pl.DataFrame],
    survey: Survey,
    numbers: tuple[str, ...],
    dropped: tuple[str, ...],
    arms: tuple[int, ...],
) -> CriteoTable:
    writer = PartWriter(folder, numbers, len(arms))
    for rows in parts:
        writer.add(rows)
    writer.close()
    triples = [unpack(packed) for packed in arms]
    described = tuple(
        Arm(label_of(triple), triple, int(n_rows), int(n_clicks))
        for triple, n_rows, n_clicks in zip(
            triples, writer.rows_of_arm, writer.clicks_of_arm, strict=True
        )
    )
    facts = Facts(
        columns=numbers,
        minima=tuple(writer.minima.tolist()),
        maxima=tuple(writer.maxima.tolist()),
        arms=described,
        dropped=dropped,
        n_rows_read=survey.n_rows,
        n_bad_lines=survey.n_bad,
        first_bad_lines=tuple(survey.first_bad),
    )
    facts.write(folder)
    return CriteoTable.open(folder)


def _rows_file(spool: Path, number: int) -> Path:
    return spool / f"{number}.arrow"


def _labels_file(spool: Path, number: int) -> Path:
    return spool / f"{number}.npy"


class _Filler:
    """Fills gaps with the value before, across pieces; before the first value, with that one.

    That is "forward, then backward" for a file that is never in memory as a whole.
    """

    def __init__(self, first: dict[str, int]) -> None:
        self._last = dict(first)

    def fill(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The next piece without gaps; pieces must come in order and with the same columns."""
        full = frame.with_columns(
            pl.col(name).forward_fill().fill_null(self._last[name])
            for name in frame.columns
            if frame[name].null_count()
        )
        if full.height:
            self._last.update({name: full[name][-1] for name in full.columns})
        return full
