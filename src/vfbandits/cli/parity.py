"""``vfb parity``: masked against plain, round by round."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import (
    AggregationName,
    LayoutName,
    MaskName,
    PolicyName,
    ProtectionName,
    ReleaseName,
)
from vfbandits.cli.live_parity import compare_live
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import FEDERATION, LEARNING, WORLD
from vfbandits.cli.policy_flags import (
    AcceptLeak,
    Beta,
    Epsilon,
    Exponent,
    PosteriorScale,
    Scale,
    Space,
    policies_from,
)
from vfbandits.errors import SettingError, SnapshotError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from vfbandits.core.policy import Policy
    from vfbandits.simulate.parity import ParityReport
    from vfbandits.simulate.trial import ParityTrial

ROTATED = (
    "LinTS sampled in parameter space, as it does with more arms than features. There the masked "
    "and the plain bandit are equal in distribution. For this report the masked bandit's normals "
    "were rotated by the mask, so that decisions can be compared one by one."
)
SHARED = (
    "LinTS sampled in parameter space, with noise of which each of the two servers drew half. For "
    "this report the plain bandit was given the sum, which no party knows outside of a simulation."
)
ARM_DIM = 5  # of simulate.world
LIVE = ("config", "trial", "arms", "rounds", "as_json")


def parity(  # noqa: PLR0913  (one argument for each flag)
    ctx: typer.Context,
    *,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Test a running federation, with the TOML file of an application. Combines only "
            "with --rounds, --arms, --trial and --json: the federation has its own settings.",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    trial: Annotated[
        int | None,
        typer.Option(
            help="With --config: number of the public test data.",
            show_default="drawn at random",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    mask: Annotated[
        MaskName, typer.Option(help="Mask family.", rich_help_panel=FEDERATION)
    ] = MaskName.blockwise,
    aggregation: Annotated[
        AggregationName,
        typer.Option(
            help="secure needs dense masks and 3 participants.", rich_help_panel=FEDERATION
        ),
    ] = AggregationName.plain,
    protection: Annotated[
        ProtectionName | None,
        typer.Option(
            help="Level of protection. shares is experimental; the second participant is the "
            "helper.",
            show_default="what --aggregation says",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    release: Annotated[
        ReleaseName | None,
        typer.Option(
            help="With --protection shares: what the active participant learns. inverse_gap and "
            "LinTS in arm space need statistics.",
            show_default="arm",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    accept_leak: AcceptLeak = None,
    participants: Annotated[
        int,
        typer.Option(
            help="Number of participants, including the active one.", rich_help_panel=FEDERATION
        ),
    ] = 5,
    missing: Annotated[
        float,
        typer.Option(
            help="Probability that a passive participant is missing in a round.",
            rich_help_panel=FEDERATION,
        ),
    ] = 0.0,
    dim: Annotated[
        int, typer.Option(help="Number of features of all participants.", rich_help_panel=WORLD)
    ] = 100,
    arms: Annotated[int, typer.Option(help="Arms in each round.", rich_help_panel=WORLD)] = 10,
    rounds: Annotated[int, typer.Option(help="Number of rounds.", rich_help_panel=WORLD)] = 1_000,
    arm_dim: Annotated[
        int, typer.Option(help="Layout outer: number of arm features.", rich_help_panel=WORLD)
    ] = ARM_DIM,
    noise: Annotated[
        float, typer.Option(help="Standard deviation of the reward noise.", rich_help_panel=WORLD)
    ] = 0.05,
    seed: Annotated[
        int, typer.Option(help="Random seed of world, mask and policy.", rich_help_panel=WORLD)
    ] = (0),
    policy: Annotated[
        PolicyName | None,
        typer.Option(
            help="Policy.",
            show_default="linucb, with --protection shares lints",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    layout: Annotated[
        LayoutName, typer.Option(help="How contexts depend on the arm.", rich_help_panel=LEARNING)
    ] = LayoutName.per_arm,
    ridge: Annotated[float, typer.Option(help="Ridge λ.", rich_help_panel=LEARNING)] = 1.0,
    discount: Annotated[
        float,
        typer.Option(help="Discount; 1 forgets nothing.", rich_help_panel=LEARNING),
    ] = 1.0,
    floor: Annotated[
        float, typer.Option(help="Fraction of uniform exploration.", rich_help_panel=LEARNING)
    ] = 0.0,
    beta: Beta = None,
    posterior_scale: PosteriorScale = None,
    space: Space = None,
    epsilon: Epsilon = None,
    scale: Scale = None,
    exponent: Exponent = None,
    as_json: AsJson = False,
) -> None:
    """Run a masked federation and a plain bandit side by side and compare every decision.

    Without --config everything is simulated in this process.  With --config, public test data go
    through the running federation, whose model does not change.  The exit code is 1 if any decision
    differs.
    """
    given = _given(ctx)
    if config is not None:
        refused = [flag for name, flag in given.items() if name not in LIVE]
        if refused:
            raise SettingError(
                f"--config excludes {', '.join(refused)}: the federation has its own settings"
            )
        asked = arms if "arms" in given else None
        raise typer.Exit(
            compare_live(config, rounds=rounds, trial=trial, arms=asked, as_json=as_json)
        )
    if trial is not None:
        raise SettingError("--trial needs --config, got no --config")
    from vfbandits.simulate.trial import ParityTrial
    from vfbandits.simulate.world import WorldSettings, even_widths

    parameters = {
        "beta": beta,
        "posterior_scale": posterior_scale,
        "space": None if space is None else space.value,
        "epsilon": epsilon,
        "scale": scale,
        "exponent": exponent,
    }
    if policy is None:
        policy = PolicyName.lints if protection is ProtectionName.shares else PolicyName.linucb
    simulated = ParityTrial(
        policies_from([policy.value], parameters)[0],
        WorldSettings(even_widths(dim, participants), arms, layout.value, arm_dim, noise),
        mask=mask.value,
        aggregation=aggregation.value,
        protection=None if protection is None else protection.value,
        release=None if release is None else release.value,
        accept_leak=tuple(accept_leak or ()),
        horizon=rounds,
        ridge=ridge,
        discount=discount,
        floor=floor,
        missing=missing,
        seed=seed,
    )
    raise typer.Exit(compare(simulated, as_json=as_json))


def compare(trial: "ParityTrial", *, as_json: bool = False) -> int:
    """Run a trial and print its report; returns the exit code, 1 if a decision differs."""
    with progress("rounds", total=trial.horizon) as tell:
        report = trial.run(on_round=lambda number: tell(number + 1))
    Output(as_json=as_json).show(as_object(trial, report), lambda: for_people(trial, report))
    return 0 if report.lossless else 1


def as_object(trial: "ParityTrial", report: "ParityReport") -> dict[str, object]:
    """Settings and report, flat, as ``--json`` prints them."""
    from vfbandits.core.round import protection_of

    return {
        "policy": _named(trial.policy),
        "layout": trial.world.layout,
        "mask": trial.mask,
        "aggregation": trial.aggregation,
        "protection": protection_of(trial.protection, trial.aggregation),
        "released": trial.federation().learns,
        "accept_leak": trial.accept_leak,
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


def for_people(trial: "ParityTrial", report: "ParityReport") -> "list[RenderableType]":
    """The report as a table, with notes."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        "",
        "masked against plain",
        title=f"{trial.policy!r}\n{trial.world.layout}, {trial.mask} mask, "
        f"{'secret shares' if trial.protection == 'shares' else f'{trial.aggregation} aggregation'}"
        f", {trial.world.split.dim} features, "
        f"{trial.world.n_arms} arms, {len(trial.world.widths)} participants",
        title_justify="left",
    )
    verdict = "green" if report.lossless else "red"
    (equal, count), *others = report.rows()
    table.add_row(equal, f"[{verdict}]{count}[/]")
    for row in others:
        table.add_row(*row)
    shown: list[RenderableType] = [table]
    if trial.protection == "shares":
        learns = trial.federation().learns
        read = f", from which rows of {', '.join(trial.accept_leak)} can be read"
        learns += read if trial.accept_leak else ""
        shown.append(Text(f"The active participant learns {learns}.", style="dim"))
    if report.rotated_draws:
        shown.append(Text(SHARED if trial.protection == "shares" else ROTATED, style="dim"))
    return shown


def _named(policy: "Policy") -> dict[str, object]:
    from vfbandits.core.policy.registry import describe

    try:
        return describe(policy)
    except SnapshotError:
        return {"name": type(policy).__name__}


def _given(ctx: typer.Context) -> dict[str, str]:
    """The flags given on the command line, by the name of their parameter."""
    given = {}
    for parameter in ctx.command.params:
        source = ctx.get_parameter_source(parameter.name or "")
        if parameter.name and source is not None and source.name == "COMMANDLINE":
            given[parameter.name] = parameter.opts[0]
    return given
