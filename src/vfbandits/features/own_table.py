"""A participant's own table: which of its columns are features, their scaling, and [features]."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vfbandits.errors import FeatureError
from vfbandits.features.fit import fit_scaling
from vfbandits.features.scaling import Scaling
from vfbandits.features.table_file import read_table
from vfbandits.features.whole_table import flags_in_words, read_whole_table
from vfbandits.files import write_whole
from vfbandits.settings.template import FEATURES_FILE, features_text

MAX_CATEGORIES = 50  # of a text column that becomes flags


@dataclass(frozen=True, slots=True)
class ChosenColumns:
    """Columns that can be features, and for each of the others why it is left out."""

    numbers: tuple[str, ...]
    categories: tuple[str, ...]
    left_out: dict[str, str]


def choose_columns(path: Path, *, others: Collection[str]) -> ChosenColumns:
    """Every column that can be a feature but for ``others``, such as keys.

    Numbers are taken as they are, texts of few different values as flags.  A column that is the
    same in every row is left out, and so is text with many values.
    """
    numbers, categories, left_out = [], [], {}
    columns, spelt = read_whole_table(path), flags_in_words(path)
    if not any(map(len, columns.values())):
        raise FeatureError(f"{path.name} must have rows, got none below its column names")
    for name, column in columns.items():
        if name in others:
            continue
        is_number = isinstance(column, np.ndarray) and name not in spelt
        kinds = len(np.unique(column) if isinstance(column, np.ndarray) else set(column))
        if kinds < 2:
            left_out[name] = "the same in every row"
        elif is_number:
            numbers.append(name)
        elif kinds <= MAX_CATEGORIES:
            categories.append(name)
        else:
            left_out[name] = f"text with {kinds:,} different values"
    return ChosenColumns(tuple(numbers), tuple(categories), left_out)


def fit_columns(
    path: Path,
    *,
    key: Sequence[str],
    numbers: Sequence[str],
    categories: Sequence[str],
    method: str,
    hashed: Mapping[str, int] | None = None,
    rest: int = 0,
) -> Scaling:
    """The scaling of these columns, fitted on all rows of the file."""
    texts = (*categories, *(hashed or ()))
    table = read_table(path, key=key, numbers=numbers, categories=texts)
    return fit_scaling(
        table.raw, numbers=numbers, categories=categories, hashed=hashed, rest=rest, method=method
    )


def write_features(scaling: Scaling, source: Path, *, key: Sequence[str], beside: Path) -> Path:
    """Write the table [features] next to a saved scaling, for the file that will be there too.

    Paths in it are relative where the source is in that folder or below.
    """
    folder = beside.parent.resolve()
    there = source.resolve()
    path = there.relative_to(folder) if there.is_relative_to(folder) else there
    text = features_text(path=path.as_posix(), key=key, scaling=beside.name, digest=scaling.digest)
    target = beside.with_name(FEATURES_FILE)
    try:
        return write_whole(target, lambda file: file.write(text.encode()), mode=0o600)
    except OSError as error:
        raise FeatureError(f"cannot write [features] to {target}: {error.strerror}") from error
