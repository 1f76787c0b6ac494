"""Users, arms and features for a federation of real processes, and a central bandit beside it."""

import asyncio
import json

import fork_server
import numpy as np
import polars as pl
from ports import free_port

from vfbandits.campaign.draws import EventDraws
from vfbandits.core.bandit import Bandit
from vfbandits.demo.local import LocalFederation, Plan
from vfbandits.errors import LinkError
from vfbandits.pki.member import server_name, tls_files
from vfbandits.protocol.application import DecideRequest, RewardRequest, StatusRequest
from vfbandits.protocol.roster import Terms
from vfbandits.transport.rpc.application import ApplicationClient

WIDTHS = {"shop": 4, "bank": 3, "news": 5, "post": 2, "gym": 3}
DEADLINE_S = 60.0


class LiveWorld:
    """Features of every participant in files of its own, and all of them here to compare."""

    def __init__(self, folder, *, widths=None, terms=None, n_users=12, n_arms=4, seed=0):
        self.widths = dict(widths or WIDTHS)
        self.terms = terms or Terms()
        self.folder = folder
        self.users = [f"user-{number}" for number in range(n_users)]
        self.arms = tuple(f"arm-{number}" for number in range(n_arms))
        rng = np.random.default_rng(seed)
        self.per_arm = self.terms.layout == "per_arm"
        n_rows = n_users * n_arms if self.per_arm else n_users
        self.blocks = {n: rng.standard_normal((n_rows, w)) / 3 for n, w in self.widths.items()}
        self.rng = rng
        self.arm_features = (
            rng.standard_normal((n_arms, self.terms.arm_dim)) if self.terms.arm_dim else None
        )
        self.theta = rng.standard_normal((n_arms, sum(self.widths.values())))

    def features(self, name):
        """Write the features of ``name``; returns its [features] table."""
        block = self.blocks[name]
        columns = {f"f{j}": block[:, j] for j in range(block.shape[1])}
        if self.per_arm:
            keys = {
                "user": [user for user in self.users for _ in self.arms],
                "arm": list(self.arms) * len(self.users),
            }
        else:
            keys = {"user": self.users}
        path = self.folder / f"{name}.parquet"
        pl.DataFrame({**keys, **columns}).write_parquet(path)
        key, names = list(keys), list(columns)
        return f'kind = "file"\npath = "{path}"\nkey = {key}\ncolumns = {names}\n'.replace("'", '"')

    def plan(self, *, widths=None, **options):
        widths = widths or self.widths
        features = {name: self.features(name) for name in widths}
        return Plan(widths, self.terms, features, **options)

    def federation(self, **options):
        home = self.folder / "federation"
        home.mkdir()
        return LocalFederation(
            home, self.plan(**options), port=free_port(), popen=fork_server.Popen
        )

    def rows(self, name, user):
        """The plain block of ``name`` for one decision, as a matrix."""
        place = self.users.index(user)
        if self.per_arm:
            return self.blocks[name][place * len(self.arms) : (place + 1) * len(self.arms)]
        return self.blocks[name][place : place + 1]

    def context(self, user, contributors, names=None):
        """What a central bandit sees: zeros for those that did not contribute."""
        parts = [
            self.rows(name, user) if name in contributors else np.zeros_like(self.rows(name, user))
            for name in names or self.widths
        ]
        whole = np.hstack(parts)
        return whole if self.per_arm else whole[0]

    def reward(self, user, index):
        whole = self.context(user, self.widths)
        row = whole[index] if self.per_arm else whole
        return float(row @ self.theta[0 if self.per_arm else index])

    def central(self, policy, *, seed=0, dim=None, **options):
        return Bandit(
            policy,
            dim=dim or sum(self.widths.values()),
            layout=self.terms.layout,
            arm_dim=self.terms.arm_dim or None,
            seed=seed,
            **options,
        )

    def request(self, user):
        features = b"" if self.arm_features is None else self.arm_features.tobytes()
        return DecideRequest(user, self.arms, arm_features=features)


def client_of(federation, name="app"):
    identity = federation.identity(name)
    return ApplicationClient(
        federation.address,
        tls=None if federation.plan.insecure else tls_files(identity),
        name=name,
        role=identity.subject.role,
        server_name=server_name(federation.roster),
    )


class Session:
    """An application's view of a running federation, with the central bandit beside it."""

    def __init__(self, world, federation, central, *, name="app"):
        self.name = name
        self.world = world
        self.federation = federation
        self.central = central
        if central is not None:
            self.draws = EventDraws(central.seed)
            self.draws.lend_to(central)
        self.equal = self.total = 0
        self.largest_difference = 0.0
        self.contributors = []
        self.replies = []
        self.names = None

    async def __aenter__(self):
        self.client = client_of(self.federation, self.name)
        return self

    async def __aexit__(self, *_):
        await self.client.close()

    async def status(self):
        reply = await self.client.status(StatusRequest(), timeout_s=DEADLINE_S)
        return json.loads(reply.document)

    async def wait_for(self, *names, timeout_s=DEADLINE_S):
        """Wait until exactly these passive participants take part in decisions again."""
        wanted = {self.federation.roster.active.name, *names}
        limit = asyncio.get_running_loop().time() + timeout_s
        while asyncio.get_running_loop().time() < limit:
            await self.play(1)
            if set(self.contributors[-1]) == wanted:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"wanted {sorted(wanted)}, got {self.contributors[-1]}")

    async def play(self, rounds, *, learn=True):
        """Decide and reward; the central bandit sees what the contributors saw."""
        world = self.world
        for _ in range(rounds):
            user = world.users[self.total % len(world.users)]
            reply = await self.client.decide(world.request(user), timeout_s=DEADLINE_S)
            self.draws.seed(reply.event_id)
            decision = self.central.decide(
                world.context(user, reply.contributors, self.names),
                arms=world.arms,
                arm_features=world.arm_features,
            )
            scores = np.frombuffer(reply.scores)
            difference = np.abs(scores - decision.scores).max() / max(1, np.abs(scores).max())
            self.largest_difference = max(self.largest_difference, float(difference))
            self.total += 1
            self.equal += reply.arm == decision.arm
            self.contributors.append(reply.contributors)
            self.replies.append(reply)
            if learn:
                value = world.reward(user, reply.index)
                request = RewardRequest(reply.event_id, value)
                await self.client.reward(request, timeout_s=DEADLINE_S)
                self.central.reward(decision, value)

    @property
    def is_lossless(self):
        return self.equal == self.total > 0 and self.largest_difference < 1e-9


async def wait_until_connected(session):
    """Without a decision: the draws of both bandits must start together."""
    limit = asyncio.get_running_loop().time() + DEADLINE_S
    while asyncio.get_running_loop().time() < limit:
        try:
            status = await session.status()
        except LinkError:
            status = {"participants": {"": {"connected": False}}}
        if all(facts["connected"] for facts in status["participants"].values()):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("not all participants came")
