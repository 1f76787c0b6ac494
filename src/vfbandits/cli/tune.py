"""``vfb tune``: choose a policy and its parameters on a log."""

import json
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import PlotFormat, PolicyName
from vfbandits.cli.engine_flags import (
    EngineFlag,
    EngineName,
    Processes,
    RayAddress,
    engine_from,
)
from vfbandits.cli.failure import stop
from vfbandits.cli.journal_flags import DEFAULT_NAME
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
from vfbandits.cli.panels import ESTIMATION, LEARNING, OUTPUT, POLICY
from vfbandits.errors import SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from vfbandits.evaluate.tune import Candidate, Rated, Tuning

# Parameters to try by default.
GRID: Mapping[str, Mapping[str, Sequence[float]]] = {
    "linucb": {"beta": (0.1, 0.3, 1.0, 3.0)},
    "lints": {"posterior_scale": (0.01, 0.1, 0.3, 1.0)},
    "lingreedy": {"epsilon": (0.0, 0.02, 0.05, 0.1)},
    "inverse_gap": {"scale": (10.0, 100.0, 1000.0)},
}
OWNERS = {
    "beta": "linucb",
    "posterior_scale": "lints",
    "epsilon": "lingreedy",
    "scale": "inverse_gap",
    "exponent": "inverse_gap",
}


def tune(  # noqa: PLR0913  (one argument for each flag)
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
        list[PolicyName] | None,
        typer.Option(
            help="Policy to try. Can be repeated.", show_default="all", rich_help_panel=LEARNING
        ),
    ] = None,
    layout: LogLayout = None,
    ridge: Annotated[
        str, typer.Option(help="Ridges λ to try, such as 0.1,1,10.", rich_help_panel=LEARNING)
    ] = "1",
    discount: Annotated[
        str, typer.Option(help="Discounts to try; 1 forgets nothing.", rich_help_panel=LEARNING)
    ] = "1",
    floor: Annotated[
        str | None,
        typer.Option(
            help="Fractions of uniform exploration to try, such as 0,0.05.",
            show_default="0, and the request leaves the campaign's floor as it is",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    intercept: Intercept = True,
    beta: Annotated[
        str | None,
        typer.Option(
            help="linucb: width multipliers.",
            show_default="0.1,0.3,1,3",
            rich_help_panel=POLICY,
        ),
    ] = None,
    posterior_scale: Annotated[
        str | None,
        typer.Option(
            help="lints: scales of the posterior.",
            show_default="0.01,0.1,0.3,1",
            rich_help_panel=POLICY,
        ),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option(
            help="lingreedy: fractions of random rounds.",
            show_default="0,0.02,0.05,0.1",
            rich_help_panel=POLICY,
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(
            help="inverse_gap: gamma = scale·n^exponent.",
            show_default="10,100,1000",
            rich_help_panel=POLICY,
        ),
    ] = None,
    exponent: Annotated[
        str | None,
        typer.Option(help="inverse_gap: see --scale.", show_default="0.5", rich_help_panel=POLICY),
    ] = None,
    estimator: Annotated[
        str, typer.Option(help="dr, sndr or snips.", rich_help_panel=ESTIMATION)
    ] = "dr",
    train: TrainFraction = 0.5,
    clip: ClipWeights = None,
    confidence: Annotated[
        float,
        typer.Option(
            help="Confidence that the true best is in the set.", rich_help_panel=ESTIMATION
        ),
    ] = 0.95,
    resamples: Annotated[
        int, typer.Option(help="Number of bootstrap resamples.", rich_help_panel=ESTIMATION)
    ] = 2_000,
    seed: Annotated[
        int,
        typer.Option(
            help="Random seed of policies, folds and bootstrap.", rich_help_panel=ESTIMATION
        ),
    ] = 0,
    engine: EngineFlag = EngineName.local,
    processes: Processes = None,
    ray_address: RayAddress = None,
    url: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Server in the request that is printed; nothing is sent to it.",
            rich_help_panel=OUTPUT,
        ),
    ] = "https://HOST:8443",
    campaign: Annotated[
        str, typer.Option(help="Campaign in the request.", rich_help_panel=OUTPUT)
    ] = DEFAULT_NAME,
    out: Annotated[Path, typer.Option(help="Output folder.", rich_help_panel=OUTPUT)] = Path(
        "out/tune"
    ),
    plot_format: PlotFlag = PlotFormat.png,
    as_json: AsJson = False,
) -> None:
    """Find the policy and the parameters that earn most, from a log with probabilities.

    Every candidate learns from the first part of the log and is judged, frozen, on the rest.  The
    result is a set that holds the best of them with the given confidence, however many were tried,
    and the request to PATCH /v1/config that applies the best estimate.  An interrupted run resumes.
    """
    from importlib.metadata import version

    import numpy as np

    from vfbandits.evaluate.bootstrap import Bootstrap
    from vfbandits.evaluate.evaluation import EvaluationSettings
    from vfbandits.evaluate.kept import KeptJudgements
    from vfbandits.evaluate.tune import TuneSettings, make_grid
    from vfbandits.evaluate.tune import tune as run
    from vfbandits.simulate.output import prepare_folder

    bootstrap = Bootstrap("percentile", confidence, resamples)
    evaluation = EvaluationSettings(train, clip, bootstrap=bootstrap)
    settings = TuneSettings(estimator, intercept=intercept, seed=seed, evaluation=evaluation)
    flags = {
        "beta": beta,
        "posterior_scale": posterior_scale,
        "epsilon": epsilon,
        "scale": scale,
        "exponent": exponent,
    }
    grid = make_grid(
        policies_from_lists([one.value for one in policy or PolicyName], flags),
        floors=_numbers(floor or "0", "floor"),
        ridges=_numbers(ridge, "ridge"),
        discounts=_numbers(discount, "discount"),
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
    prepare_folder(out, plot_format=plot_format.value)
    logged = load_log(log, columns, layout)
    keeps = KeptJudgements(
        out / "candidates", logged, settings, seed=seed, version=version("vfbandits")
    )
    done = [0]
    try:
        with progress("candidates", total=len(grid)) as tell:

            def on_candidate(number: int, total: int) -> None:
                done.append(number)
                tell(number, total=total)

            tuning = run(
                logged,
                grid,
                rng=np.random.default_rng(seed),
                settings=settings,
                engine=runner,
                keeps=keeps,
                on_candidate=on_candidate,
            )
    except KeyboardInterrupt:
        stop(
            f"stopped: {done[-1]} of {len(grid)} candidates are kept in {out}, the same command "
            "resumes from there"
        )
    request = Request(tuning.best.candidate, url=url, campaign=campaign, floor=floor is not None)
    written = _write(tuning, request, out, plot_format, title=f"{log}: {_summary(tuning)}")
    output = Output(as_json=as_json)
    output.show(
        as_object(tuning, request, written),
        lambda: [as_table(tuning), *_remarks(tuning)],
    )
    output.say(f"apply {tuning.best.candidate.label}:")
    output.say(request.curl)
    for path in written:
        output.say(f"wrote {path}")


class Request:
    """The PATCH request that applies a candidate to a campaign."""

    def __init__(self, candidate: "Candidate", *, url: str, campaign: str, floor: bool) -> None:
        from urllib.parse import quote

        from vfbandits.evaluate.tune import as_patch

        of_campaign = f"/campaigns/{quote(campaign, safe='')}"
        middle = "" if campaign == DEFAULT_NAME else of_campaign
        self.path = f"/v1{middle}/config"
        self.body = as_patch(candidate, with_floor=floor)
        self._url = url.rstrip("/") + self.path

    @property
    def curl(self) -> str:
        """As a command, with an API key of scope admin in the environment variable ADMIN."""
        return (
            f'curl -X PATCH {shlex.quote(self._url)} -H "authorization: Bearer $ADMIN" '
            f"-H 'content-type: application/json' -d {shlex.quote(json.dumps(self.body))}"
        )


def policies_from_lists(
    names: Sequence[str], flags: Mapping[str, str | None]
) -> dict[str, dict[str, Sequence[object]]]:
    """Parameters to try for each policy; a flag that no chosen policy takes is an error.

    >>> policies_from_lists(["linucb"], {"beta": "0.5, 2"})
    {'linucb': {'beta': [0.5, 2.0]}}
    """
    grid: dict[str, dict[str, Sequence[object]]] = {name: {**GRID[name]} for name in names}
    for key, text in flags.items():
        if text is None:
            continue
        flag = key.replace("_", "-")
        if OWNERS[key] not in grid:
            raise SettingError(f"--{flag} needs policy {OWNERS[key]}, got {', '.join(names)}")
        grid[OWNERS[key]][key] = _numbers(text, flag)
    return grid


def as_object(tuning: "Tuning", request: Request, written: list[Path]) -> dict[str, object]:
    """The result, as ``--json`` prints it."""
    from vfbandits.evaluate.tune_output import as_record

    return {
        "estimator": tuning.settings.estimator,
        "confidence": tuning.settings.evaluation.bootstrap.confidence,
        "learnt_rounds": tuning.n_learnt,
        "judged_rounds": tuning.n_judged,
        "logging_value": tuning.logging_value,
        "candidates": [as_record(one) for one in tuning.rated],
        "set": [one.candidate.label for one in tuning.in_set],
        "best": tuning.best.candidate.label,
        "request": {"method": "PATCH", "path": request.path, "body": request.body},
        "written": written,
    }


def as_table(tuning: "Tuning") -> "Table":
    """All candidates, for the terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from vfbandits.evaluate.output import spell

    table = Table(
        title=_summary(tuning),
        title_justify="left",
        caption=(
            f"learnt from the first {tuning.n_learnt} rounds, judged by "
            f"{tuning.settings.estimator} on the other {tuning.n_judged}, on which the log earned "
            f"{spell(tuning.logging_value)}. ✓: may be the best. p: p-value of being the best. "
            "behind: the highest estimate; intervals hold for all simultaneously, – where too few "
            "rounds differ. explores: decisions that are not greedy."
        ),
        caption_justify="left",
        box=SIMPLE_HEAD,
    )
    table.add_column("")
    table.add_column("candidate")
    for name in ("value", "behind", "p", "explores"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in tuning.rated:
        table.add_row(
            "✓" if one.in_set else "",
            one.candidate.label,
            spell(one.value),
            _spell_behind(one),
            f"{one.p_value:.3f}",
            f"{100 * one.explores:.1f} %",
            style=None if one.in_set else "dim",
        )
    return table


def _spell_behind(one: "Rated") -> str:
    """The difference to the highest estimate, with as many digits as its margin has."""
    from vfbandits.evaluate.output import spell

    if one.behind_high is None:
        return f"{one.behind:.2g} ± –"
    margin = one.behind_high - one.behind
    if margin == 0.0:
        return spell(one.behind)
    digits = max(0, 1 - math.floor(math.log10(margin)))
    return f"{one.behind:.{digits}f} ± {margin:.{digits}f}"


def _summary(tuning: "Tuning") -> str:
    confidence = tuning.settings.evaluation.bootstrap.confidence
    return (
        f"{len(tuning.in_set)} of {len(tuning.rated)} candidates may be the best, "
        f"with {100 * confidence:g} % confidence"
    )


def _remarks(tuning: "Tuning") -> "list[RenderableType]":
    """Warnings to read before the request is sent."""
    from rich.text import Text

    from vfbandits.evaluate.diagnosis import merge_doubts

    best = tuning.best
    lines = []
    if best.gain_low <= 0.0:
        lines.append(
            "no candidate earns clearly more than the log did, which gives no reason to change the "
            "policy"
        )
    if best.candidate.is_certain:
        lines.append(
            f"{best.candidate.label} plays one arm with probability 1: unless the campaign has a "
            "floor, its own log cannot be used for tuning"
        )
    if (best.candidate.ridge, best.candidate.discount) != (1.0, 1.0):
        lines.append(
            "ridge and discount belong to the model, and the request does not change them: set "
            "them under [model], for a new journal"
        )
    n_in_set = len(tuning.in_set)
    for doubt, count in merge_doubts(
        doubt for one in tuning.in_set for doubt in one.doubts
    ).items():
        lines.append(f"{count} of {n_in_set} in the set: {doubt}")
    return [Text(f"warning, {line}", style="yellow") for line in lines]


def _write(
    tuning: "Tuning", request: Request, out: Path, plot_format: PlotFormat, *, title: str
) -> list[Path]:
    from vfbandits.evaluate.tune_output import save_plot, write_csv

    paths = [out / "candidates.csv", out / "request.json"]
    write_csv(tuning, paths[0])
    paths[1].write_text(json.dumps(request.body, indent=1) + "\n", encoding="utf-8")
    if plot_format is not PlotFormat.none:
        paths.append(out / f"tune.{plot_format.value}")
        save_plot(tuning, paths[2], title=title)
    return paths


def _numbers(text: str, flag: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SettingError(f"--{flag} must be numbers such as 0.1,1,10, got {text!r}") from error
