"""Two servers of secret shares with disks, and the participants, for tests."""

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from dealt_words import EPOCH, MAX_ARMS, NAMES, SEALING_KEYS, DealtFolder, shares_roster
from shares_world import split_rows, unit_rows

from vfbandits.core.mask import MaskShare
from vfbandits.core.ring import add, decode
from vfbandits.core.shares.handover.passage import NextEpoch
from vfbandits.core.shares.participant import SharingParticipant
from vfbandits.journal.shares.store import Dealt, epoch_of
from vfbandits.participant.dealing import deal_windows
from vfbandits.participant.share_helper import DurableHelper
from vfbandits.protocol.dealt import (
    DealOpener,
    first_window,
    next_terms,
    secrets_name,
    terms_digest,
)
from vfbandits.serving.deal_stock import DealStock
from vfbandits.serving.share_server import DurableActive, Successor

NEXT, AFTER = 2, "after.json"
STAY = ("shop", "bank")
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


class TwoEpochs(DealtWorld):
    """Words of two epochs; in the second, news has left, has come or is still there."""

    def __init__(self, folder, *, after=NAMES, **options):
        super().__init__(folder, windows=4, **options)
        kept = folder / AFTER
        after = tuple(json.loads(kept.read_text())) if kept.exists() else after
        kept.write_text(json.dumps(after))
        members = [one for one in shares_roster().members if one.name in after]
        self.after = replace(self.roster, members=tuple(members), number=2)
        if not (folder / "out" / secrets_name("shop", NEXT)).exists():
            flags = {"key_dir": folder / "pmg", "epoch": NEXT, "out": folder / "out"}
            deal_windows(self.after, windows=4, before=self.roster, **flags)
        self.after_secrets = {
            name: self._next_opener(name).secrets(self._file(name)) for name in after
        }

    def _next_opener(self, name):
        return DealOpener(self.after, NEXT, name, SEALING_KEYS[name])

    def _file(self, name):
        return (self.folder / "out" / secrets_name(name, NEXT)).read_bytes()

    def next_stock(self):
        return DealStock(
            self.folder / "out",
            opener=self._next_opener("shop"),
            deal=self.after_secrets["shop"].deal,
            cursor=self.folder / "a" / "cursor-2",
        )

    def plan(self, terms):
        return next_terms(terms, self.roster, self.after)

    def for_helper(self, epoch, terms):
        assert epoch == NEXT
        secrets = self.after_secrets["bank"]
        return (
            NextEpoch(*self.plan(terms), secrets.server),
            Dealt(NEXT, secrets.deal, terms_digest(self.after)),
        )

    def helper(self, **options):
        path = self.folder / "b" / "helper.db"
        if epoch_of(path) == NEXT:
            dealt, secrets = self.for_helper(NEXT, self.terms)[1], self.after_secrets["bank"]
            terms = self.after.share_terms
        else:
            dealt, secrets, terms = self.dealt, self.secrets["bank"], self.terms
        return DurableHelper(
            path, terms, secrets.server, dealt=dealt, successor=self.for_helper, **options
        )

    def active(self, ask, *, is_moving=False, **options):
        path = self.folder / "a" / "shares.db"
        if epoch_of(path) == NEXT:
            secrets = self.after_secrets["shop"].server
            return DurableActive(path, secrets, stock=self.next_stock(), ask=ask)
        active = super().active(ask, **options)
        if is_moving:
            active.move_on(self.successor())
        return active

    def successor(self):
        return Successor(self.after_secrets["shop"].server, self.next_stock(), self.plan)

    def next_participants(self, terms):
        return [
            SharingParticipant(
                number,
                terms=terms,
                secrets=self.after_secrets[name].participant,
                rotation=MaskShare(np.eye(width)),
            )
            for number, (name, width) in enumerate(self.after.split.items())
        ]


async def before_it(world):
    """Some rounds of the first epoch, of which two wait for a reward; then the servers stop."""
    async with world.pair() as (active, _):
        await active.start()
        participants = world.participants()
        for k in range(8):
            event = await decide(active, participants, f"e{k}")
            if k not in (2, 7):
                await active.learn(f"e{k}", reward_of(event))


async def go_on(active, world):
    """Rewards that waited, and decisions in the next epoch."""
    for ref in ("e2", "e7"):
        assert active.status(ref) == "waits"
        assert await active.learn(ref, 0.25)
    participants = world.next_participants(active.terms)
    for k in range(8, 14):
        event = await decide(active, participants, f"e{k}")
        assert event[0] >= first_window(NEXT)
        await active.learn(f"e{k}", reward_of(event))


def n_messages_of(world):
    """Of a hand-over: one, and three or four for each column of news, and the last."""
    if "news" not in world.roster.split.names or "news" in world.after.split.names:
        return 1
    return 2 + (4 if world.terms.is_root else 3) * world.terms.arm_width


def revealed(active, helper):
    """The matrix and theta that both sides add up to, in the columns of those that stay."""
    sides = zip(active.held()[:2], helper.held()[:2], strict=True)
    return [decode(add(*side)) / 2.0 for side in sides]


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def copy_tree(source, target):
    """A backup: every file of a folder."""
    target.mkdir(exist_ok=True)
    for path in Path(source).iterdir():
        (target / path.name).write_bytes(path.read_bytes())
