"""Logs from files: CSV, gzipped CSV and Parquet, with one more feature table per participant.

Only the columns that count are read, in a stream.  CSV cells are read as text and converted to
numbers here, so that an invalid cell is named by row and column.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.decision import ArmId
from vfbandits.errors import ArmError, ContextError, RewardError, SettingError
from vfbandits.evaluate.log import Indices, LoggedBandit
from vfbandits.evaluate.offers import Offers, is_export, layout_of
from vfbandits.evaluate.table import Table, as_numbers, first_bad

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class LogFormat:
    """The columns of a log's file.

    Attributes
    ----------
    arm, reward, probability
        Names of columns.
    context
        The columns of the context: a prefix of their names, or the names themselves.  In layout
        "per_arm" names are ``feature@arm``, one for each feature of each arm.
    active
        Name of the participant that holds the log's own context columns.
    key
        The column by which the rows of ``tables`` are found.
    tables
        One more table of features per passive participant: key, then columns that all count.
    arm_table
        Features of the arms (layout "outer"): the arm's column, then columns that all count.
    """

    arm: str = "arm"
    reward: str = "reward"
    probability: str = "probability"
    context: str | tuple[str, ...] = "x_"
    active: str = "active"
    key: str | None = None
    tables: Mapping[str, Path] = field(default_factory=dict)
    arm_table: Path | None = None

    def __post_init__(self) -> None:
        """Refuse tables that could not be joined, or have the same name."""
        if self.tables and self.key is None:
            raise SettingError("feature tables need a key, the column that finds rows, got none")
        if self.active in self.tables:
            raise SettingError(
                f"each participant needs a name of its own, got {self.active!r} twice"
            )


def read_log(
    path: Path,
    *,
    columns: LogFormat | None = None,
    layout: str | None = None,
    arms: Sequence[ArmId] | None = None,
) -> LoggedBandit:
    """The log in ``path``; all of it, or an error that names the first bad row, counted from 1.

    ``arms`` are all arms that could be played.  Without it they are those of the arm table, of
    the columns ``feature@arm``, or those that occur in the log.  In a journal's export they are in
    a column, for each row its own; rows that lack the contexts of all arms are skipped.

    Without ``layout`` it is that of a journal's export, otherwise "disjoint".
    """
    columns = columns or LogFormat()
    table = Table(path)
    layout = layout or layout_of(table)
    offers = _offers(table, columns, layout)
    is_block = offers is not None and layout == "per_arm"
    own = [] if is_block else _context_columns(table, columns)
    taken = {columns.active: own}
    frame = _own_columns(table, columns, own, offers)
    for name, other in columns.tables.items():
        joined = Table(other)
        taken[name] = joined.names_but(str(columns.key))
        frame = frame.join(
            joined.features(str(columns.key), name, taken[name]),
            left_on="key",
            right_on=f"{name}/",
            how="left",
            maintain_order="left",
        )
    data = table.collect(frame)
    if data.is_empty():
        raise SettingError(f"{path.name} must have at least one round, got none")
    _refuse_lonely_keys(data, columns, table)
    rewards = table.numbers(data, "reward", columns.reward, RewardError)
    probabilities = table.numbers(data, "probability", columns.probability, SettingError)
    _refuse_probabilities(probabilities, columns.probability, table)
    if offers is not None:
        keep = offers.complete(data)
        data, rewards, probabilities = data.filter(keep), rewards[keep], probabilities[keep]
    labels = [(name, column) for name, owned in taken.items() for column in owned]
    contexts = _contexts(data, labels, table)
    owners = [owner for owner, _ in labels]
    ids, arm_features = _arm_ids(data, columns, labels, arms=arms, layout=layout, offers=offers)
    chosen = _positions(data, ids, columns.arm, table)
    if offers is not None and is_block:
        contexts = offers.blocks(data, ids)
        owners = [columns.active] * contexts.shape[-1]
    elif layout == "per_arm":
        contexts, owners = _per_arm(contexts, labels, ids)
    return LoggedBandit.of(
        contexts,
        chosen,
        rewards=rewards,
        probabilities=probabilities,
        arms=ids,
        layout=layout,
        arm_features=arm_features,
        owners=owners,
        offered=None if offers is None else offers.keep(data, ids),
    )


def _offers(table: Table, columns: LogFormat, layout: str) -> Offers | None:
    """The reader of the arms on offer, if the file has them."""
    if not is_export(table):
        return None
    offers = Offers(table, layout)
    if layout == "per_arm" and offers.column is None:
        return None  # columns feature@arm, or an error that names them
    if layout == "per_arm" and columns.tables:
        raise SettingError(
            f"{table.path.name} has complete contexts of all arms: wanted no more tables, got "
            f"{', '.join(columns.tables)}"
        )
    return offers


def _context_columns(table: Table, columns: LogFormat) -> list[str]:
    table.need([columns.arm, columns.reward, columns.probability])
    if not isinstance(columns.context, str):
        table.need(columns.context)
        return list(columns.context)
    found = [name for name in table.names if name.startswith(columns.context)]
    if not found and not columns.tables:
        raise SettingError(
            f"{table.path.name} must have context columns that begin with "
            f"{columns.context!r}, got {', '.join(table.names)}{_way_out(table)}"
        )
    return found


def _way_out(table: Table) -> str:
    """Advice for a file of ``vfb journal export`` without contexts that can be used."""
    if not {"event_id", "contributors"} <= set(table.names):
        return ""
    if layout_of(table) == "per_arm":
        return "; it has contexts of layout 'per_arm', which is taken where no layout is asked for"
    if is_export(table):
        return (
            "; in this layout a journal has the contexts of all arms once the campaign has "
            'log_contexts = "all"; or give features of your own: --table NAME=FILE --key user'
        )
    return (
        "; export it again with vfb journal export --contexts, or give features of your own: "
        "--table NAME=FILE --key user"
    )


def _own_columns(
    table: Table, columns: LogFormat, own: list[str], offers: Offers | None
) -> "pl.LazyFrame":
    import polars as pl  # noqa: PLC0415  (an extra)

    chosen = [
        pl.col(columns.arm).cast(pl.String).alias("arm"),
        pl.col(columns.reward).cast(pl.Float64, strict=False).alias("reward"),
        pl.col(columns.probability).cast(pl.Float64, strict=False).alias("probability"),
        *as_numbers(columns.active, own),
    ]
    if offers is not None:
        chosen.extend(map(pl.col, offers.columns))
    if columns.key is not None:
        table.need([columns.key])
        chosen.append(pl.col(columns.key).cast(pl.String).alias("key"))
    return table.scan.select(chosen)


def _refuse_lonely_keys(data: "pl.DataFrame", columns: LogFormat, table: Table) -> None:
    for name, other in columns.tables.items():
        found = data[f"{name}//found"]
        if found.null_count():
            row = int(found.is_null().arg_max() or 0)
            raise ContextError(
                f"{other.name} of {name!r} must have a row for every key of {table.path.name}, "
                f"got none for row {row + 1}, and {found.null_count()} such rows"
            )


def _refuse_probabilities(values: Vector, column: str, table: Table) -> None:
    is_bad = ~((values > 0.0) & (values <= 1.0))
    if is_bad.any():
        row = int(is_bad.argmax())
        raise SettingError(
            f"column {column!r} of {table.path.name} must hold probabilities in (0, 1], "
            f"got {values[row]} in row {row + 1}"
        )


def _contexts(data: "pl.DataFrame", labels: list[tuple[str, str]], table: Table) -> Matrix:
    contexts = np.empty((len(data), len(labels)))
    for place, (owner, column) in enumerate(labels):
        contexts[:, place] = data[f"{owner}/{column}"].to_numpy()
        if (bad := first_bad(contexts[:, place])) is not None:
            raise ContextError(
                f"column {column!r} of {owner!r} must hold finite numbers, got a cell that is "
                f"none (empty, text, NaN or infinite) for row {bad + 1} of {table.path.name}"
            )
    return contexts


def _arm_ids(
    data: "pl.DataFrame",
    columns: LogFormat,
    labels: list[tuple[str, str]],
    *,
    arms: Sequence[ArmId] | None,
    layout: str,
    offers: Offers | None,
) -> tuple[tuple[ArmId, ...], Matrix | None]:
    if columns.arm_table is not None:
        return _arm_table(columns, columns.arm_table)
    if arms is not None:
        return tuple(arms), None
    if layout == "per_arm" and offers is None:
        return _as_ids(dict.fromkeys(_halves(column)[1] for _, column in labels)), None
    names = {arm for arm in data["arm"].unique().to_list() if arm is not None}
    ids = _as_ids([*names.union(() if offers is None else offers.names(data))])
    ids = tuple(sorted(ids, key=lambda arm: (isinstance(arm, str), arm)))
    if offers is None or layout != "outer" or offers.column is None:
        return ids, None
    return ids, offers.features(data, ids)


def _arm_table(columns: LogFormat, path: Path) -> tuple[tuple[ArmId, ...], Matrix]:
    import polars as pl  # noqa: PLC0415

    table = Table(path)
    names = table.names_but(columns.arm)
    data = table.collect(
        table.scan.select(pl.col(columns.arm).cast(pl.String), *as_numbers("arm", names))
    )
    labels = [("arm", name) for name in names]
    return _as_ids(data[columns.arm].to_list()), _contexts(data, labels, table)


def _as_ids(texts: Sequence[str] | Mapping[str, None]) -> tuple[ArmId, ...]:
    """Whole numbers where all of them are, otherwise text."""
    if all(text.isascii() and text.isdigit() and str(int(text)) == text for text in texts):
        return tuple(int(text) for text in texts)
    return tuple(texts)


def _positions(data: "pl.DataFrame", ids: Sequence[ArmId], column: str, table: Table) -> Indices:
    places = {str(arm): place for place, arm in enumerate(ids)}
    played = data["arm"].to_list()
    for row, arm in enumerate(played):
        if arm not in places:
            raise ArmError(
                f"column {column!r} of {table.path.name} must hold known arms, "
                f"{len(ids)} of them, got {arm!r} in row {row + 1}"
            )
    return np.array([places[arm] for arm in played], dtype=np.intp)


def _halves(column: str) -> tuple[str, str]:
    feature, mark, arm = column.rpartition("@")
    if not mark or not feature or not arm:
        raise ContextError(
            f"context columns of layout 'per_arm' must be named feature@arm, got {column!r}"
        )
    return feature, arm


def _per_arm(
    contexts: Matrix, labels: list[tuple[str, str]], ids: Sequence[ArmId]
) -> tuple[Matrix, list[str]]:
    """(n, n_arms·dim) to (n, n_arms, dim): features in the order in which they come first."""
    place = {(owner, *_halves(column)): at for at, (owner, column) in enumerate(labels)}
    features = list(dict.fromkeys((owner, feature) for owner, feature, _ in place))
    wanted = [(*feature, str(arm)) for arm in ids for feature in features]
    missing = [
        f"{feature}@{arm}" for owner, feature, arm in wanted if (owner, feature, arm) not in place
    ]
    if missing or len(wanted) != len(place):
        got = f"none called {missing[0]!r}" if missing else f"{len(place)} columns"
        raise ContextError(
            f"contexts must have {len(features)} features for each of {len(ids)} arms, got {got}"
        )
    order = [place[label] for label in wanted]
    return contexts[:, order].reshape(len(contexts), len(ids), len(features)), [
        owner for owner, _ in features
    ]
