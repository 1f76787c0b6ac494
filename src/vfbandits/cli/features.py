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


def fit(
    *,
    source: Annotated[Path, typer.Option(help="The participant's data: CSV, CSV.gz or Parquet.")],
    key: Annotated[str, typer.Option(help="Key columns: user, or user,arm.")],
    out: Annotated[Path, typer.Option(help="Output file (mode 0600).")],
    columns: Annotated[str, typer.Option(help="Numeric columns, such as a,b,c.")] = "",
    one_hot: Annotated[str, typer.Option(help="Categorical columns, such as d,e.")] = "",
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
    from vfbandits.extras import require_extras
    from vfbandits.features.fit import fit_scaling

    require_extras("experiments", to="fitting a scaling")
    from vfbandits.features.table_file import read_table

    numbers, categories = _names(columns), _names(one_hot)
    if not numbers and not categories:
        raise FeatureError("wanted --columns, --one-hot or both, got neither")
    table = read_table(source, key=_names(key), numbers=numbers, categories=categories)
    scaling = fit_scaling(table.raw, numbers=numbers, categories=categories, method=scale.value)
    scaling.save(out)
    _show(scaling, out, as_json=as_json)


features_app.command()(in_one_line(fit))


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
