"""How a command ends that cannot do what it was asked: one line, and no traceback."""

import errno
import os

import pytest
import typer
from typer.testing import CliRunner

from vfbandits.cli.failure import in_one_line
from vfbandits.errors import ConfigError


def run(error):
    app = typer.Typer()

    @app.command()
    @in_one_line
    def fail() -> None:
        raise error

    return CliRunner().invoke(app, [])


def on(number, path="/srv/out.csv"):
    return OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ConfigError("wanted a file,\n  got a folder"), "error: wanted a file, got a folder\n"),
        (on(errno.EEXIST), "error: /srv/out.csv: File exists\n"),
        (on(errno.EACCES), "error: /srv/out.csv: Permission denied\n"),
        (OSError(errno.ENOSPC, "No space left on device"), "error: No space left on device\n"),
        (OSError("the socket is gone"), "error: the socket is gone\n"),
    ],
)
def test_an_error_of_ours_or_of_the_system_is_one_line(error, line):
    done = run(error)
    assert (done.exit_code, done.stderr) == (2, line)


def test_a_reader_that_has_gone_is_not_an_error_of_the_command():
    assert run(BrokenPipeError(errno.EPIPE, "Broken pipe")).exit_code == 1


def test_a_bug_keeps_its_traceback():
    assert isinstance(run(ZeroDivisionError("a bug")).exception, ZeroDivisionError)
