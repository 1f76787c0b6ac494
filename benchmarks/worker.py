"""A process that plays rounds on command: one JSON object a line in, one a line out.

The orchestrator starts it with one thread for every numerical library, by our Python or by the
peers'; it imports nothing but NumPy until a contestant is asked for.  A fault ends the process,
and its last words on standard error are what the report shows.
"""

import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TextIO

from benchmarks.contestant import Task
from benchmarks.slot import Slot, fill_slot, weigh


class Worker:
    """The commands, one method each; the fields of a command are the method's keywords."""

    def __init__(self) -> None:
        self._slots: dict[str, Slot] = {}

    def setup(self, *, slot: str, factory: str, task: Task) -> dict[str, float]:
        """Put a fresh contestant into a slot; its contexts repeat after ``pool`` rounds."""
        self._slots[slot] = fill_slot(factory, task)
        return {"pool": len(self._slots[slot].forms)}

    def run(self, *, slot: str, rounds: int) -> dict[str, float]:
        """Let a slot's contestant play on from where it stands."""
        return self._slots[slot].run(rounds)

    def drop(self, *, slot: str) -> dict[str, float]:
        """Empty a slot."""
        del self._slots[slot]
        return {}

    def memory(self, *, factory: str, task: Task, rounds: int) -> dict[str, float]:
        """Weigh a fresh contestant after some rounds."""
        return weigh(factory, task, rounds=rounds)

    def versions(self, *, packages: Sequence[str]) -> dict[str, str]:
        """Say what is installed beside this process; what is not, is left out."""
        found = {"python": sys.version.split()[0]}
        for package in packages:
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found


def serve(commands: TextIO, answers: TextIO) -> None:
    """Answer commands until their stream ends."""
    worker = Worker()
    for line in commands:
        command = json.loads(line)
        if "task" in command:
            command["task"] = Task(**command["task"])
        answer = getattr(worker, command.pop("do"))(**command)
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def main() -> None:
    """Serve on standard input; a library that prints must not be taken for an answer."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(sys.stdin, answers)


if __name__ == "__main__":
    main()
