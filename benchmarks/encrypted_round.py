"""What a LinUCB round costs under homomorphic encryption: ``python -m benchmarks.encrypted_round``.

The rounds are played in the peers' environment, by a process that prints one line of JSON.  Counted
are encryption, by participants side by side, evaluation, decryption and the update, as CPU time of
one thread; apart from these, what a raw fan-out takes to carry the same bytes.  Not counted are the
keys, which are made once, and the time to serialise.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict

from benchmarks.peers.environment import make_environment
from benchmarks.process import ONE_THREAD, ROOT, WorkerDiedError, last_line
from benchmarks.raw_fan_out import RawFanOut

WORKER = "benchmarks.peers.ckks_worker"
ROUNDS, SENDING_ROUNDS = 20, 200
ModelKind: TypeAlias = Literal["open", "sealed"]
KINDS: tuple[ModelKind, ...] = ("open", "sealed")


class EncryptedRound(TypedDict):
    """Medians over rounds, each of which was also played in plain.

    ``seconds`` counts one of the participants who encrypt side by side, ``cpu_s`` all of them.
    ``sent_bytes`` weighs a ``block``, which every passive participant sends, and what else passes
    between the active participant and the key holder.  ``largest_error`` is that of any mean or
    squared width.
    """

    rounds: int
    same_arms: int
    largest_error: float
    seconds: float
    stages: dict[str, float]
    cpu_s: float
    sent_bytes: dict[str, int]
    passive_participants: int
    poly_modulus_degree: int
    modulus_bits: list[int]
    security_bits: int
    tenseal: str


def encrypted_round_seconds(
    rounds: int, *, model: ModelKind = "open", python: Path | None = None
) -> EncryptedRound:
    """Measure in the peers' Python, which is made ready unless it is given.

    With an ``open`` model contexts are encrypted, but each chosen one is then told in plain to the
    active participant, who learns from it; with a ``sealed`` one nobody sees a context.
    """
    if python is None:
        python = make_environment(lambda _: None).python
    done = subprocess.run(
        [str(python), "-m", WORKER, model, str(rounds)],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise WorkerDiedError(last_line(done.stderr) or f"exit code {done.returncode}")
    measured: EncryptedRound = json.loads(last_line(done.stdout))
    return measured


async def transmission_seconds(measured: EncryptedRound, rounds: int) -> float:
    """Carry a round's messages over mutual TLS, one after the other: medians, added up."""
    seconds = 0.0
    for name, size_bytes in measured["sent_bytes"].items():
        n_answerers = measured["passive_participants"] if name == "block" else 1
        async with RawFanOut(n_answerers, size_bytes, n_arms=1) as fan_out:
            await fan_out.measure(max(1, rounds // 10))
            seconds += (await fan_out.measure(rounds)).p50_s
    return seconds


def main() -> None:
    """Print what an encrypted round costs on this machine."""
    for model in KINDS:
        measured = encrypted_round_seconds(ROUNDS, model=model)
        sending_s = asyncio.run(transmission_seconds(measured, SENDING_ROUNDS))
        figures = {"model": model, **measured, "transmission_s": sending_s}
        sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
