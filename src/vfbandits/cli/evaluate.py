"""``vfb evaluate``: off-policy evaluation of a policy on a log of another one."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import MaskName, PlotFormat, PolicyName
from vfbandits.cli.engine_flags import EngineFlag, EngineName, RayAddress, engine_from
from vfbandits.cli.log_flags import (
    ArmColumn,
    ArmTable,
    ClipWeights,
    ContextColumns,
    FeatureTables,
    Intercept,
    KeyColumn,
    LogFile,
    LogLayout,
    ProbabilityColumn,
    RewardColumn,
    TrainFraction,
    format_from,
    load_log,
)
from vfbandits.cli.output import AsJson, Output, PlotFlag
from vfbandits.cli.panels import COMPUTING, ESTIMATION, LEARNING, OUTPUT
from vfbandits.cli.policy_flags import (
    Beta,
    Epsilon,
    Exponent,
    PosteriorScale,
    Scale,
    Space,
    policies_from,
)
from vfbandits.errors import SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from vfbandits.core.bandit import BanditOptions
    from vfbandits.core.policy import Policy
    from vfbandits.evaluate.evaluation import Estimate, EvaluationSettings
    from vfbandits.evaluate.log import LoggedBandit

ALL_ESTIMATORS = "replay,ips,snips,dm,dr,sndr"


def evaluate(  # noqa: PLR0913  (one argument for each flag)
    log: LogFile,
    *,
    arm: ArmColumn = "arm",
    reward: RewardColumn = "reward",
    probability: ProbabilityColumn = "probability",
    context: ContextColumns = "x_",
    table: FeatureTables = None,
    key: KeyColumn = None,
    arm_table: ArmTable = None,
    policy: Annotated[
        PolicyName,
        typer.Option(help="Policy to evaluate (target policy).", rich_help_panel=LEARNING),
    ] = PolicyName.linucb,
    layout: LogLayout = None,
    mask: Annotated[
        MaskName | None,
        typer.Option(
            help="Evaluate a federation with these masks.",
            show_default="none",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    ridge: Annotated[
        float, typer.Option(help="Ridge λ of the target policy.", rich_help_panel=LEARNING)
    ] = 1.0,
    discount: Annotated[
        float,
        typer.Option(
            help="Discount of the target policy; 1 forgets nothing.", rich_help_panel=LEARNING
        ),
    ] = 1.0,
    floor: Annotated[
        float, typer.Option(help="Fraction of uniform exploration.", rich_help_panel=LEARNING)
    ] = 0.0,
    intercept: Intercept = True,
    beta: Beta = None,
    posterior_scale: PosteriorScale = None,
    space: Space = None,
    epsilon: Epsilon = None,
    scale: Scale = None,
    exponent: Exponent = None,
    estimators: Annotated[
        str, typer.Option(help="Estimators to run, such as ips,dr.", rich_help_panel=ESTIMATION)
    ] = ALL_ESTIMATORS,
    train: TrainFraction = 0.5,
    clip: ClipWeights = None,
    model: Annotated[
        str,
        typer.Option(help="dm, dr: reward model, shared, arm or auto.", rich_help_panel=ESTIMATION),
    ] = "auto",
    model_ridge: Annotated[
        float, typer.Option(help="dm, dr: ridge of the reward model.", rich_help_panel=ESTIMATION)
    ] = 1.0,
    folds: Annotated[
        int, typer.Option(help="dm, dr: number of cross-fitting folds.", rich_help_panel=ESTIMATION)
    ] = 5,
    interval: Annotated[
        str,
        typer.Option(
            help="Bootstrap interval: percentile, bca or studentised.", rich_help_panel=ESTIMATION
        ),
    ] = "bca",
    confidence: Annotated[
        float, typer.Option(help="Confidence level of the intervals.", rich_help_panel=ESTIMATION)
    ] = 0.95,
    resamples: Annotated[
        int, typer.Option(help="Number of bootstrap resamples.", rich_help_panel=ESTIMATION)
    ] = 1_000,
    seed: Annotated[
        int,
        typer.Option(
            help="Random seed of policy, folds and bootstrap.", rich_help_panel=ESTIMATION
        ),
    ] = 0,
    engine: EngineFlag = EngineName.local,
    processes: Annotated[
        int,
        typer.Option(
            help="Number of parallel tasks; there are two, frozen and learning.",
            rich_help_panel=COMPUTING,
        ),
    ] = 1,
    ray_address: RayAddress = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Output folder for a CSV file and a plot.", rich_help_panel=OUTPUT),
    ] = None,
    plot_format: PlotFlag = PlotFormat.png,
    as_json: AsJson = False,
) -> None:
    """Estimate the reward per round that a policy would have earned, from the log of another one.

    For ips, snips, dm, dr and sndr the policy learns from the first part of the log and is
    evaluated, frozen, on the rest.  For replay it keeps learning through the whole log.
    """
    import numpy as np

    from vfbandits.evaluate.bootstrap import Bootstrap
    from vfbandits.evaluate.evaluation import EvaluationSettings
    from vfbandits.evaluate.evaluation import evaluate as run
    from vfbandits.evaluate.player import AgentFactory
    from vfbandits.evaluate.reward_model import RewardModel

    parameters = {
        "beta": beta,
        "posterior_scale": posterior_scale,
        "space": None if space is None else space.value,
        "epsilon": epsilon,
        "scale": scale,
        "exponent": exponent,
    }
    target = policies_from([policy.value], parameters)[0]
    settings = EvaluationSettings(
        train,
        clip,
        RewardModel(model, model_ridge, folds),
        Bootstrap(interval, confidence, resamples),
    )
    columns = format_from(
        arm=arm,
        reward=reward,
        probability=probability,
        context=context,
        key=key,
        table=table,
        arm_table=arm_table,
    )
    runner = engine_from(engine, processes, ray_address)
    if out is not None:
        _prepare(out, plot_format)
    logged = load_log(log, columns, layout)
    options: BanditOptions = {
        "layout": logged.layout,
        "arm_dim": None if logged.arm_features is None else logged.arm_features.shape[-1],
        "intercept": intercept and logged.layout != "per_arm",
        "ridge": ridge,
        "discount": discount,
        "floor": floor,
        "seed": seed,
    }
    widths = logged.dim if mask is None else logged.widths
    make_agent = AgentFactory(target, widths, options, None if mask is None else mask.value)
    with progress("replayed rounds", total=len(logged)) as tell:
        estimates = run(
            logged,
            make_agent,
            rng=np.random.default_rng(seed),
            estimators=[name.strip() for name in estimators.split(",")],
            settings=settings,
            engine=runner,
            on_step=tell,
        )
    written = (
        [] if out is None else _write(estimates, out, plot_format, title=f"{target!r} on {log}")
    )
    output = Output(as_json=as_json)
    output.show(
        {**as_object(target, logged, estimates, settings), "written": written},
        lambda: [as_table(target, logged, estimates), *_warnings(estimates)],
    )
    for path in written:
        output.say(f"wrote {path}")


def as_table(target: "Policy", log: "LoggedBandit", estimates: "Sequence[Estimate]") -> "Table":
    """The estimates, for the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from vfbandits.evaluate.output import spell, spell_interval, spell_relative

    table = Table(
        title=f"{target!r} on {len(log)} rounds, {log.n_arms} arms, "
        f"{'uniform' if log.is_uniform else 'not uniform'}; the log earned {spell(log.value)}",
        title_justify="left",
        caption=_caption(log, estimates),
        caption_justify="left",
        box=SIMPLE_HEAD,  # fits into 80 columns
    )
    table.add_column("estimator")
    table.add_column("target")
    for name in ("value", "interval", "to log", "eff. n"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in estimates:
        table.add_row(
            one.estimator,
            one.target,
            spell(one.value),
            spell_interval(one),
            spell_relative(one),
            f"{one.effective_size:.0f}",
        )
    return table


def _caption(log: "LoggedBandit", estimates: "Sequence[Estimate]") -> str:
    rounds = {one.target: one.n_rounds for one in estimates}
    lines = []
    if "frozen" in rounds:
        rest = rounds["frozen"]
        first = f"learnt from the first {len(log) - rest} rounds"
        lines.append(f"frozen: {first}, evaluated on the other {rest}.")
    if "learning" in rounds:
        lines.append("learning: replayed from the first round on.")
    lines.append(
        "eff. n: effective sample size, matched rounds for replay. to log: value over the log's "
        "own on the same rounds; ▲ ▼ where the interval of their difference lies above or below 0 "
        "and there is no warning."
    )
    return " ".join(lines)


def as_object(
    target: "Policy",
    log: "LoggedBandit",
    estimates: "Sequence[Estimate]",
    settings: "EvaluationSettings",
) -> dict[str, object]:
    """The estimates, as ``--json`` prints them."""
    from vfbandits.core.policy.registry import describe
    from vfbandits.evaluate.output import as_record

    return {
        "policy": describe(target),
        "rounds": len(log),
        "arms": log.n_arms,
        "layout": log.layout,
        "uniform": log.is_uniform,
        "logging_value": log.value,
        "train_share": settings.train_share,
        "interval": settings.bootstrap.method,
        "confidence": settings.bootstrap.confidence,
        "estimates": [as_record(one) for one in estimates],
    }


def _warnings(estimates: "Sequence[Estimate]") -> "list[RenderableType]":
    from rich.text import Text

    lines: list[RenderableType] = []
    for doubt in dict.fromkeys(doubt for one in estimates for doubt in one.doubts):
        who = ", ".join(one.estimator for one in estimates if doubt in one.doubts)
        lines.append(Text(f"warning, {who}: {doubt}", style="yellow"))
    return lines


def _prepare(out: Path, plot_format: PlotFormat) -> None:
    if plot_format is not PlotFormat.none:
        from vfbandits.extras import require

        require("matplotlib", extra="experiments", to="plotting")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SettingError(f"--out must be a writable folder, got {out}: {error}") from error


def _write(
    estimates: "Sequence[Estimate]", out: Path, plot_format: PlotFormat, *, title: str
) -> list[Path]:
    from vfbandits.evaluate.output import write_csv
    from vfbandits.evaluate.plot import save_plot

    paths = [out / "estimates.csv"]
    write_csv(estimates, paths[0])
    if plot_format is not PlotFormat.none:
        paths.append(out / f"estimates.{plot_format.value}")
        save_plot(estimates, paths[1], title=title)
    return paths
