"""Command lines of ``vfb`` as they stand in pages and files, parsed by the command itself."""

import re
import shlex

import typer.main
from typer.core import TyperGroup

from vfbandits.cli.main import app

VFB = typer.main.get_command(app)
BLOCK = re.compile(r"^```console\n(?P<lines>.*?)^```", re.MULTILINE | re.DOTALL)
PROMPT = re.compile(r"^[a-z]*\$ ", re.MULTILINE)


PROGRESS_LINE = re.compile(r"[\w',.% ]+?, \d+ %(, about [\w ]+ left)?")


def beside_progress(stderr):
    """Lines that do not tell how far a command is, as they do on a busy machine without a tty."""
    return [line for line in stderr.splitlines() if not PROGRESS_LINE.fullmatch(line)]


def commands_in(page):
    """The words after ``vfb`` of every such command in the console blocks of a Markdown page."""
    for block in BLOCK.finditer(page):
        lines = block["lines"].replace("\\\n", " ").splitlines()
        typed = [PROMPT.sub("", line) for line in lines if PROMPT.match(line)]
        yield from (
            tuple(shlex.split(line, comments=True)[1:]) for line in typed if line.startswith("vfb ")
        )


def parse(words):
    """Parse as ``vfb`` would, and run nothing; returns the names of the command.

    Raises what ``vfb`` prints for a command, option or value that does not exist.  Of a command
    that is cut short with "…" the names of its options are looked at and nothing else.
    """
    command, rest, names, context = VFB, list(words), [], None
    while isinstance(command, TyperGroup):
        context = command.make_context("vfb", list(rest), parent=context)
        name, command, rest = command.resolve_command(context, rest)
        names.append(name)
    if "…" in rest:
        _refuse_unknown(command, [word for word in rest if word.startswith("--")])
    else:
        command.make_context(names[-1], list(rest), parent=context)
    return tuple(names)


def _refuse_unknown(command, options):
    known = {option for parameter in command.params for option in parameter.opts}
    if unknown := sorted(set(options) - known):
        raise ValueError(f"No such option: {', '.join(unknown)}")


def all_commands(command=None, names=()):
    """The names of every command that can be run."""
    command = VFB if command is None else command
    if not isinstance(command, TyperGroup):
        return [names]
    return [
        leaf
        for name, child in sorted(command.commands.items())
        for leaf in all_commands(child, (*names, name))
    ]
