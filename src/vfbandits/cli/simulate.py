"""``vfb simulate``: regret of any set of contestants in the paper's synthetic world."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import (
    AggregationName,
    LayoutName,
    MaskName,
    PlotFormat,
    PolicyName,
    ProtectionName,
)
from vfbandits.cli.engine_flags import (
    EngineFlag,
    EngineName,
    Processes,
    RayAddress,
    engine_from,
)
from vfbandits.cli.failure import stop
from vfbandits.cli.output import AsJson, Output, PlotFlag
from vfbandits.cli.panels import FEDERATION, LEARNING, OUTPUT, WORLD
from vfbandits.cli.policy_flags import (
    AcceptLeak,
    Beta,
    Epsilon,
    Exponent,
    PosteriorScale,
    Scale,
    policies_from,
)
from vfbandits.errors import SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from vfbandits.core.noise import VectorNoise
    from vfbandits.core.policy import Policy
    from vfbandits.simulate.contestant import Contestant, Features
    from vfbandits.simulate.engine import Engine
    from vfbandits.simulate.result import StudyResult
    from vfbandits.simulate.study import Study


def simulate(  # noqa: PLR0913  (one argument for each flag)
    file: Annotated[
        Path | None, typer.Argument(help="A study in TOML; flags override its keys.")
    ] = None,
    *,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds per run.", show_default="5000", rich_help_panel=WORLD)
    ] = None,
    arms: Annotated[
        int | None, typer.Option(help="Arms per round.", show_default="10", rich_help_panel=WORLD)
    ] = None,
    dim: Annotated[
        int | None,
        typer.Option(
            help="Number of features, split evenly.", show_default="100", rich_help_panel=WORLD
        ),
    ] = None,
    arm_dim: Annotated[
        int | None,
        typer.Option(
            help="Layout outer: number of arm features.", show_default="5", rich_help_panel=WORLD
        ),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of the reward noise.",
            show_default="0.05",
            rich_help_panel=WORLD,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Number of seeds; each has its own world.",
            show_default="5",
            rich_help_panel=WORLD,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="The first seed.", show_default="0", rich_help_panel=WORLD),
    ] = None,
    participants: Annotated[
        int | None,
        typer.Option(
            help="Number of participants p1, p2, …; p1 is the active one.",
            show_default="5",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    widths: Annotated[
        str | None,
        typer.Option(
            help="Widths, such as 20,30,50, instead of --dim and --participants.",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    mask: Annotated[
        MaskName | None,
        typer.Option(help="Mask family.", show_default="blockwise", rich_help_panel=FEDERATION),
    ] = None,
    aggregation: Annotated[
        AggregationName | None,
        typer.Option(
            help="secure needs dense masks and 3 participants.",
            show_default="plain",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    protection: Annotated[
        ProtectionName | None,
        typer.Option(
            help="Level of protection. shares (experimental): the second participant is the "
            "helper.",
            show_default="what --aggregation says",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    accept_leak: AcceptLeak = None,
    policy: Annotated[
        list[PolicyName] | None,
        typer.Option(
            help="Policy. Can be repeated.",
            show_default="the paper's: linucb, and lints with a scale of 0.01",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    partial: Annotated[
        list[str] | None,
        typer.Option(
            help="Add a bandit with part of the features to each policy: a fraction, or "
            "participants such as p1,p2. Can be repeated.",
            show_default="0.2, 0.8",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    vector_noise: Annotated[
        str | None,
        typer.Option(
            help="Compare federations with noise on each vector of the passive participants, by ε "
            "per vector such as 1,3,10,30, with central and alone.",
            rich_help_panel=FEDERATION,
        ),
    ] = None,
    vector_delta: Annotated[
        float, typer.Option(help="δ per vector of that noise.", rich_help_panel=FEDERATION)
    ] = 1e-5,
    vector_clip: Annotated[
        float,
        typer.Option(
            help="Maximum norm of a vector before that noise; longer ones are scaled down.",
            rich_help_panel=FEDERATION,
        ),
    ] = 0.5,
    layout: Annotated[
        LayoutName | None,
        typer.Option(
            help="How contexts depend on the arm.", show_default="per_arm", rich_help_panel=LEARNING
        ),
    ] = None,
    ridge: Annotated[
        float | None,
        typer.Option(help="Ridge λ.", show_default="1", rich_help_panel=LEARNING),
    ] = None,
    discount: Annotated[
        float | None,
        typer.Option(
            help="Discount; 1 forgets nothing.",
            show_default="1",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(
            help="Fraction of uniform exploration.", show_default="0", rich_help_panel=LEARNING
        ),
    ] = None,
    beta: Beta = None,
    posterior_scale: PosteriorScale = None,
    epsilon: Epsilon = None,
    scale: Scale = None,
    exponent: Exponent = None,
    engine: EngineFlag = EngineName.local,
    processes: Processes = None,
    ray_address: RayAddress = None,
    out: Annotated[Path, typer.Option(help="Output folder.", rich_help_panel=OUTPUT)] = Path(
        "out/simulate"
    ),
    plot_format: PlotFlag = PlotFormat.png,
    as_json: AsJson = False,
) -> None:
    """Compare the regret of central, masked and partial bandits over several seeds.

    Writes a plot (confidence bands for five or more seeds, otherwise single runs), a table, all
    rows as CSV, and a study.toml that repeats the run.  The defaults are the paper's synthetic
    experiment.
    """
    from vfbandits.settings.decode import load_document
    from vfbandits.simulate.study_file import read_study

    flags: dict[str, object] = {
        "rounds": rounds,
        "arms": arms,
        "dim": dim,
        "participants": participants,
        "widths": None if widths is None else _whole_numbers(widths),
        "layout": None if layout is None else layout.value,
        "arm_dim": arm_dim,
        "noise": noise,
        "ridge": ridge,
        "discount": discount,
        "floor": floor,
        "seeds": seeds,
        "seed": seed,
    }
    contestants = _contestants(
        policy,
        partial,
        {"mask": mask, "aggregation": aggregation, "protection": protection},
        tuple(accept_leak or ()),
        {
            "beta": beta,
            "posterior_scale": posterior_scale,
            "epsilon": epsilon,
            "scale": scale,
            "exponent": exponent,
        },
        noises=_noises(vector_noise, delta=vector_delta, clip=vector_clip),
    )
    document = {} if file is None else load_document(file)
    _overrule(document, {key: value for key, value in flags.items() if value is not None})
    study = read_study(document, contestants=contestants)
    runner = engine_from(engine, processes, ray_address)
    run_and_write(
        study, out, engine=runner, plot_format=plot_format, output=Output(as_json=as_json)
    )


def run_and_write(
    study: "Study", out: Path, *, engine: "Engine", plot_format: PlotFormat, output: Output
) -> "StudyResult":
    """Run a study, print its table and write its files."""
    from vfbandits.simulate.output import prepare_folder, write_result
    from vfbandits.simulate.pool import run_study

    prepare_folder(out, plot_format=plot_format)
    total, done = len(study.contestants) * study.n_seeds, [0]
    try:
        with progress("rounds", total=total * study.horizon) as tell:
            result = run_study(
                study,
                engine=engine,
                on_run=lambda number, _: done.append(number),
                on_step=lambda rounds: tell(rounds, note=f"{done[-1]} of {total} runs"),
            )
    except KeyboardInterrupt:
        stop(
            f"stopped after {done[-1]} of {total} runs: nothing was written, and the next run "
            "starts from the beginning"
        )
    paths = write_result(result, out, plot_format=plot_format)
    output.show(as_object(result, paths), lambda: [as_table(result), *_price_tables(result)])
    for path in paths:
        output.say(f"wrote {path}")
    return result


def as_object(result: "StudyResult", paths: list[Path]) -> dict[str, object]:
    """Final regrets and the files, as ``--json`` prints them."""
    from vfbandits.simulate.price import prices

    study, found = result.study, prices(result)
    return {
        "rounds": study.horizon,
        "seeds": study.n_seeds,
        "contestants": result.table(),
        **({"noise": found} if found else {}),
        "written": paths,
    }


def as_table(result: "StudyResult") -> "Table":
    """Final regrets, for the terminal."""
    from rich.table import Table

    from vfbandits.simulate.output import cells

    study = result.study
    table = Table(
        title=f"Cumulative regret after {study.horizon} rounds, {study.n_seeds} seeds, 95 % "
        "intervals",
        title_justify="left",
    )
    (name, *figures), *rows = cells(result)
    table.add_column(name)
    for heading in figures:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _price_tables(result: "StudyResult") -> "list[Table]":
    """What noise on vectors costs, if there is any."""
    from rich.table import Table

    from vfbandits.simulate.price import prices, spell_benefit

    found = prices(result)
    if not found:
        return []
    table = Table(title="Noise on each vector", title_justify="left")
    for header in ("ε per vector", "policy", "deviation", "final regret", "benefit left"):
        table.add_column(header, justify="right")
    for one in found:
        row = (one.family, f"{one.sigma:.3f}", f"{one.mean:.1f}", spell_benefit(one))
        table.add_row(f"{one.epsilon:g}", *row)
    return [table]


def _noises(text: str | None, *, delta: float, clip: float) -> "list[VectorNoise]":
    from vfbandits.core.noise import VectorNoise

    if text is None:
        return []
    try:
        epsilons = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(
            f"--vector-noise must be numbers such as 1,3,10,30, got {text!r}"
        ) from error
    return [VectorNoise(epsilon, delta, clip) for epsilon in epsilons]


def _contestants(
    names: list[PolicyName] | None,
    partial: list[str] | None,
    masking: dict[str, MaskName | AggregationName | ProtectionName | None],
    accept_leak: tuple[str, ...],
    parameters: dict[str, float | None],
    *,
    noises: "Sequence[VectorNoise]",
) -> "tuple[Contestant, ...] | None":
    """Contestants that the flags describe; None if no flag describes any."""
    from vfbandits.simulate.contestant import PAPER_RATIOS, line_up, line_up_noise

    how = {key: choice.value for key, choice in masking.items() if choice is not None}
    said = [value for value in parameters.values() if value is not None]
    if not (names or partial or how or said or noises or accept_leak):
        return None
    policies = _policies(names, parameters)
    if noises:
        if partial:
            raise SettingError("--vector-noise has its own contestants, got --partial as well")
        line_ups = (
            line_up_noise(policy, noises, accept_leak=accept_leak, **how) for policy in policies
        )
        return tuple(contestant for one in line_ups for contestant in one)
    parts = PAPER_RATIOS if not partial else tuple(_features(text) for text in partial)
    line_ups = (
        line_up(policy, partial=parts, accept_leak=accept_leak, **how) for policy in policies
    )
    return tuple(contestant for one in line_ups for contestant in one)


def _policies(
    names: list[PolicyName] | None, parameters: "Mapping[str, object]"
) -> "Sequence[Policy]":
    """The policies that were named, or the paper's, with the parameters that were given."""
    from vfbandits.core.policy.registry import describe
    from vfbandits.simulate.study import PAPER_POLICIES

    if names:
        return policies_from([name.value for name in names], parameters)
    described = [describe(policy) for policy in PAPER_POLICIES]
    kinds = [str(one.pop("name")) for one in described]
    paper = {key: value for one in described for key, value in one.items()}
    given = {key: value for key, value in parameters.items() if value is not None}
    return policies_from(kinds, {**paper, **given})


def _overrule(document: dict[str, object], flags: dict[str, object]) -> None:
    """Flags win; widths replace dim and participants in the document, and the other way round."""
    if "widths" in flags and not flags.keys() & {"dim", "participants"}:
        document.pop("dim", None)
        document.pop("participants", None)
    elif flags.keys() & {"dim", "participants"} and "widths" not in flags:
        document.pop("widths", None)
    document.update(flags)


def _features(text: str) -> "Features":
    try:
        return float(text)
    except ValueError:
        return tuple(name.strip() for name in text.split(","))


def _whole_numbers(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"--widths must be integers such as 20,30,50, got {text!r}") from error
