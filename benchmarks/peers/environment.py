"""The peers' environments: made once, package by package, so that one failure costs one peer."""

import json
import subprocess
import venv
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.process import ROOT, last_line

PEERS, SPU = "peers", "spu"  # SPU needs an older NumPy than the others


@dataclass(frozen=True, slots=True)
class PeerEnvironment:
    """The peers' Python, and for each package that did not install the last line pip said."""

    python: Path
    failures: dict[str, str] = field(default_factory=dict)


def make_environment(
    say: Callable[[str], None], *, name: str = PEERS, only: Collection[str] | None = None
) -> PeerEnvironment:
    """Install what is pinned for ``name`` and is not there yet; minutes at first, then none.

    ``only`` names the packages that are needed, if not all are.
    """
    directory = ROOT / f".venv-{name}"
    environment = PeerEnvironment(directory / "bin" / "python")
    say(f"looking into {directory.name}")
    present = _installed(environment.python)
    if not present:
        say(f"making {directory.name}")
        venv.create(directory, clear=True, with_pip=True)
    pins = Path(__file__).with_name(f"requirements-{name}.txt")
    for line in pins.read_text().split():
        package, version = line.split("==")
        if present.get(package) == version or (only is not None and package not in only):
            continue
        say(f"installing {line} into {directory.name}")
        done = _pip(environment.python, "install", line)
        if done.returncode != 0:
            environment.failures[package] = last_line(done.stderr)
    return environment


def _installed(python: Path) -> dict[str, str]:
    """List packages; none, if the environment is missing or was left half made."""
    listed = _pip(python, "list", "--format=json") if python.exists() else None
    if listed is None or listed.returncode != 0:
        return {}
    return {row["name"].lower(): row["version"] for row in json.loads(listed.stdout)}


def _pip(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(python), "-m", "pip", *arguments], capture_output=True, text=True, check=False
    )
