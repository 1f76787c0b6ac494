"""Environments that hold what a user's would: the wheel, some extras, and no constraints."""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import gettempdir
from typing import NamedTuple

from extras_table import ROOT

INSTALL_S = 800  # a busy machine compiles and unpacks slowly
COMMAND_S = 400.0
# What is set for our own environment and would reach into a fresh one.
OURS = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "VFBANDITS_COMPILED")

# Runs the program vfb on each command of a list, in one process: starting it anew takes a second.
RUN_VFB = """
import contextlib, importlib.metadata, io, json, sys, traceback
(vfb,) = importlib.metadata.entry_points(group="console_scripts", name="vfb")
ended = []
for words in json.load(sys.stdin):
    sys.argv = ["vfb", *words]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            vfb.load()()
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
            code = 1
    ended.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(ended))
"""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


def uv(*words, **more):
    """Run the uv of this environment; its output is the error's text if it fails."""
    command = [Path(sys.executable).with_name("uv"), "--system-certs", *words]
    # Elsewhere: in our folder the overrides of pyproject.toml would count, which users do not have.
    return checked(command, timeout=INSTALL_S, **{"cwd": gettempdir(), **more})


def checked(command, **more):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **more
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-2_000:]}\n{done.stderr[-4_000:]}"
    return done


def build_wheel(folder):
    """The wheel of this repository."""
    uv("build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("vfbandits-*.whl")
    return wheel


class FreshEnvironment:
    """A virtual environment of its own, and a folder to run commands in."""

    def __init__(self, folder):
        self.folder = folder / "environment"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.binaries = self.folder / "bin"
        uv("venv", "--quiet", "--python", sys.executable, self.folder)

    def install(self, *words):
        return uv("pip", "install", "--python", self.binaries / "python", *words)

    @property
    def variables(self):
        kept = {name: value for name, value in os.environ.items() if name not in OURS}
        path = os.pathsep.join([str(self.binaries), os.environ["PATH"]])
        return {**kept, "PATH": path, "COLUMNS": "200", "OMP_NUM_THREADS": "1"}

    def run(self, *words, timeout_s=COMMAND_S):
        """Run one of the environment's own programs and return how it ended."""
        program = self.binaries / words[0]
        assert program.exists(), f"{program} is not installed"
        return subprocess.run(
            [str(program), *map(str, words[1:])],
            cwd=self.home,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )

    def run_vfb(self, commands):
        """Run ``vfb`` on each of ``commands``; yields its words and how it ended."""
        commands = [list(words) for words in commands]
        done = checked(
            [self.binaries / "python", "-c", RUN_VFB],
            cwd=self.home,
            env=self.variables,
            input=json.dumps(commands),
            timeout=COMMAND_S,
        )
        for words, ended in zip(commands, json.loads(done.stdout), strict=True):
            yield words, Ended(*ended)

    def start(self, *words, log, **variables):
        """Start one of the environment's own programs; what it prints goes to ``log``."""
        with log.open("ab") as file:
            return subprocess.Popen(
                [str(self.binaries / words[0]), *map(str, words[1:])],
                cwd=self.home,
                env={**self.variables, **variables},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
