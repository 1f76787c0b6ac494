"""``vfb demo``: a complete federation on this machine, as real processes, in a minute."""

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.choices import AggregationName, MaskName, ProtectionName
from vfbandits.cli.failure import terminated_as_interrupted
from vfbandits.cli.output import AsJson, Output
from vfbandits.cli.panels import OUTPUT
from vfbandits.errors import LinkError, SettingError
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.demo.local import LocalFederation
    from vfbandits.demo.rehearsal import Rehearsal, Tally, Town
    from vfbandits.protocol.roster import Terms
    from vfbandits.transport.rpc.application import ApplicationClient

WIDTHS = {"shop": 10, "bank": 10, "news": 10, "post": 10, "gym": 10}
N_USERS = 400
N_ARMS = 10
CONNECT_S = 30.0
HELPER = "bank"
POSTERIOR_SCALE = 0.1
SPARE_WINDOWS = 20
HTTP = """\
[http]
address = "127.0.0.1:{port}"
insecure = true

[campaigns.default]
reward_wait_s = 60.0
"""


def demo(  # noqa: PLR0913  (one argument for each flag)
    *,
    rounds: Annotated[int, typer.Option(help="Number of decisions.", min=1)] = 2_000,
    mask: Annotated[
        MaskName | None,
        typer.Option(help="Mask family.", show_default="dense, blockwise for shares"),
    ] = None,
    aggregation: Annotated[
        AggregationName | None,
        typer.Option(help="secure needs dense masks.", show_default="secure for dense masks"),
    ] = None,
    protection: Annotated[
        ProtectionName | None,
        typer.Option(
            help="shares (experimental): LinTS on secret shares, with bank as the helper.",
            show_default="what --aggregation says",
        ),
    ] = None,
    helper: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Protection shares: the second server. A name that no participant has starts a "
            "process without features.",
            show_default="bank",
        ),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the federation running until Ctrl-C.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Make 200 decisions only.")] = False,
    out: Annotated[Path, typer.Option(help="Output folder.", rich_help_panel=OUTPUT)] = Path(
        "out/demo"
    ),
    as_json: AsJson = False,
) -> None:
    """Start one active and four passive participants on this machine and make decisions.

    Their processes communicate over mutual TLS, each with its own certificate; for dense masks a
    mask generator deals the shares first.  Each decision is compared with that of a central bandit
    that sees all features.  The exit code is 1 if any decision differs.

    With protection shares the central bandit needs the noise that the two servers drew.  Its halves
    are in files on this machine, and are combined after the two servers have stopped.
    """
    import asyncio

    from vfbandits.demo.processes import free_ports
    from vfbandits.extras import require_extras

    if keep and as_json:
        raise SettingError("--json and --keep exclude each other, got both")
    output = Output(as_json=as_json)
    require_extras("rpc", "experiments", *(["http"] if keep else []), to="the demo")
    terms = _terms(mask, aggregation, protection, helper)
    n_rounds = 200 if quick else rounds
    with tempfile.TemporaryDirectory(prefix="vfb-demo-") as folder:
        started = time.monotonic()
        port, page = free_ports(2)
        federation, rehearsal = _build(
            Path(folder), terms, port, page if keep else None, n_rounds=n_rounds
        )
        with terminated_as_interrupted(), federation:
            _say(f"{len(federation.participants)} processes ready after {_since(started)}")
            tally = asyncio.run(_drive(federation, rehearsal, n_rounds))
            if terms.shares is not None:
                _compare_shares(federation, rehearsal, keep=keep)
            written = _write(tally, out)
            output.show(
                as_object(tally, terms, written),
                lambda: [as_table(tally, terms)],
            )
            output.say(f"wrote {written[0]} and {written[1]}")
            if keep:
                _keep(federation, rehearsal.town, f"http://127.0.0.1:{page}")
    raise typer.Exit(0 if tally.equal == tally.total else 1)


def _terms(
    mask: MaskName | None,
    aggregation: AggregationName | None,
    protection: ProtectionName | None,
    helper: str | None,
) -> "Terms":
    from vfbandits.protocol.roster import PSEUDONYMS, SharesRules, Terms

    if helper is not None and protection is not ProtectionName.shares:
        raise SettingError(f"--helper goes with --protection shares, got --helper {helper}")
    if protection is ProtectionName.shares:
        if mask is MaskName.dense or aggregation is AggregationName.secure:
            raise SettingError(
                "--protection shares has blockwise masks and plain aggregation, got "
                f"--mask {mask} --aggregation {aggregation}"
            )
        rules = SharesRules(
            helper=helper or HELPER, max_arms=N_ARMS, posterior_scale=POSTERIOR_SCALE
        )
        return Terms("blockwise", "plain", bound=1.0, users=PSEUDONYMS, shares=rules)
    mask = mask or MaskName.dense
    is_sum = protection is ProtectionName.sum
    if aggregation is None:
        is_secure = is_sum or (protection is None and mask is MaskName.dense)
        aggregation = AggregationName.secure if is_secure else AggregationName.plain
    terms = Terms(mask.value, aggregation.value, users=PSEUDONYMS)
    if protection is not None and terms.protection != protection.value:
        raise SettingError(
            f"--aggregation {aggregation.value} is protection {terms.protection!r}, got "
            f"--protection {protection.value}"
        )
    return terms


def _compare_shares(federation: "LocalFederation", rehearsal: "Rehearsal", *, keep: bool) -> None:
    """Combine the halves of the noise, for which both servers are stopped."""
    from vfbandits.demo.shared_noise import read_noises

    rules = federation.roster.terms.shares
    servers = (HELPER if rules is None else rules.helper, next(iter(WIDTHS)))
    for name in servers:
        federation.stop(name)
    rehearsal.compare(read_noises(federation))
    if keep:
        federation.start(*reversed(servers))


def _build(
    folder: Path, terms: "Terms", port: int, page: int | None, *, n_rounds: int
) -> "tuple[LocalFederation, Rehearsal]":
    from vfbandits.demo.local import LocalFederation, Plan
    from vfbandits.demo.rehearsal import Rehearsal, Town
    from vfbandits.settings.model import ModelSettings

    if terms.shares is not None:
        _warm_up()
    town = Town.invent(WIDTHS, n_users=N_USERS, n_arms=N_ARMS, seed=0)
    features = {name: town.write_features(name, folder / f"{name}.parquet") for name in WIDTHS}
    tables = "" if page is None else HTTP.format(port=page)
    plan = Plan(WIDTHS, terms, features, federation="demo", tables=tables)
    model = ModelSettings(beta=0.5, seed=0)
    if terms.shares is not None:
        model = ModelSettings(policy_name="lints", posterior_scale=POSTERIOR_SCALE, seed=0)
        text = f'policy = "lints"\nposterior_scale = {POSTERIOR_SCALE}\nseed = 0\n'
        windows = n_rounds // terms.shares.decisions + SPARE_WINDOWS
        plan = replace(plan, model=text, windows=windows)
    if terms.shares is None:
        federation = LocalFederation(folder, plan, port=port)
    else:
        _say(f"dealing words for {plan.windows * terms.shares.decisions:,} decisions")
        with progress("windows", total=plan.windows) as tell:
            federation = LocalFederation(folder, plan, port=port, on_window=tell)
    _say(f"starting {len(federation.participants)} processes")
    return federation, Rehearsal(town, model, seed=1, is_shared=terms.shares is not None)


def _warm_up() -> None:
    """Compile the loops of secret shares once; otherwise every process would, at the same time."""
    from vfbandits.core.shares.terms import ShareTerms
    from vfbandits.core.shares.warm_up import warm_up_shares

    _say("compiling the loops of secret shares, or loading them; the first time takes longer")
    warm_up_shares(ShareTerms((1, 1), max_arms=2, ridge=1.0, posterior_scale=POSTERIOR_SCALE))


def _say(text: str) -> None:
    """Print on stderr, apart from the output of ``--json``."""
    typer.echo(text, err=True)


def _since(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"


async def _drive(federation: "LocalFederation", rehearsal: "Rehearsal", rounds: int) -> "Tally":

    from vfbandits.pki.member import server_name, tls_files
    from vfbandits.transport.rpc.application import ApplicationClient

    client = ApplicationClient(
        federation.address,
        tls=tls_files(federation.identity("app")),
        name="app",
        role="application",
        server_name=server_name(federation.roster),
    )
    try:
        await _wait_for_all(client)
        is_compared = federation.roster.terms.shares is None  # shares: after the end
        with progress("decisions", total=rounds) as tell:
            await rehearsal.play(
                client,
                rounds,
                on_round=lambda tally: tell(
                    tally.total, note=progress_note(tally, is_compared=is_compared)
                ),
            )
    finally:
        await client.close()
    return rehearsal.tally


def progress_note(tally: "Tally", *, is_compared: bool) -> str:
    """Agreement and latency so far."""
    last = sorted(tally.seconds[-100:])
    equal = f"{tally.equal} equal to central, " if is_compared else ""
    return f"{equal}p50 {1e3 * last[len(last) // 2]:.1f} ms"


async def _wait_for_all(client: "ApplicationClient") -> None:
    import asyncio

    from vfbandits.protocol.application import StatusRequest

    limit = time.monotonic() + CONNECT_S
    while time.monotonic() < limit:
        reply = await client.status(StatusRequest(), timeout_s=5.0)
        facts = json.loads(reply.document)["participants"].values()
        if all(participant["connected"] for participant in facts):
            return
        await asyncio.sleep(0.05)
    raise LinkError(f"not all participants connected within {CONNECT_S:g} s")


def as_object(tally: "Tally", terms: "Terms", written: list[Path]) -> dict[str, object]:
    """The result, as ``--json`` prints it."""
    return {
        "mask": terms.mask,
        "aggregation": terms.aggregation,
        "protection": terms.protection,
        "dim": sum(WIDTHS.values()),
        "participants": len(WIDTHS),
        "arms": N_ARMS,
        "decisions_equal": tally.equal,
        "decisions_total": tally.total,
        "largest_score_difference": tally.largest_difference,
        "incomplete_rounds": tally.incomplete,
        "regret": tally.regret["federation"][-1],
        "regret_alone": tally.regret["alone"][-1],
        "latency_p50_ms": 1e3 * tally.latency_s(0.5),
        "latency_p99_ms": 1e3 * tally.latency_s(0.99),
        "bytes_per_decision": tally.bytes_received // tally.total,
        "written": written,
    }


def as_table(tally: "Tally", terms: "Terms") -> "Table":
    """The result, for the terminal."""
    from rich.table import Table

    federation, alone = tally.regret["federation"][-1], tally.regret["alone"][-1]
    table = Table(
        "",
        f"federation of {_n_processes(terms)} processes",
        title=f"{_level(terms)}, mutual TLS on loopback, "
        f"{sum(WIDTHS.values())} features of {len(WIDTHS)} participants, {N_ARMS} arms",
        title_justify="left",
    )
    colour = "green" if tally.equal == tally.total else "red"
    table.add_row(
        "decisions equal to the central bandit", f"[{colour}]{tally.equal} of {tally.total}[/]"
    )
    if terms.shares is None:
        table.add_row("largest score difference", f"{tally.largest_difference:.1e}")
    table.add_row("decisions without some participant", str(tally.incomplete))
    table.add_row("cumulative regret", f"{federation:.1f}")
    table.add_row("… of the active participant alone", f"{alone:.1f}")
    table.add_row(
        "latency of a decision, p50 / p99",
        f"{1e3 * tally.latency_s(0.5):.2f} ms / {1e3 * tally.latency_s(0.99):.2f} ms",
    )
    table.add_row("bytes of masked rows per decision", f"{tally.bytes_received // tally.total}")
    return table


def _n_processes(terms: "Terms") -> int:
    """One for each participant, and one for a helper that is no participant."""
    rules = terms.shares
    return len(WIDTHS) + (rules is not None and rules.helper not in WIDTHS)


def _level(terms: "Terms") -> str:
    if terms.shares is None:
        return f"{terms.mask} masks, {terms.aggregation} aggregation"
    return f"secret shares with {terms.shares.helper}; shop learns {terms.learns}"


def _write(tally: "Tally", out: Path) -> list[Path]:
    """Regret of the federation beside that of the active participant alone: CSV and a picture."""
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    lines = ["round,federation,alone"]
    curves = zip(tally.regret["federation"], tally.regret["alone"], strict=True)
    lines += [f"{number},{a:.6f},{b:.6f}" for number, (a, b) in enumerate(curves, start=1)]
    (out / "federation.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    panel = figure.subplots()
    panel.plot(tally.regret["alone"], color="#D55E00", label="active participant alone")
    panel.plot(
        tally.regret["federation"],
        color="#0072B2",
        label=f"federation = central bandit ({tally.equal} of {tally.total} decisions)",
    )
    panel.set_xlabel("round")
    panel.set_ylabel("cumulative regret")
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    figure.savefig(out / "federation.png", dpi=160)
    return [out / "federation.png", out / "federation.csv"]


def _keep(federation: "LocalFederation", town: "Town", url: str) -> None:
    """Leave the processes running, with simulated visitors, until Ctrl-C."""
    from vfbandits.cli.visitors import visit

    typer.echo(f"\nrunning: active participant at {federation.address}; folder {federation.folder}")
    typer.echo(f"dashboard: {url}  (simulated visitors; a fifth of them get the baseline)")
    for line in commands_to_type(federation):
        typer.echo(f"  {line}")
    arms = ", ".join(f'"{arm}"' for arm in town.arms[:3])
    typer.echo(
        f"  curl {url}/v1/rank -H 'content-type: application/json' "
        f'-d \'{{"user": "{town.users[0]}", "arms": [{arms}]}}\''
    )
    typer.echo("Ctrl-C stops the federation.")
    processes = federation.processes.values()

    def goes_on() -> bool:
        if federation.plan.terms.shares is not None:
            _refill(federation)
        return all(process.poll() is None for process in processes)

    try:
        visit(town, url, while_true=goes_on)
        federation.refuse_ended()
    except KeyboardInterrupt:
        typer.echo("stopping")


def _refill(federation: "LocalFederation") -> None:
    """Deal more windows before they run out, as an operator's scheduled job would."""
    dealt = federation.folder / federation.roster.active.name / "dealt"
    if len([*dealt.glob("*.deal")]) < SPARE_WINDOWS:
        federation.deal_shares(SPARE_WINDOWS)


def commands_to_type(federation: "LocalFederation") -> list[str]:
    """Commands for another terminal, to look at a federation and to change it."""
    operator, folder = federation.config("operator"), federation.folder
    lines = [f"vfb federation status --config {operator}"]
    if federation.plan.terms.shares is not None:
        return [
            *lines,
            f"vfb masks deal --roster {operator.parent / 'roster.signed'} --authority "
            f"{federation.authority.certificate_path} --key-dir {folder / 'generator/identity'} "
            f"--epoch 1 --windows 64 --out {folder / federation.roster.active.name / 'dealt'}",
        ]
    lines.append(f"vfb parity --config {federation.config('app')}")
    rotate = f"vfb masks rotate --config {operator}"
    if federation.plan.terms.mask == "dense":
        lines.append(
            f"vfb masks deal --roster {operator.parent / 'roster.signed'} --authority "
            f"{federation.authority.certificate_path} --key-dir {folder / 'generator/identity'} "
            f"--epoch 2 --out {folder / 'envelopes'}"
        )
        rotate += f" --envelopes {folder / 'envelopes'}"
    return [*lines, rotate]
