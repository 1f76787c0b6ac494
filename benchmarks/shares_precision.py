"""How far scores on secret shares drift from a plain bandit's over many rewards.

Run as ``python -m benchmarks.shares_precision --rounds 1000000``.  All roles run in one process
beside a plain bandit on the same contexts and, for LinTS, with the same noise.  Prints how many
arms were equal and the largest difference of a score, ten times on the way, and exits with 1 if an
arm differs or a score is off by more than what ties.

Errors of fixed point add up with every reward, and weigh most where widths are small.  So the
features are few: then a direction is learnt as often in 10^6 rounds as one of 100 features in 10^7.
``--world correlated`` draws contexts near to one direction, with less and less in the others, which
leaves some directions nearly unknown.  ``--ridge`` is the weight of the prior.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

import vfbandits as vfb
from vfbandits.core import state
from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.core.decision import first_best
from vfbandits.core.mask import MaskShare
from vfbandits.core.policy.base import Policy
from vfbandits.core.shares.active import Opened
from vfbandits.core.shares.comparison import TOLERANCE, UNIT_BITS
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.released import ReleasedStatistics, plan
from vfbandits.core.shares.terms import ShareTerms, default_window

TIE = TOLERANCE * 2.0**-UNIT_BITS
"""Scores that differ by less tie with the release of the arm."""
CASES: dict[str, tuple[Policy, str]] = {
    "lints": (vfb.LinTS(0.1, space="parameter"), "arm"),
    "lingreedy": (vfb.LinGreedy(), "arm"),
    "linucb": (vfb.LinUCB(0.5), "arm"),
    "linucb-statistics": (vfb.LinUCB(0.5), "statistics"),
}
WORLDS = ("spread", "correlated")
_BLOCK = 1_000
_LEAST_VARIANCE = 1e-4


class Found(NamedTuple):
    """After so many rounds: how many arms were equal, and the largest error of a score."""

    n_rounds: int
    n_equal: int
    error: float


class _Given:
    """Normals that are set before each decision of the plain bandit."""

    normals = np.zeros(0)

    def standard_normal(self, _size: int | tuple[int, ...], /) -> Matrix:
        return self.normals

    def random(self) -> float:
        return 0.5


def measure(  # noqa: PLR0913
    name: str,
    *,
    n_rounds: int,
    dim: int = 8,
    n_arms: int = 4,
    world: str = "spread",
    ridge: float = 1.0,
    seed: int = 0,
    on_block: Callable[[Found], None] | None = None,
) -> Found:
    """Play a case of ``CASES``; ends early with the first arm that differs."""
    policy, release = CASES[name]
    rng = np.random.default_rng(seed)
    shared = plan(policy, release)
    terms = ShareTerms(
        widths=(dim - dim // 2, dim // 2),
        max_arms=n_arms,
        ridge=ridge,
        posterior_scale=shared.posterior_scale,
        release=release,
        reads=shared.reads,
        beta=shared.beta,
        window=default_window(shared.reads),
        decisions=default_window(shared.reads),
    )
    # Rotations would have to be undone for the comparison, and change no error.
    rotations = [MaskShare(np.eye(width)) for width in terms.widths]
    local = LocalShares(terms, rotations=rotations, entropy=rng.bytes)
    twin, draws = vfb.Bandit(policy, dim=dim, ridge=ridge), _Given()
    twin.draw_from(draws)
    found = Found(0, 0, 0.0)
    theta_star = rng.standard_normal(dim) / np.sqrt(dim)
    with _one_path(n_rounds):
        for contexts in _contexts(rng, world, n_rounds, n_arms, dim):
            opened = local.decide(
                [PlainBlock(block) for block in np.split(contexts, [dim - dim // 2], axis=1)]
            )
            draws.normals = local.noise(opened.event)
            decision = twin.decide(contexts)
            scores, arm = _shared_scores(local, opened, contexts, policy, found.n_rounds)
            error = 0.0 if scores is None else float(np.abs(scores - decision.scores).max())
            is_equal = arm == decision.index
            found = Found(found.n_rounds + 1, found.n_equal + is_equal, max(found.error, error))
            if not is_equal:
                break
            reward = float(contexts[arm] @ theta_star + 0.05 * rng.standard_normal())
            local.learn(local.pick(opened, arm), reward)
            twin.reward(decision, reward)
            if on_block is not None and found.n_rounds % max(1, n_rounds // 10) == 0:
                on_block(found)
    return found


@contextmanager
def _one_path(n_rounds: int) -> Iterator[None]:
    """Let no plain root be derived afresh: it would have the same law and another path."""
    before = state.REFACTOR_EVERY
    state.REFACTOR_EVERY = max(before, n_rounds + 1)
    try:
        yield
    finally:
        state.REFACTOR_EVERY = before


def _contexts(
    rng: np.random.Generator, world: str, n_rounds: int, n_arms: int, dim: int
) -> Iterator[Matrix]:
    """Rows of length 1."""
    spread = np.logspace(0.0, np.log10(_LEAST_VARIANCE), dim) ** 0.5 if world == WORLDS[1] else 1.0
    for start in range(0, n_rounds, _BLOCK):
        rows = rng.standard_normal((min(_BLOCK, n_rounds - start), n_arms, dim)) * spread
        yield from rows / np.linalg.norm(rows, axis=2, keepdims=True)


def _shared_scores(
    local: LocalShares, opened: Opened, contexts: Matrix, policy: Policy, n_updates: int
) -> tuple[Vector | None, int]:
    """Scores as the shared state has them, and the arm.

    With statistics they are released.  Otherwise both servers' states are put together for them, in
    every 100th round.
    """
    terms, came = local.terms, opened.statistics
    if came is not None:
        released = ReleasedStatistics(
            *(came.means, came.forms, terms.reads, terms.ridge, n_updates),
            length=terms.max_length * np.sqrt(terms.ridge),
            largest_reward=1.0,
        )
        scores = policy.score(released, _Given()).values
        return scores, first_best(scores, released.magnitude)
    if n_updates % 100:
        return None, opened.arm
    if terms.is_root:
        theta, root = local.reveal_root()
        noise = terms.posterior_scale * local.noise(opened.event)
        return contexts @ (theta + root @ noise), opened.arm
    theta, inverse = local.reveal()
    squares = np.einsum("ki,ij,kj->k", contexts, inverse, contexts)
    return contexts @ theta + terms.beta * np.sqrt(squares), opened.arm


def main() -> None:
    """Measure one case or all."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shares_precision", description=__doc__
    )
    parser.add_argument("--rounds", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--arms", type=int, default=4)
    parser.add_argument("--case", choices=[*CASES, "all"], default="all")
    parser.add_argument("--world", choices=WORLDS, default=WORLDS[0])
    parser.add_argument("--ridge", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    _say(f"d = {given.dim}, K = {given.arms}, {given.world} contexts, ridge {given.ridge:g}")
    _say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    is_met = True
    for name in CASES if given.case == "all" else [given.case]:
        started = time.monotonic()
        found = measure(
            name,
            n_rounds=given.rounds,
            dim=given.dim,
            n_arms=given.arms,
            world=given.world,
            ridge=given.ridge,
            seed=given.seed,
            on_block=lambda found, name=name: _report(name, found),  # type: ignore[misc]
        )
        passed = found.n_equal == given.rounds and found.error < TIE
        is_met = is_met and passed
        _say(
            f"{name}: {'met' if passed else 'MISSED'}: {found.n_equal:,} of {found.n_rounds:,} "
            f"arms equal, worst score error {found.error:.1e} of at most {TIE:.1e}, "
            f"{(time.monotonic() - started) / 60.0:.1f} min"
        )
    sys.exit(not is_met)


def _report(name: str, found: Found) -> None:
    _say(f"{name}: {found.n_rounds:>9,} rounds, worst score error {found.error:.1e}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
