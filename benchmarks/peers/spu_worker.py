"""Selections under SPU's three-party protocol ABY3, a block for each line that it is sent.

Run in the environment ``.venv-spu`` by ``benchmarks.shares_spu``.  Inputs are secret-shared and the
program compiled beforehand; counted is what the parties, threads of this process, take to run it.
"""

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from spu import api, libspu
from spu.utils import frontend

SECRET = libspu.Visibility.VIS_SECRET
PARTIES = 3
BETA, SCALE = 0.5, 0.1
Array: TypeAlias = NDArray[Any]


def linucb(contexts: Array, theta: Array, inverse: Array) -> Array:
    """The arm of LinUCB."""
    squares = jnp.sum((contexts @ inverse) * contexts, axis=1)
    arm: Array = jnp.argmax(contexts @ theta + BETA * jnp.sqrt(squares))
    return arm


def lints(contexts: Array, theta: Array, root: Array, noise: Array) -> Array:
    """The arm of LinTS in parameter space."""
    arm: Array = jnp.argmax(contexts @ (theta + SCALE * (root @ noise)))
    return arm


class Selection:
    """One program on shared inputs, held by runtimes that stay."""

    def __init__(self, program: Callable[..., Array], inputs: list[Array]) -> None:
        names = [f"in{k}" for k in range(len(inputs))]
        self.executable, _ = frontend.compile(
            frontend.Kind.JAX,
            program,
            tuple(inputs),
            {},
            names,
            [SECRET] * len(inputs),
            lambda outputs: [f"out{k}" for k in range(len(outputs))],
        )
        config = libspu.RuntimeConfig(
            protocol=libspu.ProtocolKind.ABY3, field=libspu.FieldType.FM64
        )
        self._io = api.Io(PARTIES, config)
        links = libspu.link.Desc()
        for rank in range(PARTIES):
            links.add_party(f"id_{rank}", f"{program.__name__}_{rank}")
        shares = [self._io.make_shares(one, SECRET) for one in inputs]
        self._runtimes: dict[int, api.Runtime] = {}

        def start(rank: int) -> None:
            link = libspu.link.create_mem(links, rank)
            runtime = api.Runtime(link, libspu.RuntimeConfig(config))
            for name, share in zip(names, shares, strict=True):
                runtime.set_var(name, share[rank])
            self._runtimes[rank] = runtime

        _in_threads(start)

    def run(self, count: int) -> dict[str, float]:
        """What one of ``count`` selections takes of all parties, as a ``Turn`` has it."""

        def party(rank: int) -> None:
            for _ in range(count):
                self._runtimes[rank].run(self.executable)

        wall, cpu = time.perf_counter(), time.process_time()
        _in_threads(party)
        elapsed, spent = time.perf_counter() - wall, time.process_time() - cpu
        each = elapsed / count
        times = {"elapsed_s": elapsed, "p50_s": each, "p99_s": each, "cpu_s": spent / count}
        return {"count": count, **times}

    def arm(self) -> int:
        """The arm that was selected."""
        name = self.executable.output_names[0]
        parts = [self._runtimes[rank].get_var(name) for rank in range(PARTIES)]
        return int(self._io.reconstruct(parts))


def _in_threads(work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(PARTIES)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    """Play blocks until the input ends."""
    dim, n_arms = int(sys.argv[1]), int(sys.argv[2])
    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((n_arms, dim))
    contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
    theta, noise = rng.standard_normal((2, dim)) / np.sqrt(dim)
    some = rng.standard_normal((dim, dim)) / dim
    inverse = np.linalg.inv(np.eye(dim) + some @ some.T)
    root = np.linalg.cholesky(inverse)
    programs: dict[str, tuple[Callable[..., Array], list[Array]]] = {
        "LinUCB": (linucb, [contexts, theta, inverse]),
        "LinTS": (lints, [contexts, theta, root, noise]),
    }
    program, inputs = programs[sys.argv[3]]
    inputs = [one.astype(np.float32) for one in inputs]
    selection = Selection(program, inputs)
    selection.run(2)
    if selection.arm() != int(program(*inputs)):
        sys.exit("SPU selects another arm than the plain program")
    print(0, flush=True)  # noqa: T201  (the other end reads it)
    for line in sys.stdin:
        print(json.dumps(selection.run(json.loads(line)["count"])), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
