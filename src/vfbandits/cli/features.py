"""``vfb features``: what a participant does with its own data before it joins a federation."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.output import AsJson, Output
from vfbandits.errors import FeatureError

if TYPE_CHECKING:
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


def fit(  # noqa: PLR0913  (one argument for each flag)
    *,
    out: Annotated[Path, typer.Option(help="Output file (mode 0600).")],
    source: Annotated[
        Path | None,
        typer.Option(
            help="The participant's data: CSV, CSV.gz or Parquet. Not needed to hash only."
        ),
    ] = None,
    key: Annotated[str, typer.Option(help="Key columns: user, or user,arm.")] = "",
    columns: Annotated[str, typer.Option(help="Numeric columns, such as a,b,c.")] = "",
    one_hot: Annotated[str, typer.Option(help="Categorical columns, such as d,e.")] = "",
    hashed: Annotated[
        str,
        typer.Option(
            "--hash", help="Columns of open vocabularies, each with its width: page:64,query:256."
        ),
    ] = "",
    rest: Annotated[
        int,
        typer.Option(
            "--hash-rest",
            metavar="WIDTH",
            min=0,
            help="Hash features that are in no column to this many columns.",
        ),
    ] = 0,
    scale: Annotated[
        ScaleName,
        typer.Option(
            help="standard: mean 0, deviation 1. unit: the same, in rows of length 1 on average. "
            "minmax: to [-1, 1]. none: unchanged."
        ),
    ] = ScaleName.standard,
    as_json: AsJson = False,
) -> None:
    """Fit the scaling of a participant's features on its own rows.

    The file contains means and scales, or ranges, and the names of categories. These are facts
    about private data: keep the file here. The federation learns only its digest and width.
    """
    from vfbandits.features.fit import hash_scaling

    numbers, categories, widths = _names(columns), _names(one_hot), _widths(hashed)
    if not (numbers or categories or widths or rest):
        raise FeatureError("wanted --columns, --one-hot, --hash or --hash-rest, got none of them")
    if source is not None:
        scaling = _fitted(source, _names(key), numbers, categories, widths, rest, scale.value)
    elif numbers or categories:
        raise FeatureError("--columns and --one-hot are fitted on --source, got none")
    else:
        scaling = hash_scaling(widths, rest=rest)
    scaling.save(out)
    _show(scaling, out, as_json=as_json)


features_app.command()(in_one_line(fit))


def _fitted(
    source: Path,
    key: tuple[str, ...],
    numbers: tuple[str, ...],
    categories: tuple[str, ...],
    widths: dict[str, int],
    rest: int,
    method: str,
) -> "Scaling":
    from vfbandits.extras import require
    from vfbandits.features.fit import fit_scaling

    require("polars", extra="rpc", to="fitting a scaling")
    from vfbandits.features.table_file import read_table

    table = read_table(source, key=key, numbers=numbers, categories=(*categories, *widths))
    return fit_scaling(
        table.raw, numbers=numbers, categories=categories, hashed=widths, rest=rest, method=method
    )


def _show(scaling: "Scaling", out: Path, *, as_json: bool) -> None:
    document = {
        "scaling": out,
        "rows": scaling.fitted_rows,
        "columns": scaling.columns,
        "width": scaling.width,
        "digest": scaling.digest,
    }
    output = Output(as_json=as_json)
    output.show(document, list)
    output.say(
        f"wrote {out}: {scaling.method} scaling of {len(scaling.columns)} columns, "
        f"fitted on {scaling.fitted_rows} rows"
    )
    output.say(f"width {scaling.width}")
    output.say(f"digest {scaling.digest}")


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
