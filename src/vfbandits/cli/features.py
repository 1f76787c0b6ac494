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
    name="features", no_args_is_help=True, help="A participant's own features: fit their scaling."
)


class ScaleName(StrEnum):
    """How numbers are scaled."""

    standard = "standard"
    minmax = "minmax"
    none = "none"


@features_app.callback()
def features() -> None:
    """A participant's own features: fit their scaling."""


def fit(
    *,
    source: Annotated[Path, typer.Option(help="CSV, CSV.gz or Parquet, at this participant.")],
    key: Annotated[str, typer.Option(help="Key columns: user, or user,arm.")],
    out: Annotated[Path, typer.Option(help="The file to write, for its owner only.")],
    columns: Annotated[str, typer.Option(help="Number columns, as a,b,c.")] = "",
    one_hot: Annotated[str, typer.Option(help="Category columns, as d,e.")] = "",
    scale: Annotated[
        ScaleName,
        typer.Option(help="standard: mean 0, deviation 1. minmax: to [-1, 1]. none: as it is."),
    ] = ScaleName.standard,
    as_json: AsJson = False,
) -> None:
    """Fit the scaling of a participant's features on its own rows.

    The file holds means and scales, or ranges, and the names of categories: facts about private
    data, which stay here. The federation is told its digest and its width.
    """
    from vfbandits.extras import require_extras
    from vfbandits.features.fit import fit_scaling

    require_extras("experiments", to="fitting a scaling")
    from vfbandits.features.table_file import read_table

    numbers, categories = _names(columns), _names(one_hot)
    if not numbers and not categories:
        raise FeatureError("a scaling needs --columns or --one-hot, got neither")
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
