"""The Open Bandit Dataset of ZOZO, as its folders are (Saito et al. 2021, arXiv:2008.07146).

A folder such as ``random/men`` holds ``men.csv`` (gzipped or not), one row per impression, and
``item_context.csv``, one row per item.  Three items are shown at a time, in three positions; here
every row is a round of its own, as in the authors' own pipeline, and its position is a feature.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.core.layout import LAYOUTS
from vfbandits.errors import ArmError, ContextError, RewardError, SettingError
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.evaluate.table import Table

if TYPE_CHECKING:
    import polars as pl

AFFINITY = "user-item_affinity_"
USER_FEATURES = tuple(f"user_feature_{number}" for number in range(4))
NUMBER = "item_feature_0"
ITEM_CATEGORIES = ("item_feature_1", "item_feature_2", "item_feature_3")


def load_obd(folder: Path, *, layout: str = "disjoint") -> LoggedBandit:
    """A folder of the data set as a log; rewards are clicks, arms are item ids.

    "disjoint" and "outer": the position (of the shop, which is active) and the hashed categories
    of the user, one-hot (of "users"); "outer" adds the items' features.  "per_arm": an item's own
    features ("shop") and the user's affinity to it ("affinity"); what is the same for all items
    cannot change their order and is left out.
    """
    if layout not in LAYOUTS:
        raise SettingError(f"layout must be one of {', '.join(LAYOUTS)}, got {layout!r}")
    table = Table(_impressions(folder))
    affinities = [name for name in table.names if name.startswith(AFFINITY)]
    table.need(["item_id", "position", "click", "propensity_score", *USER_FEATURES])
    data = table.collect(table.scan.select(_columns(affinities)))
    items = _items(folder / "item_context.csv")
    shown = table.numbers(data, "item_id", "item_id", ArmError)
    if not np.isin(shown, np.arange(len(items))).all():
        raise ArmError(f"item_id must be from 0 to {len(items) - 1}, got {shown.max():g}")
    if layout == "per_arm":
        contexts, owners = _per_arm(data, items, affinities)
    else:
        contexts, owners = _users(data)
    return LoggedBandit.of(
        contexts,
        shown.astype(np.intp),
        rewards=table.numbers(data, "click", "click", RewardError),
        probabilities=table.numbers(data, "propensity_score", "propensity_score", SettingError),
        arms=range(len(items)),
        layout=layout,
        arm_features=items if layout == "outer" else None,
        owners=owners,
    )


def _impressions(folder: Path) -> Path:
    name = folder.resolve().name
    for ending in (".csv.gz", ".csv"):
        path = folder / f"{name}{ending}"
        if path.is_file():
            return path
    raise SettingError(f"{folder} must be a folder with {name}.csv or {name}.csv.gz, got neither")


def _columns(affinities: list[str]) -> "list[pl.Expr]":
    import polars as pl  # noqa: PLC0415  (an extra)

    numbers = ["item_id", "click", "propensity_score", *affinities]
    return [
        *(pl.col(name).cast(pl.Float64, strict=False) for name in numbers),
        *(pl.col(name) for name in ("position", *USER_FEATURES)),
    ]


def _items(path: Path) -> Matrix:
    """Features of the items, in the order of their ids: a number, then one-hot categories."""
    table = Table(path)
    import polars as pl  # noqa: PLC0415  (an extra)

    table.need(["item_id", NUMBER, *ITEM_CATEGORIES])
    numbers = [pl.col(name).cast(pl.Float64, strict=False) for name in ("item_id", NUMBER)]
    data = table.collect(table.scan.select(*numbers, *ITEM_CATEGORIES))
    ids = data["item_id"].to_numpy()
    if sorted(ids.tolist()) != list(range(len(ids))):
        raise ArmError(f"{path.name} must hold items 0 to {len(ids) - 1}, each once")
    number = table.numbers(data, NUMBER, NUMBER, ArmError)[:, None]
    features = np.hstack([number, *(_one_hot(data[name]) for name in ITEM_CATEGORIES)])
    ordered: Matrix = np.empty_like(features)
    ordered[ids.astype(np.intp)] = features
    return ordered


def _users(data: "pl.DataFrame") -> tuple[Matrix, list[str]]:
    position = _one_hot(data["position"])
    users = np.hstack([_one_hot(data[name]) for name in USER_FEATURES])
    owners = ["shop"] * position.shape[1] + ["users"] * users.shape[1]
    return np.hstack([position, users]), owners


def _per_arm(
    data: "pl.DataFrame", items: Matrix, affinities: list[str]
) -> tuple[Matrix, list[str]]:
    wanted = [f"{AFFINITY}{item}" for item in range(len(items))]
    if set(affinities) != set(wanted):
        raise ArmError(f"wanted an affinity for each of {len(items)} items, got {len(affinities)}")
    own = np.broadcast_to(items, (len(data), *items.shape))
    affinity = data.select(wanted).to_numpy()[:, :, None]
    return np.concatenate([own, affinity], axis=2), ["shop"] * items.shape[1] + ["affinity"]


def _one_hot(column: "pl.Series") -> Matrix:
    """Categories in the order of their names."""
    if column.null_count():
        row = int(column.is_null().arg_max() or 0) + 1
        raise ContextError(
            f"column {column.name!r} must not be empty, got an empty cell in row {row}"
        )
    _, codes = np.unique(np.array(column.to_list(), dtype=str), return_inverse=True)
    return np.asarray(np.eye(int(codes.max()) + 1)[codes])
