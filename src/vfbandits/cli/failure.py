"""Errors of the library, as a user of the command sees them: one red line, exit code 2."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import NoReturn, ParamSpec

import typer

from vfbandits.errors import VFBanditsError

P = ParamSpec("P")


INTERRUPTED = 130  # as in shells: 128 plus the number of SIGINT


def stop(line: str) -> NoReturn:
    """End a command that Ctrl-C interrupted, with one line that says what is kept."""
    typer.echo(line, err=True)
    raise typer.Exit(INTERRUPTED)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, so that a terminated command cleans up too."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def in_one_line(command: Callable[P, None]) -> Callable[P, None]:
    """``command``, with errors of the library and the system as one line, without a traceback."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except VFBanditsError as error:
            _say(str(error))
            raise typer.Exit(2) from error
        except ModuleNotFoundError as error:
            from vfbandits.extras import missing_extra

            what = missing_extra(error)
            if what is None:
                raise
            _say(what)
            raise typer.Exit(2) from error
        except BrokenPipeError:  # the reader of our output is gone, as with "| head"
            raise
        except OSError as error:
            reason = error.strerror or str(error)
            _say(f"{error.filename}: {reason}" if error.filename else reason)
            raise typer.Exit(2) from error
        except KeyboardInterrupt:
            stop("stopped")

    return wrapped


def _say(error: str) -> None:
    from rich.console import Console
    from rich.text import Text

    line = " ".join(error.split())
    Console(stderr=True).print(Text(f"error: {line}", style="red"), soft_wrap=True)
