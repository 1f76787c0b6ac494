"""``vfb serve``: one role of a federation as a process, until a signal ends it."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from vfbandits.cli.failure import in_one_line
from vfbandits.cli.who import who
from vfbandits.settings.role import Role

serve_app = typer.Typer(no_args_is_help=True, help="Run one role of a federation as a process.")

Config = Annotated[Path, typer.Option(help="The participant's TOML file.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Without TLS; on loopback only, for trying things out.")
]
ProcessRole = Annotated[Role, typer.Option(help="What this process does: rank, learn, or both.")]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Open a journal that has lost acknowledged records all the same, and record that.",
    ),
]
LeaderAddress = Annotated[
    str,
    typer.Option(help="Where a ranker finds the trainer, if not at the address in the file."),
]


@serve_app.command()
@in_one_line
def active(
    *,
    config: Config,
    insecure: Insecure = False,
    role: ProcessRole = Role.BOTH,
    leader: LeaderAddress = "",
    accept_loss: AcceptLoss = False,
) -> None:
    """Decide and learn: listen for passive participants and applications on one port.

    With --role the work is shared: any number of rankers decide, one trainer learns, and others
    stand by to take over; that needs a journal_target in PostgreSQL, and HTTP.

    Logs go to the standard error, one JSON object a line.  SIGTERM finishes the rounds in flight.
    """
    from vfbandits.extras import require

    require("grpc", extra="rpc", to="serving")
    from vfbandits.settings.services import load_active
    from vfbandits.telemetry.log import log_refused_peers, start_logging
    from vfbandits.transport.event_loop import run

    settings = load_active(config)
    if insecure:
        http = None if settings.http is None else replace(settings.http, insecure=True)
        place = replace(settings.place, insecure=True)
        settings = replace(settings, place=place, http=http)
    if accept_loss:
        settings = replace(settings, accept_loss=who())
    with (
        start_logging(),
        # A ranker takes no calls: what it would log are the leader's refusals.
        nullcontext() if role is Role.RANKER else log_refused_peers(settings.place.name),
    ):
        if role is not Role.BOTH:
            require("uvicorn", extra="http", to="serving over HTTP")
            from vfbandits.http.roles import run_role

            run(run_role(settings, role, leader=leader, on_ready=partial(_say_role, role)))
        elif settings.http is None:
            from vfbandits.serving.build import run_active  # not before the log

            run(run_active(settings, on_ready=_say_ready))
        else:
            require("uvicorn", extra="http", to="serving over HTTP")
            from vfbandits.http.serve import run_served

            run(run_served(settings, on_ready=_say_ready))


def _say_role(role: Role, http_port: int) -> None:
    typer.echo(f"ready: {role.value}, HTTP on port {http_port}")


def _say_ready(port: int, http_port: int | None = None) -> None:
    also = "" if http_port is None else f", HTTP on port {http_port}"
    typer.echo(f"ready: listening on port {port}{also}")


@serve_app.command()
@in_one_line
def passive(*, config: Config, insecure: Insecure = False) -> None:
    """Add features behind a mask: dial the active participant and answer it.

    Needs no port.  Whatever breaks the connection, it dials again by itself.
    """
    from vfbandits.extras import require

    require("grpc", extra="rpc", to="serving")
    from vfbandits.participant.run import run_passive
    from vfbandits.settings.services import load_passive
    from vfbandits.telemetry.log import start_logging
    from vfbandits.transport.event_loop import run

    settings = load_passive(config)
    if insecure:
        settings = replace(settings, place=replace(settings.place, insecure=True))
    with start_logging():
        run(run_passive(settings, on_ready=lambda: typer.echo("ready: dialling")))


if __name__ == "__main__":
    serve_app()
