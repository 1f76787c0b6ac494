"""Through HTTP, masks and processes, decisions are those of a bandit that sees everything."""

import asyncio

import msgspec
import numpy as np
import pytest
from http_world import HttpWorld

from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.client.schemas import BatchRankResponse, RankResponse
from vfbandits.core.bandit import Bandit
from vfbandits.core.context import Split
from vfbandits.core.policy import InverseGap, LinGreedy, LinTS, LinUCB
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.protocol.roster import Terms
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader

N_EVENTS = 25
WIDTHS = {"shop": 3, "bank": 4, "news": 2}
ARM_DIM = 2
WORLDS = {
    "blockwise per_arm": (Terms("blockwise", "plain", "per_arm"), {}),
    "dense per_arm, secure sums": (Terms("dense", "secure", "per_arm"), {}),
    "dense outer": (Terms("dense", "plain", "outer", arm_dim=ARM_DIM), {"arm_dim": ARM_DIM}),
    "blockwise disjoint": (Terms("blockwise", "plain", "disjoint"), {}),
}
POLICIES = {
    "ucb": (LinUCB(beta=0.5), 'policy = "linucb"\nbeta = 0.5\n'),
    "ts": (LinTS(posterior_scale=0.3), 'policy = "lints"\nposterior_scale = 0.3\n'),
    "greedy": (LinGreedy(epsilon=0.2), 'policy = "lingreedy"\nepsilon = 0.2\n'),
    "gap": (InverseGap(scale=5.0), 'policy = "inverse_gap"\nscale = 5.0\n'),
}


class SeesAll:
    """Everybody's plain features, in one place."""

    max_rows = 1_000
    keep = None

    def __init__(self, world, terms):
        self.town, self.split = world.town, Split.of(WIDTHS)
        self.is_per_arm = terms.layout == "per_arm"
        self.arm_dim = terms.arm_dim

    def n_rows(self, query):
        return len(query.arms) if self.is_per_arm else 1

    async def contexts(self, queries, *, campaign):
        (query,) = queries
        rows = self.town.contexts(self.town.users.index(query.user), tuple(WIDTHS))
        of_arms = arm_features(query.arms) if self.arm_dim else None
        rows = rows if self.is_per_arm else rows[:1]
        return [Contexts(rows, tuple(WIDTHS), arm_features=of_arms, split=self.split)]

    def release(self):
        pass


def arm_features(arms):
    return np.array([[1.0, 0.1 * place] for place, _ in enumerate(arms)])


@pytest.mark.parametrize("name", WORLDS)
def test_every_policy_decides_over_http_as_a_bandit_that_sees_everything(name, tmp_path):
    terms, options = WORLDS[name]
    tables = "".join(
        f"[campaigns.{short}]\nholdback = 0.2\n[campaigns.{short}.model]\nseed = 3\n{text}\n"
        for short, (_, text) in POLICIES.items()
    )
    with (
        HttpWorld(tmp_path, terms=terms, tables=tables, widths=WIDTHS) as world,
        world.client() as client,
    ):
        for short, (policy, _) in POLICIES.items():
            told = asyncio.run(play(twin(world, terms, policy, options), world, client, short))
            assert told == N_EVENTS


def twin(world, terms, policy, options):
    def make():
        return Bandit(policy, dim=9, layout=terms.layout, seed=3, **options)

    def build():
        model = DurableBandit.open(MemoryJournal(MemoryDisk()), make)
        settings = CampaignSettings(policy, holdback=0.2)
        return Leader("twin", model, SeesAll(world, terms), settings)

    return build


async def play(build, world, client, short):
    """Rank some together over HTTP and one after another at the twin, then reward them."""
    campaign = build()
    arms, rng, equal = world.town.arms, np.random.default_rng(0), 0
    while equal < N_EVENTS:
        count = min(int(rng.integers(1, 7)), N_EVENTS - equal)
        users = [world.town.users[int(n)] for n in rng.integers(len(world.town.users), size=count)]
        asked = {f"{short}-{equal + n}": user for n, user in enumerate(users)}
        answers = rank_over_http(client, short, asked, arms, campaign.layout)
        for (event_id, user), theirs in zip(asked.items(), answers, strict=True):
            ours = msgspec.json.decode(
                await campaign.rank(Query(user, arms, event_id)), type=RankResponse
            )
            compare(theirs, ours)
        for event_id in asked:
            value = float(rng.normal())
            path = f"/v1/campaigns/{short}/events/{event_id}/reward"
            assert client.post(path, json={"value": value}).json()["status"] == "learnt"
            assert await campaign.reward(event_id, value) == "learnt"
            equal += 1
    await campaign.durable.close()
    return equal


def rank_over_http(client, short, asked, arms, layout):
    """One request for each, or one for all of them."""
    given = list(arms)
    if layout == "outer":
        features = arm_features(arms).tolist()
        given = [{"id": a, "features": f} for a, f in zip(arms, features, strict=True)]
    bodies = [{"user": user, "arms": given, "event_id": name} for name, user in asked.items()]
    path = f"/v1/campaigns/{short}/rank"
    if len(bodies) == 1:
        answer = client.post(path, json=bodies[0])
        assert answer.status_code == 200, answer.text
        return [msgspec.json.decode(answer.content, type=RankResponse)]
    answer = client.post(f"{path}/batch", json={"requests": bodies})
    assert answer.status_code == 200, answer.text
    return [
        one.answer for one in msgspec.json.decode(answer.content, type=BatchRankResponse).results
    ]


def compare(theirs, ours):
    assert not theirs.degraded
    assert (theirs.arm, theirs.group) == (ours.arm, ours.group)
    for one, other in zip(by_id(theirs), by_id(ours), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-9)
        assert one.probability == pytest.approx(other.probability, abs=0.02)


def by_id(answer):
    return sorted(answer.ranking, key=lambda place: place.id)
