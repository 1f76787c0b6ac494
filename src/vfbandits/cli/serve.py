"""``vfb serve``: one role of a federation as a process, until a signal ends it."""

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
    bool, typer.Option("--insecure", help="Disable TLS; on loopback only, for tests.")
]
ProcessRole = Annotated[Role, typer.Option(help="What this process does: rank, learn, or both.")]
AcceptLoss = Annotated[
    bool,
    typer.Option(
        "--accept-loss",
        help="Open a journal even if acknowledged records are lost, and record the loss in it.",
    ),
]
LeaderAddress = Annotated[
    str,
    typer.Option(
        help="Address of the trainer, for a ranker; the default is the address in the file."
    ),
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

    With --role several processes share the work: any number of rankers decide, one trainer learns,
    and further trainers stand by to take over.  This needs a journal in PostgreSQL and HTTP.

    Logs go to standard error, one JSON object per line.  On SIGTERM the process finishes the
    rounds in flight and exits.
    """
    from msgspec.structs import replace

    from vfbandits.extras import require

    require("grpc", extra="rpc", to="serving")
    from vfbandits.serving.build import MakeFront, run_process
    from vfbandits.settings.services import load_active
    from vfbandits.telemetry.log import start_logging
    from vfbandits.transport.event_loop import run

    settings = replace(load_active(config), started_by=who())
    if insecure:
        http = settings.http and replace(settings.http, insecure=True)
        settings = replace(settings, insecure=True, http=http)
    if accept_loss:
        settings = replace(settings, accept_loss=who())
    make_front: MakeFront | None = None
    if settings.http is not None:
        require("httptools", extra="http", to="serving over HTTP")
        from vfbandits.http.serve import HttpFront as make_front  # noqa: N813  (it is called)
    with start_logging():
        run(
            run_process(
                settings,
                role=role,
                leader=leader,
                make_front=make_front,
                on_ready=partial(_say_ready, role),
            )
        )


def _say_ready(role: Role, port: int | None, http_port: int | None) -> None:
    what = role.value if port is None else f"listening on port {port}"
    also = "" if http_port is None else f", HTTP on port {http_port}"
    typer.echo(f"ready: {what}{also}")


@serve_app.command()
@in_one_line
def passive(*, config: Config, insecure: Insecure = False) -> None:
    """Contribute masked features: dial the active participant and answer its requests.

    Needs no open port; with the table [status] it opens one for probes and Prometheus.  Reconnects
    automatically after any connection loss.
    """
    from msgspec.structs import replace

    from vfbandits.extras import require

    require("grpc", extra="rpc", to="serving")
    from vfbandits.errors import ConfigError
    from vfbandits.participant.passive import PassiveService
    from vfbandits.participant.run import MakeFront, run_passive
    from vfbandits.settings.services import load_passive
    from vfbandits.telemetry.log import start_logging
    from vfbandits.transport.event_loop import run

    settings = load_passive(config)
    if insecure:
        settings = replace(settings, insecure=True)
    make_front: MakeFront[PassiveService] | None = None
    if settings.status is not None:
        for package in ("httptools", "starlette", "prometheus_client"):
            require(package, extra="http", to="[status]", error=ConfigError)
        from vfbandits.http.passive import passive_front as make_front
    with start_logging():
        run(run_passive(settings, make_front=make_front, on_ready=_say_dialling))


@serve_app.command()
@in_one_line
def helper(*, config: Config, insecure: Insecure = False) -> None:
    """Act as the second server of secret shares, without features of its own.

    For protection shares, where the roster's terms name this member as helper.  Needs no open
    port; with the table [status] it opens one for probes and Prometheus.  Every message is durable
    before it is answered, so the process can be killed at any time.
    """
    from msgspec.structs import replace

    from vfbandits.extras import require

    require("grpc", extra="rpc", to="serving")
    from vfbandits.errors import ConfigError
    from vfbandits.participant.helper import HelperService
    from vfbandits.participant.run import MakeFront, run_helper
    from vfbandits.settings.services import load_helper
    from vfbandits.telemetry.log import start_logging
    from vfbandits.transport.event_loop import run

    settings = load_helper(config)
    if insecure:
        settings = replace(settings, insecure=True)
    make_front: MakeFront[HelperService] | None = None
    if settings.status is not None:
        for package in ("httptools", "starlette", "prometheus_client"):
            require(package, extra="http", to="[status]", error=ConfigError)
        from vfbandits.http.passive import helper_front as make_front
    with start_logging():
        run(run_helper(settings, make_front=make_front, on_ready=_say_dialling))


def _say_dialling(port: int | None) -> None:
    typer.echo("ready: dialling" if port is None else f"ready: dialling, status on port {port}")


if __name__ == "__main__":
    serve_app()
