"""A campaign of any layout whose contexts, rewards and truth are known, served in this process."""

import numpy as np
from campaign_world import Clock

import vfbandits as vfb
from vfbandits.campaign.answer import decode_answer
from vfbandits.campaign.query import Contexts, Query
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.evaluate.export import export_log
from vfbandits.evaluate.log import LoggedBandit
from vfbandits.journal.memory import MemoryDisk, MemoryJournal
from vfbandits.serving.durable import DurableBandit
from vfbandits.serving.leader import Leader

DIM, ARM_DIM = 4, 2
ARMS = ("ale", "beer", "cider", "mead")
LAYOUTS = ("per_arm", "outer", "disjoint")
NOISE = 0.3


class KnownSource:
    """Contexts that belong to a user; ``turn`` is the mask in force."""

    max_rows = 1_000
    keep = None

    def __init__(self, layout, seed):
        rng = np.random.default_rng(seed)
        self.layout, self.seed = layout, seed
        self.turn = np.eye(DIM)
        self.features = {arm: rng.standard_normal(ARM_DIM) for arm in ARMS}
        self.theta = rng.standard_normal((len(ARMS), DIM)) / 2.0
        self.cross = rng.standard_normal((DIM + 1, ARM_DIM + 1)) / 2.0

    def n_rows(self, query):
        return len(query.arms)

    def plain(self, user, arms):
        """(n_arms, DIM) in layout "per_arm", otherwise (1, DIM)."""
        rng = np.random.default_rng([self.seed, int(user)])
        rows = rng.standard_normal((len(ARMS), DIM))
        if self.layout == "per_arm":
            return rows[[ARMS.index(arm) for arm in arms]]
        return rows[:1]

    def of_arms(self, arms):
        return np.array([self.features[arm] for arm in arms]) if self.layout == "outer" else None

    def means(self, user, arms):
        """What each arm gives on average."""
        rows = self.plain(user, arms)
        if self.layout == "per_arm":
            return rows @ self.theta[0]
        if self.layout == "disjoint":
            return self.theta[[ARMS.index(arm) for arm in arms]] @ rows[0]
        with_one = np.hstack([np.ones((len(arms), 1)), self.of_arms(arms)])
        return with_one @ self.cross.T @ np.concatenate([[1.0], rows[0]])

    async def contexts(self, queries, *, campaign):
        return [
            Contexts(
                self.plain(one.user, one.arms) @ self.turn.T,
                ("shop",),
                arm_features=self.of_arms(one.arms),
            )
            for one in queries
        ]

    def release(self):
        pass


class LoggedCampaign:
    """Serves events one after the other; what it saw is kept, to compare with the journal."""

    def __init__(self, layout, *, seed=0, policy=None, floor=0.5, journal=None, **settings):
        self.layout, self.rng = layout, np.random.default_rng([seed, 1])
        self.source, self.clock = KnownSource(layout, seed), Clock()
        self.policy, self.floor = policy or vfb.LinUCB(beta=0.5), floor
        self.settings = {"log_contexts": "all", **settings}
        self.disk = MemoryDisk()
        self.open_journal = journal or (lambda: MemoryJournal(self.disk))
        self.seen = []  # user, arms on offer, the one shown, its reward and probability
        self.n_events = 0

    def make(self):
        return vfb.Bandit(
            self.policy,
            dim=DIM,
            layout=self.layout,
            arm_dim=ARM_DIM if self.layout == "outer" else None,
            intercept=self.layout != "per_arm",
            floor=self.floor,
            seed=1,
        )

    def open(self):
        durable = DurableBandit.open(self.open_journal(), self.make, epoch=1, clock=self.clock)
        settings = CampaignSettings(self.policy, self.floor, **self.settings)
        return Leader("default", durable, self.source, settings, clock=self.clock)

    async def serve(self, leader, n_events, *, arms=lambda number: ARMS):
        for _ in range(n_events):
            number = self.n_events
            self.n_events += 1
            user, offer = str(number), tuple(arms(number))
            answer = decode_answer(await leader.rank(Query(user, offer, f"e{number}")))
            mean = self.source.means(user, offer)[offer.index(answer.arm)]
            reward = float(mean + NOISE * self.rng.standard_normal())
            await leader.reward(f"e{number}", reward)
            likely = {one.id: one.probability for one in answer.ranking}
            self.seen.append((user, offer, answer.arm, reward, likely[answer.arm]))

    async def change_masks(self, leader):
        turn = np.linalg.qr(self.rng.standard_normal((DIM, DIM)))[0]
        await leader.durable.change_masks(turn, epoch=leader.durable.epoch + 1)
        self.source.turn = turn @ self.source.turn

    def export(self, path, **more):
        journal = self.open_journal()
        try:
            return export_log(journal, path, **more)
        finally:
            journal.close()

    def plain_log(self):
        """The log as one would have written it beside the campaign, with plain contexts."""
        n, is_per_arm = len(self.seen), self.layout == "per_arm"
        contexts = np.zeros((n, len(ARMS), DIM) if is_per_arm else (n, DIM))
        offered = np.zeros((n, len(ARMS)), dtype=bool)
        for number, (user, offer, *_) in enumerate(self.seen):
            places = [ARMS.index(arm) for arm in offer]
            offered[number, places] = True
            rows = self.source.plain(user, offer)
            if is_per_arm:
                contexts[number, places] = rows
            else:
                contexts[number] = rows[0]
        return LoggedBandit.of(
            contexts,
            np.array([ARMS.index(one[2]) for one in self.seen]),
            rewards=[one[3] for one in self.seen],
            probabilities=[one[4] for one in self.seen],
            arms=ARMS,
            layout=self.layout,
            arm_features=self.source.of_arms(ARMS),
            offered=None if offered.all() else offered,
        )
