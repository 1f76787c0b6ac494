"""The command ``vfb``, put together."""

import sys
from typing import Annotated

import typer

from vfbandits.cli.access import access_app
from vfbandits.cli.align import align
from vfbandits.cli.audit import audit
from vfbandits.cli.demo import demo
from vfbandits.cli.evaluate import evaluate
from vfbandits.cli.failure import in_one_line
from vfbandits.cli.features import features_app
from vfbandits.cli.federation import federation_app
from vfbandits.cli.journal import journal_app
from vfbandits.cli.keys import keys_app
from vfbandits.cli.masks import masks_app
from vfbandits.cli.model import model_app
from vfbandits.cli.new import new
from vfbandits.cli.panels import EXPERIMENTS, LOOK_AFTER, RUN, TRY
from vfbandits.cli.parity import parity
from vfbandits.cli.pki import pki_app
from vfbandits.cli.poc import poc
from vfbandits.cli.preflight import preflight
from vfbandits.cli.reproduce import reproduce
from vfbandits.cli.serve import serve_app
from vfbandits.cli.simulate import simulate
from vfbandits.cli.tune import tune

app = typer.Typer(
    name="vfb",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,  # locals may hold features
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001  (the command line calls it)
    if wanted:
        from importlib.metadata import version

        typer.echo(f"vfbandits {version('vfbandits')}")
        raise typer.Exit


@app.callback()
def vfb(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Vertical federated contextual bandits: learn on masked contexts, decide as on plain ones."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot spell θ gets a question mark, not a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


app.command(rich_help_panel=TRY)(in_one_line(demo))
app.command(rich_help_panel=TRY)(in_one_line(poc))
app.command(rich_help_panel=TRY)(in_one_line(parity))
app.command(rich_help_panel=EXPERIMENTS)(in_one_line(simulate))
app.command(rich_help_panel=EXPERIMENTS)(in_one_line(reproduce))
app.command(rich_help_panel=EXPERIMENTS)(in_one_line(evaluate))
app.command(rich_help_panel=EXPERIMENTS)(in_one_line(tune))
app.command(rich_help_panel=RUN)(in_one_line(new))
app.add_typer(pki_app, name="pki", rich_help_panel=RUN)
app.add_typer(features_app, name="features", rich_help_panel=RUN)
app.command(rich_help_panel=RUN)(in_one_line(audit))
app.add_typer(federation_app, name="federation", rich_help_panel=RUN)
app.add_typer(masks_app, name="masks", rich_help_panel=RUN)
app.command(rich_help_panel=RUN)(in_one_line(align))
app.command(rich_help_panel=RUN)(in_one_line(preflight))
app.add_typer(serve_app, name="serve", rich_help_panel=RUN)
app.add_typer(keys_app, name="keys", rich_help_panel=LOOK_AFTER)
app.add_typer(journal_app, name="journal", rich_help_panel=LOOK_AFTER)
app.add_typer(model_app, name="model", rich_help_panel=LOOK_AFTER)
app.add_typer(access_app, name="access", rich_help_panel=LOOK_AFTER)

if __name__ == "__main__":
    app()
