"""``vfb align``: find the users that participants have in common, before they serve."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vfbandits.cli.output import AsJson, Output
from vfbandits.progress import progress

if TYPE_CHECKING:
    from rich.table import Table

    from vfbandits.admin.align.run import Place
    from vfbandits.admin.align.sessions import Alignment

WAIT_S = 3600.0


def align(
    *,
    config: Annotated[Path, typer.Option(metavar="FILE", help="TOML file of a participant.")],
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Output folder of the lists of common users.")
    ],
    users: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A text file with a user in each line.",
            show_default="the users of [features]",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for the others.")
    ] = WAIT_S,
    as_json: AsJson = False,
) -> None:
    """Find the users that the active participant has in common with each passive one.

    Every participant runs this, the active one where it will serve. Each pair learns its common
    users and how many users the other has, by private set intersection; other users stay hidden.
    """
    from vfbandits.extras import require_extras

    require_extras("rpc", "align", to="aligning users")
    from vfbandits.admin.align.run import Place, write_results

    place = Place.load(config, users=users)
    output = Output(as_json=as_json)
    left_out = f"{place.users.repeated} repeated, {place.users.empty} empty"
    output.say(f"{len(place.users)} users of {place.config.name} ({left_out} left out)")
    run = _active if place.is_active else _passive
    results = run(place, wait, output)
    paths = write_results(out, results)
    output.show(_document(place, results, paths), lambda: [_table(results)])
    for path in paths:
        output.say(f"wrote {path}")


def _active(place: "Place", wait_s: float, output: Output) -> "list[Alignment]":
    import asyncio

    from vfbandits.admin.align.run import align_as_active

    done: dict[str, tuple[int, int]] = {}
    with progress("elements") as tell:

        def on_step(peer: str, count: int, total: int) -> None:
            done[peer] = (count, total)
            counts, totals = zip(*done.values(), strict=True)
            tell(sum(counts), total=sum(totals), note=f"with {', '.join(done)}")

        def on_ready(port: int) -> None:
            names = ", ".join(member.name for member in place.roster.passive)
            output.say(f"ready: waiting for {names} on port {port}")

        working = align_as_active(place, wait_s=wait_s, on_ready=on_ready, on_step=on_step)
        return asyncio.run(working)


def _passive(place: "Place", wait_s: float, output: Output) -> "list[Alignment]":
    import asyncio

    from vfbandits.admin.align.run import align_as_passive

    reasons: set[str] = set()

    def on_wait(reason: str) -> None:
        if reason not in reasons:
            reasons.add(reason)
            output.say(f"waiting: {reason}")

    with progress("elements") as tell:
        working = align_as_passive(
            place,
            wait_s=wait_s,
            on_step=lambda done, total: tell(done, total=total),
            on_wait=on_wait,
        )
        return [asyncio.run(working)]


def _document(
    place: "Place", results: "Sequence[Alignment]", paths: Sequence[Path]
) -> dict[str, object]:
    return {
        "participant": place.config.name,
        "users": len(place.users),
        "repeated": place.users.repeated,
        "empty": place.users.empty,
        "with": {
            result.peer: {
                "users": result.n_theirs,
                "common": len(result.common),
                "digest": result.digest,
            }
            for result in results
        },
        "files": paths,
    }


def _table(results: "Sequence[Alignment]") -> "Table":
    from rich.table import Table

    table = Table("with", "its users", "common", "only here", "digest")
    for one in results:
        common = len(one.common)
        counts = [f"{count:,}" for count in (one.n_theirs, common, one.n_own - common)]
        table.add_row(one.peer, *counts, one.digest[:16])
    return table
