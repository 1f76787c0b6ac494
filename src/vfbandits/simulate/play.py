"""``vfb.play``: the benefit of a federation on a table of one's own, in one call."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.arrays import Matrix
from vfbandits.core.context import Split
from vfbandits.core.policy import LinTS, LinUCB, Policy
from vfbandits.core.policy.registry import make_policy
from vfbandits.errors import SettingError
from vfbandits.features.fit import fit_scaling
from vfbandits.progress import progress as tell_progress
from vfbandits.simulate.columns import Columns, Name
from vfbandits.simulate.contestant import Contestant
from vfbandits.simulate.pool import run_study
from vfbandits.simulate.result import StudyResult
from vfbandits.simulate.study import Study
from vfbandits.simulate.table_world import TableWorld

LAYOUTS: Final = ("disjoint", "outer")
POLICIES: Final = (LinUCB(), LinTS())


def play(  # noqa: PLR0913  (keywords only, each with a default that suits a first look)
    table: Any,  # noqa: ANN401  (pandas is no dependency of ours)
    *,
    label: Name | Sequence[object] | NDArray[Any],
    owners: Mapping[str, Sequence[Name]],
    policies: Sequence[Policy | str] = POLICIES,
    layout: str = "disjoint",
    arms: Mapping[object, Sequence[float]] | None = None,
    rounds: int | None = None,
    seeds: int = 5,
    scaling: str = "unit",
    ridge: float = 1.0,
    mask: str = "blockwise",
    aggregation: str = "plain",
    processes: int = 1,
    progress: bool = True,
) -> StudyResult:
    """Play a table as a bandit: with all features, as a federation, and with its first owner alone.

    Each row is a user and each class of the label an arm; showing the row's own class gives the
    reward 1.  Each owner scales its own columns, as ``vfb features fit`` would.

    Parameters
    ----------
    table
        A DataFrame of pandas or Polars, a mapping of columns, or a NumPy matrix.
    label
        Name of the column with the classes, or the classes themselves.
    owners
        Who holds which columns; the first is the active participant.
    policies
        Policies or their names, each of which is played in all three seats.
    layout, arms
        "disjoint" (a model for each arm), or "outer", which takes in ``arms`` the features of each
        class.
    rounds
        Rows to play; all if None.
    seeds
        How often to play, each time with the rows in another order.
    scaling
        How each owner scales its columns: "unit", "standard", "minmax" or "none".
    processes
        Above 1 a script needs the usual ``if __name__ == "__main__"`` guard.
    progress
        Whether to show progress on stderr or in the notebook.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> users = {"age": rng.normal(size=600), "income": rng.normal(size=600)}
    >>> users["buys"] = np.where(users["income"] > 0.0, "tea", "coffee")
    >>> owners = {"shop": ["age"], "bank": ["income"]}
    >>> result = play(users, label="buys", owners=owners, policies=["linucb"], seeds=2)
    >>> central, federated, alone = result.table()
    >>> central.mean == federated.mean < alone.mean
    True
    """
    columns = Columns(table)
    world = _world(columns, label, owners, scaling, _refuse_layout(layout, arms))
    horizon = len(columns) if rounds is None else rounds
    if horizon > len(columns):
        raise SettingError(f"rounds must be at most the table's {len(columns)} rows, got {rounds}")
    study = Study(
        contestants=tuple(
            contestant
            for policy in policies
            for contestant in _seats(_policy(policy), world.split, mask, aggregation)
        ),
        world=world,
        horizon=horizon,
        ridge=ridge,
        intercept=True,
        n_seeds=seeds,
    )
    if not progress:
        return run_study(study, processes=processes)
    total = len(study.contestants) * study.n_seeds * study.horizon
    with tell_progress("rounds", total=total) as tell:
        return run_study(study, processes=processes, on_step=tell)


def _refuse_layout(
    layout: str, arms: Mapping[object, Sequence[float]] | None
) -> Mapping[object, Sequence[float]] | None:
    """The arms' features, if the layout takes any."""
    if layout not in LAYOUTS:
        raise SettingError(
            f"layout must be {' or '.join(LAYOUTS)}, since a table has one row for each user; "
            f"got {layout!r}"
        )
    if (layout == "outer") != (arms is not None):
        given = "no arms" if arms is None else f"arms in layout {layout!r}"
        raise SettingError(f"arms holds the features of each arm in layout 'outer', got {given}")
    return arms


def _world(
    columns: Columns,
    label: Name | Sequence[object] | NDArray[Any],
    owners: Mapping[str, Sequence[Name]],
    scaling: str,
    arms: Mapping[object, Sequence[float]] | None,
) -> TableWorld:
    texts = _labels(columns, label)
    classes, labels = np.unique(np.array(texts, dtype=str), return_inverse=True)
    names = tuple(classes.tolist())
    if len(names) < 2:
        raise SettingError(f"label must have two classes at least, got {len(names)}")
    if len(names) == len(labels):
        raise SettingError(
            f"label must have classes that repeat, got {len(names)} in {len(labels)} rows: is "
            "it a number to predict, or an id?"
        )
    _refuse_owners(columns, label, owners)
    blocks = {name: _block(columns, held, scaling) for name, held in owners.items()}
    return TableWorld(
        {name: block.shape[1] for name, block in blocks.items()},
        np.hstack(list(blocks.values())),
        labels,
        names,
        None if arms is None else _arm_features(names, arms),
    )


def _labels(columns: Columns, label: Name | Sequence[object] | NDArray[Any]) -> list[str]:
    if isinstance(label, str | int):
        return columns.texts(label)
    if len(label) != len(columns):
        raise SettingError(
            f"label must have a class for each of {len(columns)} rows, got {len(label)}"
        )
    return Columns({"label": np.asarray(label)}).texts("label")


def _refuse_owners(
    columns: Columns,
    label: Name | Sequence[object] | NDArray[Any],
    owners: Mapping[str, Sequence[Name]],
) -> None:
    if len(owners) < 2:
        raise SettingError(f"owners must be two participants at least, got {len(owners)}")
    taken: dict[Name, str] = {}
    for owner, held in owners.items():
        if isinstance(held, str) or not held:
            raise SettingError(f"owner {owner!r} must have a list of columns, got {held!r}")
        for name in held:
            if isinstance(label, str | int) and name == label:
                raise SettingError(f"owner {owner!r} must not hold the label, got {name!r}")
            if name in taken:
                raise SettingError(
                    f"a column must have one owner, got {name!r} at {taken[name]!r} and {owner!r}"
                )
            columns.column(name)
            taken[name] = owner


def _block(columns: Columns, held: Sequence[Name], scaling: str) -> Matrix:
    """An owner's columns, scaled by what it fits on its own rows."""
    raw, numbers, categories = columns.raw(held)
    fitted = fit_scaling(raw, numbers=numbers, categories=categories, method=scaling)
    return fitted.apply(raw)


def _arm_features(classes: tuple[str, ...], arms: Mapping[object, Sequence[float]]) -> Matrix:
    named = {str(name): np.asarray(row, dtype=np.float64) for name, row in arms.items()}
    if set(named) != set(classes):
        raise SettingError(
            f"arms must have features of {', '.join(classes)}, got {', '.join(named) or 'none'}"
        )
    rows = [named[name] for name in classes]
    shapes = {row.shape for row in rows}
    if len(shapes) > 1 or rows[0].ndim != 1 or not np.isfinite(rows).all():
        raise SettingError(
            f"arms must have finite features, equally many for each, got shapes {sorted(shapes)}"
        )
    return np.array(rows)


def _policy(policy: Policy | str) -> Policy:
    return make_policy(policy, {}) if isinstance(policy, str) else policy


def _seats(
    policy: Policy, split: Split, mask: str, aggregation: str
) -> tuple[Contestant, Contestant, Contestant]:
    kind = type(policy).__name__
    return (
        Contestant(f"{kind}, central", policy),
        Contestant(
            f"{kind}, federated", policy, federated=True, mask=mask, aggregation=aggregation
        ),
        Contestant(f"{kind}, {split.active} alone", policy, features=(split.active,)),
    )
