"""Two servers of secret shares with disks, and the participants, for tests."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
from dealt_words import EPOCH, MAX_ARMS, DealtFolder
from shares_world import split_rows, unit_rows

from vfbandits.core.mask import MaskShare
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.journal.shares.store import Dealt
from vfbandits.participant.share_helper import DurableHelper
from vfbandits.protocol.dealt import terms_digest
from vfbandits.serving.deal_stock import DealStock
from vfbandits.serving.share_server import DurableActive

ARMS = [f"arm {number}" for number in range(MAX_ARMS)]


class DealtWorld(DealtFolder):
    """The servers and participants of a folder with dealt words."""

    @property
    def dealt(self):
        return Dealt(EPOCH, self.deal_name, terms_digest(self.roster))

    def stock(self, **options):
        return DealStock(
            self.folder / "out",
            opener=self.opener("shop"),
            deal=self.deal_name,
            cursor=self.folder / "a" / "cursor",
            **options,
        )

    def helper(self, **options):
        secrets = self.secrets["bank"].server
        return DurableHelper(
            self.folder / "b" / "helper.db", self.terms, secrets, dealt=self.dealt, **options
        )

    def active(self, ask, **options):
        secrets = self.secrets["shop"].server
        options.setdefault("stock", self.stock())
        return DurableActive(self.folder / "a" / "shares.db", secrets, ask=ask, **options)

    def participants(self):
        return [
            SharingParticipant(
                number,
                terms=self.terms,
                secrets=self.secrets[name].participant,
                rotation=MaskShare(np.eye(width)),
            )
            for number, (name, width) in enumerate(self.roster.split.items())
        ]

    @asynccontextmanager
    async def pair(self, *, ask=None, **options):
        """Both servers in one process; ``ask`` may stand between them."""
        helper = self.helper()
        active = None
        try:
            active = self.active(helper.answer if ask is None else ask(helper.answer), **options)
            yield active, helper
        finally:
            if active is not None:
                await active.close()
            await helper.close()


def rows_of(place, terms):
    """The contexts of a slot's decision: the same whenever they are asked for."""
    rng = np.random.default_rng((place.window, place.slot))
    n_rows = rng.integers(2, MAX_ARMS + 1) if terms.layout == "per_arm" else 1
    return split_rows(unit_rows(rng, n_rows, sum(terms.widths)), terms)


def arms_of(place, terms):
    """Ids and features of the arms of a slot's decision, as ``DurableActive.offer`` takes them."""
    rng = np.random.default_rng((place.window, place.slot, 1))
    arms = [ARMS[i] for i in rng.permutation(MAX_ARMS)[: rng.integers(2, MAX_ARMS + 1)]]
    features = rng.uniform(-0.7, 0.7, (len(arms), terms.arm_dim))
    return arms, features if terms.layout == "outer" else None


def reward_of(event):
    """The reward of a decision, by its slot."""
    window, slot = event
    return (7 * window + 3 * slot) % 16 / 16


def shared_blocks(participants, place, terms):
    pairs = zip(participants, rows_of(place, terms), strict=True)
    return [participant.share(place, rows) for participant, rows in pairs]


async def decide(active, participants, ref):
    """One decision, from the slot to the pick of the released arm."""
    async with active.decision() as slot:
        blocks = shared_blocks(participants, slot.place, active.terms)
        offer = None
        if active.terms.layout != "per_arm":
            offer = await active.offer(*arms_of(slot.place, active.terms))
        opened = await slot.decide(await slot.prepare(), blocks, offer)
        return await slot.pick(opened, opened.arm, ref=ref)


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def copy_tree(source, target):
    """A backup: every file of a folder."""
    target.mkdir(exist_ok=True)
    for path in Path(source).iterdir():
        (target / path.name).write_bytes(path.read_bytes())
