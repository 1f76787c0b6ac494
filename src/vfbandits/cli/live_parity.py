"""``vfb parity --config``: a running federation against a central bandit."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from vfbandits.cli.output import Output
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.admin.parity import LiveReport


def compare_live(
    config: Path, *, rounds: int, trial: int | None, arms: int | None, as_json: bool
) -> int:
    """Run a trial and print its report; returns the exit code, 1 if a decision differs."""
    import asyncio

    with progress("rounds", total=rounds) as tell:
        report = asyncio.run(_run(config, rounds, trial, arms, lambda place: tell(place + 1)))
    Output(as_json=as_json).show(as_object(report), lambda: [as_table(report)])
    return 0 if report.lossless else 1


async def _run(
    config: Path, rounds: int, trial: int | None, arms: int | None, tell: Callable[[int], None]
) -> "LiveReport":
    from vfbandits.extras import require

    require("grpc", extra="rpc", to="connecting to a federation")
    from vfbandits.admin.parity import live_parity
    from vfbandits.admin.session import connect
    from vfbandits.protocol.roster import ACTIVE, APPLICATION

    async with connect(config, roles=(APPLICATION, ACTIVE)) as session:
        return await live_parity(session, rounds=rounds, trial=trial, n_arms=arms, on_round=tell)


def as_object(report: "LiveReport") -> dict[str, object]:
    """Settings and report, flat, as ``--json`` prints them."""
    from vfbandits.core.policy.registry import describe

    served, terms = report.served, report.terms
    return {
        "policy": describe(served.policy),
        "layout": terms.layout,
        "mask": terms.mask,
        "aggregation": terms.aggregation,
        "dim": served.split.dim,
        "arms": report.n_arms,
        "rounds": report.total,
        "participants": len(served.split.names),
        "arm_dim": terms.arm_dim or None,
        "ridge": served.ridge,
        "discount": served.discount,
        "floor": served.floor,
        "trial": report.trial,
        "epoch": report.epoch,
        "lossless": report.lossless,
        "decisions_equal": report.equal,
        "decisions_total": report.total,
        "first_difference": report.first_difference,
        "largest_score_difference": report.largest_score_difference,
        "incomplete_rounds": report.incomplete,
        "latency_p50_ms": report.latency_ms(50),
        "latency_p99_ms": report.latency_ms(99),
        "bytes_per_decision": report.bytes_per_decision,
    }


def as_table(report: "LiveReport") -> "Table":
    """The report, for the terminal."""
    from rich.table import Table

    served, terms, first = report.served, report.terms, report.first_difference
    table = Table(
        "",
        "federation against central",
        title=f"{served.policy!r}\n{terms.layout}, {terms.mask} mask, {terms.aggregation} "
        f"aggregation, {served.split.dim} features, {report.n_arms} arms, "
        f"{len(served.split.names)} participants\ntrial {report.trial}, mask epoch {report.epoch}",
        title_justify="left",
        caption="Test features and masks are public, drawn from the trial's number; all else is as "
        "in production. The federation's own model did not change.",
        caption_justify="left",
    )
    verdict = "green" if report.lossless else "red"
    table.add_row("decisions equal", f"[{verdict}]{report.equal} of {report.total}[/]")
    table.add_row("first difference", "none" if first is None else f"round {first}, counted from 0")
    table.add_row("largest relative score difference", f"{report.largest_score_difference:.1e}")
    table.add_row("rounds with a missing participant", str(report.incomplete))
    table.add_row("latency p50", f"{report.latency_ms(50):.2f} ms")
    table.add_row("latency p99", f"{report.latency_ms(99):.2f} ms")
    table.add_row("bytes per decision, from passive ones", f"{report.bytes_per_decision:,.0f}")
    return table
