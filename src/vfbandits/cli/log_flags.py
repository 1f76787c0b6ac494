"""A log of decisions, as flags: its file, its columns, and how policies are evaluated on it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import LayoutName
from vfbandits.cli.panels import ESTIMATION, LEARNING, LOG
from vfbandits.errors import SettingError

if TYPE_CHECKING:
    from vfbandits.evaluate.log import LoggedBandit
    from vfbandits.evaluate.read import LogFormat

OBD = "obd:"

LogFile = Annotated[
    str,
    typer.Argument(
        metavar="LOG",
        help="CSV, CSV.gz or Parquet; or obd:FOLDER for the Open Bandit Dataset.",
    ),
]
ArmColumn = Annotated[str, typer.Option(help="Arm column.", rich_help_panel=LOG)]
RewardColumn = Annotated[str, typer.Option(help="Reward column.", rich_help_panel=LOG)]
ProbabilityColumn = Annotated[
    str,
    typer.Option(help="Column with the logging probability (propensity).", rich_help_panel=LOG),
]
ContextColumns = Annotated[
    str,
    typer.Option(help="Context columns: a prefix, or names such as a,b,c.", rich_help_panel=LOG),
]
FeatureTables = Annotated[
    list[str] | None,
    typer.Option(
        help="Features of another participant, NAME=FILE. Can be repeated.", rich_help_panel=LOG
    ),
]
KeyColumn = Annotated[
    str | None, typer.Option(help="Column to join --table on.", rich_help_panel=LOG)
]
ArmTable = Annotated[
    Path | None,
    typer.Option(help="Layout outer: file with the arm features.", rich_help_panel=LOG),
]
LogLayout = Annotated[
    LayoutName | None,
    typer.Option(
        help="How contexts depend on the arm.",
        show_default="that of an exported journal, else disjoint",
        rich_help_panel=LEARNING,
    ),
]

Intercept = Annotated[
    bool, typer.Option(help="Add an intercept (not in layout per_arm).", rich_help_panel=LEARNING)
]
TrainFraction = Annotated[
    float, typer.Option(help="Fraction of the log to learn from.", rich_help_panel=ESTIMATION)
]
ClipWeights = Annotated[
    float | None,
    typer.Option(help="Clip importance weights at this value.", rich_help_panel=ESTIMATION),
]


def format_from(
    *,
    arm: str,
    reward: str,
    probability: str,
    context: str,
    key: str | None,
    table: list[str] | None,
    arm_table: Path | None,
) -> "LogFormat":
    """The flags, checked."""
    from vfbandits.evaluate.read import LogFormat

    names = tuple(name.strip() for name in context.split(",")) if "," in context else context
    return LogFormat(
        arm, reward, probability, names, key=key, tables=_tables(table), arm_table=arm_table
    )


def load_log(text: str, columns: "LogFormat", layout: LayoutName | None) -> "LoggedBandit":
    """The log in a file, or one of the Open Bandit Dataset."""
    from vfbandits.datasets.obd import load_obd
    from vfbandits.evaluate.read import read_log

    wanted = None if layout is None else layout.value
    if text.startswith(OBD):
        return load_obd(Path(text.removeprefix(OBD)), layout=wanted or "disjoint")
    return read_log(Path(text), columns=columns, layout=wanted)


def _tables(texts: list[str] | None) -> dict[str, Path]:
    tables: dict[str, Path] = {}
    for text in texts or []:
        name, mark, path = text.partition("=")
        if not mark or not name or not path or name in tables:
            raise SettingError(f"--table must be NAME=FILE with distinct names, got {text!r}")
        tables[name] = Path(path)
    return tables
