"""Traffic for a federation on this machine, and a central bandit to compare each decision with.

Everything is made up here: users, arms, features and what users like.  Each participant gets its
own columns as a file; only the rehearsal knows them all.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from vfbandits.campaign.draws import EventDraws
from vfbandits.core.arrays import Matrix, Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.policy import LinTS
from vfbandits.protocol.application import DecideRequest, RewardRequest
from vfbandits.settings.model import ModelSettings
from vfbandits.transport.rpc.application import ApplicationClient

NOISE = 0.05
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, eq=False)
class Town:
    """Users and arms, with the features that each participant has of them (layout "per_arm")."""

    widths: Mapping[str, int]
    users: tuple[str, ...]
    arms: tuple[str, ...]
    blocks: dict[str, Matrix] = field(repr=False)
    expected: Matrix = field(repr=False)

    @classmethod
    def invent(cls, widths: Mapping[str, int], *, n_users: int, n_arms: int, seed: int) -> "Town":
        """A town from a seed; rewards are linear in all features together."""
        rng = np.random.default_rng(seed)
        dim = sum(widths.values())
        contexts = rng.standard_normal((n_users * n_arms, dim))
        contexts /= np.linalg.norm(contexts, axis=1, keepdims=True)
        theta_star = rng.standard_normal(dim)
        theta_star /= np.linalg.norm(theta_star)
        places = np.cumsum(list(widths.values()))[:-1]
        parts = np.split(contexts, places, axis=1)
        return cls(
            dict(widths),
            tuple(f"user-{number}" for number in range(n_users)),
            tuple(f"arm-{number}" for number in range(n_arms)),
            dict(zip(widths, parts, strict=True)),
            (contexts @ theta_star).reshape(n_users, n_arms),
        )

    def write_features(self, name: str, path: Path, *, per_arm: bool = True) -> str:
        """Write one participant's columns as Parquet; returns its [features] table.

        Unless ``per_arm`` a user has one row: that of its first arm.
        """
        import polars as pl  # noqa: PLC0415  (an extra)

        step = 1 if per_arm else len(self.arms)
        block = self.blocks[name][::step]
        columns = {f"f{number}": block[:, number] for number in range(block.shape[1])}
        keys = {"user": np.repeat(self.users, len(self.arms))[::step]}
        if per_arm:
            keys["arm"] = np.tile(self.arms, len(self.users))
        pl.DataFrame({**keys, **columns}).write_parquet(path)
        quoted = [", ".join(f'"{word}"' for word in words) for words in (keys, columns)]
        return f'kind = "file"\npath = "{path}"\nkey = [{quoted[0]}]\ncolumns = [{quoted[1]}]\n'

    def contexts(self, user: int, names: tuple[str, ...]) -> Matrix:
        """The rows of one user, zeros where the participant is not among ``names``."""
        rows = slice(user * len(self.arms), (user + 1) * len(self.arms))
        parts = [
            block[rows] if name in names else np.zeros((len(self.arms), block.shape[1]))
            for name, block in self.blocks.items()
        ]
        return np.hstack(parts)


@dataclass(slots=True)
class Tally:
    """The results of a rehearsal so far."""

    total: int = 0
    equal: int = 0
    incomplete: int = 0
    largest_difference: float = 0.0
    bytes_received: int = 0
    seconds: list[float] = field(default_factory=list, repr=False)
    regret: dict[str, list[float]] = field(default_factory=dict, repr=False)

    def add_regret(self, name: str, regret: float) -> None:
        """One more round of one bandit."""
        curve = self.regret.setdefault(name, [])
        curve.append(regret + (curve[-1] if curve else 0.0))

    def latency_s(self, share: float) -> float:
        """A quantile of the time that decisions took, as the application saw it."""
        return float(np.quantile(self.seconds, share)) if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Played:
    """A round on secret shares, to be compared when its noise is known."""

    event_id: str
    user: int
    contributors: tuple[str, ...]
    arm: str
    value: float


class ServersDraws:
    """The normals that the two servers of secret shares drew for a decision."""

    normals: Vector = np.zeros(0)

    def standard_normal(self, size: int | tuple[int, ...], /) -> Matrix:
        """The normals of this decision."""
        del size
        return self.normals

    def random(self) -> float:
        """Nothing else is drawn."""
        return 0.5


class Rehearsal:
    """Plays rounds against a running federation.

    On secret shares the noise of a decision is unknown while the federation runs: rounds are
    compared afterwards, by ``compare``.
    """

    def __init__(
        self, town: Town, model: ModelSettings, *, seed: int, is_shared: bool = False
    ) -> None:
        self.town = town
        self.tally = Tally()
        dim = sum(town.widths.values())
        policy = model.policy
        if is_shared and isinstance(policy, LinTS):
            policy = replace(policy, space="parameter")
        self._central = Bandit(policy, dim=dim, ridge=model.ridge, seed=model.seed)
        self._draws = EventDraws(self._central.seed)
        self._draws.lend_to(self._central)
        self._is_shared = is_shared
        self._played: list[Played] = []
        self._active, width = next(iter(town.widths.items()))
        self._alone = Bandit(model.policy, dim=width, ridge=model.ridge, seed=model.seed)
        self._rng = np.random.default_rng(seed)

    async def play(
        self, client: ApplicationClient, rounds: int, *, on_round: Callable[[Tally], None]
    ) -> None:
        """Decide and reward ``rounds`` times."""
        for _ in range(rounds):
            await self._play_one(client)
            on_round(self.tally)

    async def _play_one(self, client: ApplicationClient) -> None:
        town, tally = self.town, self.tally
        user = int(self._rng.integers(len(town.users)))
        noise = float(self._rng.normal(scale=NOISE))
        started = time.perf_counter()
        request = DecideRequest(town.users[user], town.arms)
        reply = await client.decide(request, timeout_s=TIMEOUT_S)
        tally.seconds.append(time.perf_counter() - started)
        tally.total += 1
        tally.incomplete += len(reply.contributors) < len(town.widths)
        tally.bytes_received += reply.bytes_received
        value = float(town.expected[user, reply.index]) + noise
        await client.reward(RewardRequest(reply.event_id, value), timeout_s=TIMEOUT_S)
        played = Played(reply.event_id, user, reply.contributors, reply.arm, value)
        if self._is_shared:
            self._played.append(played)
        else:
            self._draws.seed(reply.event_id)
            scores = self._compare(played)
            difference = float(np.abs(np.frombuffer(reply.scores, dtype="<f8") - scores).max())
            tally.largest_difference = max(tally.largest_difference, difference)
        best = float(town.expected[user].max())
        tally.add_regret("federation", best - float(town.expected[user, reply.index]))
        self._play_alone(user, best, noise)

    def _compare(self, played: Played) -> Vector:
        """What the central bandit would have done; returns its scores."""
        contexts = self.town.contexts(played.user, played.contributors)
        decision = self._central.decide(contexts, arms=self.town.arms)
        self.tally.equal += decision.arm == played.arm
        self._central.reward(decision, played.value)
        return decision.scores

    def compare(self, noises: Mapping[str, Vector]) -> None:
        """Compare rounds on secret shares with those of a central bandit with the same noise."""
        draws = ServersDraws()
        self._central.draw_from(draws)
        for played in self._played:
            draws.normals = noises[played.event_id]
            self._compare(played)
        self._played.clear()

    def _play_alone(self, user: int, best: float, noise: float) -> None:
        """The active participant without the others, on the same users."""
        town = self.town
        rows = slice(user * len(town.arms), (user + 1) * len(town.arms))
        decision = self._alone.decide(town.blocks[self._active][rows])
        expected = float(town.expected[user, decision.index])
        self._alone.reward(decision, expected + noise)
        self.tally.add_regret("alone", best - expected)
