"""``vfb parity``: masked against plain, round by round."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from vfbandits.cli.choices import AggregationName, LayoutName, MaskName, PolicyName, SpaceName
from vfbandits.cli.live_parity import compare_live
from vfbandits.cli.policy_flags import policies_from
from vfbandits.cli.progress import progress
from vfbandits.core.policy import Policy
from vfbandits.core.policy.registry import describe
from vfbandits.errors import SettingError, SnapshotError
from vfbandits.simulate.parity import ParityReport
from vfbandits.simulate.trial import ParityTrial
from vfbandits.simulate.world import ARM_DIM, WorldSettings, even_widths

ROTATED = (
    "LinTS drew in parameter space, as it does with more arms than features. There masked and "
    "plain are equal in distribution; for this report the masked side's normals were turned by "
    "the mask, so that decisions can be compared one by one."
)
LIVE = ("config", "trial", "arms", "rounds", "as_json")


def parity(  # noqa: PLR0913  (one argument for each flag)
    ctx: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            help="An application's TOML file: ask the running federation, with --rounds, --arms, "
            "--trial and --json only. The other flags are its own settings there."
        ),
    ] = None,
    trial: Annotated[
        int | None,
        typer.Option(
            help="--config: number of the public test data; new ones each time.",
            show_default="drawn at random",
        ),
    ] = None,
    policy: Annotated[PolicyName, typer.Option(help="How to explore.")] = PolicyName.linucb,
    layout: Annotated[LayoutName, typer.Option(help="Where the arm enters.")] = LayoutName.per_arm,
    mask: Annotated[MaskName, typer.Option(help="Family of masks.")] = MaskName.blockwise,
    aggregation: Annotated[
        AggregationName, typer.Option(help="secure needs dense masks and 3 participants.")
    ] = AggregationName.plain,
    dim: Annotated[int, typer.Option(help="Features, all participants together.")] = 100,
    arms: Annotated[int, typer.Option(help="Arms in each round.")] = 10,
    rounds: Annotated[int, typer.Option(help="Rounds to play.")] = 1_000,
    participants: Annotated[int, typer.Option(help="Participants, the active one included.")] = 5,
    arm_dim: Annotated[int, typer.Option(help="Features of an arm, layout outer.")] = ARM_DIM,
    noise: Annotated[float, typer.Option(help="Standard deviation of rewards.")] = 0.05,
    ridge: Annotated[float, typer.Option(help="Prior weight λ.")] = 1.0,
    discount: Annotated[float, typer.Option(help="Forgetting factor; 1 forgets nothing.")] = 1.0,
    floor: Annotated[float, typer.Option(help="Share of uniform exploration.")] = 0.0,
    missing: Annotated[
        float, typer.Option(help="Probability that a passive participant is missing in a round.")
    ] = 0.0,
    seed: Annotated[int, typer.Option(help="Of world, mask and policy.")] = 0,
    beta: Annotated[
        float | None, typer.Option(help="linucb: width multiplier.", show_default="0.5")
    ] = None,
    posterior_scale: Annotated[
        float | None, typer.Option(help="lints: scale of the draw.", show_default="0.01")
    ] = None,
    space: Annotated[
        SpaceName | None, typer.Option(help="lints: where to draw.", show_default="auto")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="lingreedy: share of random rounds.", show_default="0")
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="inverse_gap: gamma = scale·n^exponent.", show_default="10")
    ] = None,
    exponent: Annotated[
        float | None, typer.Option(help="inverse_gap: see --scale.", show_default="0.5")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Run a masked federation and a plain bandit side by side and compare every decision.

    Without --config everything is simulated in this process.  With it, public test data go through
    the running federation; what it has learnt is left alone.  Ends with exit code 1 if a decision
    differs.
    """
    given = _given(ctx)
    if config is not None:
        refused = [flag for name, flag in given.items() if name not in LIVE]
        if refused:
            raise SettingError(
                f"with --config the federation itself has these settings, got {', '.join(refused)}"
            )
        asked = arms if "arms" in given else None
        raise typer.Exit(
            compare_live(config, rounds=rounds, trial=trial, arms=asked, as_json=as_json)
        )
    if trial is not None:
        raise SettingError("--trial goes with --config, got no --config")
    parameters = {
        "beta": beta,
        "posterior_scale": posterior_scale,
        "space": None if space is None else space.value,
        "epsilon": epsilon,
        "scale": scale,
        "exponent": exponent,
    }
    simulated = ParityTrial(
        policies_from([policy.value], parameters)[0],
        WorldSettings(even_widths(dim, participants), arms, layout.value, arm_dim, noise),
        mask=mask.value,
        aggregation=aggregation.value,
        horizon=rounds,
        ridge=ridge,
        discount=discount,
        floor=floor,
        missing=missing,
        seed=seed,
    )
    raise typer.Exit(compare(simulated, as_json=as_json))


def compare(trial: ParityTrial, *, as_json: bool = False) -> int:
    """Run a trial and print what came of it; returns the exit code, 1 if a decision differs."""
    with progress("rounds", total=trial.horizon, silent=as_json) as tell:
        report = trial.run(on_round=lambda number: tell(number + 1))
    if as_json:
        typer.echo(json.dumps(as_object(trial, report)))
    else:
        show(trial, report)
    return 0 if report.lossless else 1


def as_object(trial: ParityTrial, report: ParityReport) -> dict[str, object]:
    """Settings and report, flat, as ``--json`` prints them."""
    return {
        "policy": _named(trial.policy),
        "layout": trial.world.layout,
        "mask": trial.mask,
        "aggregation": trial.aggregation,
        "dim": trial.world.split.dim,
        "arms": trial.world.n_arms,
        "rounds": trial.horizon,
        "participants": len(trial.world.widths),
        "arm_dim": trial.world.arm_dim if trial.world.layout == "outer" else None,
        "noise": trial.world.noise,
        "ridge": trial.ridge,
        "discount": trial.discount,
        "floor": trial.floor,
        "missing": trial.missing,
        "seed": trial.seed,
        "lossless": report.lossless,
        "decisions_equal": report.equal,
        "decisions_total": report.total,
        "first_difference": report.first_difference,
        "largest_score_difference": report.largest_score_difference,
        "masked_norm": report.masked_norm,
        "plain_norm": report.plain_norm,
        "norm_difference": abs(report.masked_norm - report.plain_norm),
        "masked_regret": report.masked_regret,
        "plain_regret": report.plain_regret,
        "rotated_draws": report.rotated_draws,
    }


def show(trial: ParityTrial, report: ParityReport) -> None:
    """The report for people."""
    first = report.first_difference
    table = Table(
        "",
        "masked against plain",
        title=f"{trial.policy!r}\n{trial.world.layout}, {trial.mask} mask, "
        f"{trial.aggregation} aggregation, {trial.world.split.dim} features, "
        f"{trial.world.n_arms} arms, {len(trial.world.widths)} participants",
        title_justify="left",
    )
    verdict = "green" if report.lossless else "red"
    table.add_row("decisions equal", f"[{verdict}]{report.equal} of {report.total}[/]")
    table.add_row("first difference", "none" if first is None else f"round {first}, counted from 0")
    table.add_row("largest relative score difference", f"{report.largest_score_difference:.1e}")
    table.add_row("‖θ̃‖, masked", f"{report.masked_norm:.12f}")
    table.add_row("‖θ̂‖, plain", f"{report.plain_norm:.12f}")
    table.add_row("their difference", f"{abs(report.masked_norm - report.plain_norm):.1e}")
    if report.masked_regret is not None and report.plain_regret is not None:
        table.add_row("cumulative regret, masked", f"{report.masked_regret:.6f}")
        table.add_row("cumulative regret, plain", f"{report.plain_regret:.6f}")
    console = Console()
    console.print(table)
    if report.rotated_draws:
        console.print(ROTATED, style="dim")


def _named(policy: Policy) -> dict[str, object]:
    try:
        return describe(policy)
    except SnapshotError:
        return {"name": type(policy).__name__}


def _given(ctx: typer.Context) -> dict[str, str]:
    """The flags that stand on the command line, by the name of their parameter."""
    given = {}
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if parameter.name and source is not None and source.name == "COMMANDLINE":
            given[parameter.name] = parameter.opts[0]
    return given
