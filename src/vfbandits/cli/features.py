"""``vfb features``: what a participant does with its own data before it joins a federation."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import FEATURES
from vfbandits.errors import FeatureError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vfbandits.features.scaling import Scaling

features_app = typer.Typer(
    name="features", no_args_is_help=True, help="Fit the scaling of a participant's own features."
)


class ScaleName(StrEnum):
    """How numbers are scaled."""

    standard = "standard"
    unit = "unit"
    minmax = "minmax"
    none = "none"


@features_app.callback()
def features() -> None:
    """Fit the scaling of a participant's own features."""


Key = Annotated[str, typer.Option(help="Key columns: user, or user,arm.", rich_help_panel=FEATURES)]
Columns = Annotated[
    str, typer.Option(help="Numeric columns, such as a,b,c.", rich_help_panel=FEATURES)
]
OneHot = Annotated[
    str, typer.Option(help="Categorical columns, such as d,e.", rich_help_panel=FEATURES)
]
Hashed = Annotated[
    str,
    typer.Option(
        "--hash",
        help="Columns of open vocabularies, each with its width: page:64,query:256.",
        rich_help_panel=FEATURES,
    ),
]
HashRest = Annotated[
    int,
    typer.Option(
        "--hash-rest",
        metavar="WIDTH",
        min=0,
        help="Hash features that are in no column to this many columns.",
        rich_help_panel=FEATURES,
    ),
]
Scale = Annotated[
    ScaleName,
    typer.Option(
        help="standard: mean 0, deviation 1. unit: the same, in rows of length 1 on average. "
        "minmax: to [-1, 1]. none: unchanged.",
        rich_help_panel=FEATURES,
    ),
]


def fit(  # noqa: PLR0913  (one argument for each flag)
    *,
    out: Annotated[Path, typer.Option(help="Output file (mode 0600).")],
    source: Annotated[
        Path | None,
        typer.Option(
            help="The participant's data: CSV, CSV.gz or Parquet. Not needed to hash only."
        ),
    ] = None,
    key: Key = "",
    columns: Columns = "",
    one_hot: OneHot = "",
    hashed: Hashed = "",
    rest: HashRest = 0,
    scale: Scale = ScaleName.standard,
    as_json: AsJson = False,
) -> None:
    """Fit the scaling of a participant's features on its own rows.

    The file contains means and scales, or ranges, and the names of categories. These are facts
    about private data: keep the file here. The federation learns only its digest and width.
    features.toml next to it is the table [features] of the participant's file.
    """
    from vfbandits.settings.template import FEATURES_FILE

    scaling = fit_table(
        source,
        key=key,
        columns=columns,
        one_hot=one_hot,
        scale=scale,
        hashed=_widths(hashed),
        rest=rest,
    )
    lines = save_fitted(scaling, source, key=key, out=out)
    document = {
        "scaling": out,
        "features": None if source is None else out.with_name(FEATURES_FILE),
        "rows": scaling.fitted_rows,
        "columns": scaling.columns,
        "width": scaling.width,
        "digest": scaling.digest,
    }
    output = Output(as_json=as_json)
    output.show(document, list)
    for line in lines:
        output.say(line)


features_app.command()(in_one_line(fit))


def fit_table(
    source: Path | None,
    *,
    key: str,
    columns: str,
    one_hot: str,
    scale: ScaleName,
    hashed: "Mapping[str, int] | None" = None,
    rest: int = 0,
) -> "Scaling":
    """The scaling of the named columns of a table; without one, of columns that are hashed.

    ``hashed`` is None for a command that hashes nothing.
    """
    from vfbandits.features.fit import hash_scaling

    numbers, categories = _names(columns), _names(one_hot)
    if not (numbers or categories or hashed or rest):
        more = "" if hashed is None else ", --hash or --hash-rest"
        raise FeatureError(f"wanted --columns or --one-hot{more}, got none of them")
    if source is None:
        if numbers or categories:
            raise FeatureError("--columns and --one-hot are fitted on --source, got none")
        return hash_scaling(hashed, rest=rest)
    from vfbandits.extras import require

    require("polars", extra="rpc", to="fitting a scaling")
    from vfbandits.features.own_table import fit_columns

    return fit_columns(
        source,
        key=_names(key),
        numbers=numbers,
        categories=categories,
        method=scale.value,
        hashed=hashed,
        rest=rest,
    )


def save_fitted(scaling: "Scaling", source: Path | None, *, key: str, out: Path) -> list[str]:
    """Write a scaling and, for a table, [features]; returns lines for people."""
    scaling.save(out)
    lines = [
        f"wrote {out}: {scaling.method} scaling of {len(scaling.columns)} columns, "
        f"fitted on {scaling.fitted_rows} rows"
    ]
    if source is not None:
        from vfbandits.features.own_table import write_features

        table = write_features(scaling, source, key=_names(key), beside=out)
        lines.append(f"wrote {table}: the table [features] of your file")
    return [*lines, f"width {scaling.width}", f"digest {scaling.digest}"]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _widths(text: str) -> dict[str, int]:
    widths: dict[str, int] = {}
    for item in _names(text):
        name, _, width = item.rpartition(":")
        if not name or not width.isdecimal() or name in widths:
            raise FeatureError(f"--hash must be NAME:WIDTH with distinct names, got {item!r}")
        widths[name] = int(width)
    return widths
