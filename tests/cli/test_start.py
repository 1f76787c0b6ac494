"""How little ``vfb`` loads before it knows what to do: help, version and completion are quick."""

import json
import os
import subprocess
import sys

import pytest
from command_words import all_commands

HEAVY = (
    *("numpy", "scipy", "numba", "polars", "matplotlib", "sklearn", "grpc", "google.protobuf"),
    *("cryptography", "structlog", "msgspec", "starlette", "httptools", "httpx", "httpx2"),
    *("sqlalchemy", "prometheus_client", "asyncio", "multiprocessing"),
)
HEAVY_BUT_FOR_THE_RUNNER = tuple(name for name in HEAVY if name != "asyncio")
# What ``vfb`` does, with a list of the modules that it loaded on the last line.
LOADED = """
import atexit, sys
atexit.register(lambda: print("loaded:", *sys.modules, flush=True))
sys.argv = ["vfb", *sys.argv[1:]]
from vfbandits.cli.main import app
app()
"""


def loaded_by(*words, **environment):
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb", **environment},
        timeout=120,
        check=False,
    )
    said, _, modules = done.stdout.rpartition("loaded: ")
    assert modules, done.stderr
    return said, set(modules.split())


def heavy(modules):
    return sorted(name for name in HEAVY if name in modules)


def test_help_loads_nothing_heavy():
    said, modules = loaded_by("--help")
    assert "Usage: vfb" in said
    assert heavy(modules) == []


def test_the_version_is_printed_without_the_packages_of_help():
    said, modules = loaded_by("--version")
    assert said.startswith("vfbandits ")
    assert heavy(modules) == []
    assert "rich" not in modules


def test_help_of_every_command_loads_nothing_heavy():
    script = (
        "import json, sys\n"
        "from typer.testing import CliRunner\n"
        "from vfbandits.cli.main import app\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    done = CliRunner(env={'COLUMNS': '200'}).invoke(app, [*words, '--help'])\n"
        "    assert f\"Usage: vfb {' '.join(words)}\" in done.stdout, done.output\n"
        "    print(*words, json.dumps([name for name in sys.argv[2:] if name in sys.modules]))\n"
    )
    commands = all_commands()
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(commands), *HEAVY_BUT_FOR_THE_RUNNER],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines() == [f"{' '.join(words)} []" for words in commands]


@pytest.mark.parametrize(
    ("shell", "typed", "offered"),
    [
        ("bash", "vfb sim", ["simulate"]),
        ("bash", "vfb federation st", ["status"]),
        ("bash", "vfb simulate --se", ["--seeds", "--seed"]),
        ("zsh", "vfb parity --layout d", ["disjoint"]),
        ("fish", "vfb serve ", ["active", "passive"]),
    ],
)
def test_the_shell_completes_commands_options_and_values(shell, typed, offered):
    words = typed.split(" ")
    said, modules = loaded_by(
        _VFB_COMPLETE=f"complete_{shell}",
        COMP_WORDS="\n".join(words),
        COMP_CWORD=str(len(words) - 1),
        _TYPER_COMPLETE_ARGS=typed,
        _TYPER_COMPLETE_FISH_ACTION="get-args",
    )
    for word in offered:
        assert word in said
    assert "demo" not in said
    assert heavy(modules) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_can_be_shown_for_each_shell(shell):
    # Otherwise typer looks for the shell among the processes above this one, such as make's.
    said, modules = loaded_by(
        "--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert "_VFB_COMPLETE" in said
    assert heavy(modules) == []


def test_names_of_the_package_are_there_though_they_are_loaded_late():
    script = (
        "import sys, vfbandits; assert 'numpy' not in sys.modules\n"
        "assert set(vfbandits.__all__) <= set(dir(vfbandits))\n"
        "for name in vfbandits.__all__: getattr(vfbandits, name)\n"
        "from vfbandits import *; Bandit, load\n"
        "import vfbandits as vfb\n"
        "try: vfb.Bandti\n"
        "except AttributeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "module 'vfbandits' has no attribute 'Bandti'\n"
