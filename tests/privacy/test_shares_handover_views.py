"""What each server sees of a hand-over, word by word, and what old secrets tell afterwards.

As in the test of views of decisions and rewards: each word of a view has a stream word of its own
behind it that the party does not have, in an order without cycles.  So a view is uniform, whatever
the state is, but for one number of each column that leaves.
"""

from collections import Counter
from copy import deepcopy
from dataclasses import fields, replace
from graphlib import TopologicalSorter

import numpy as np
import pytest
from shares_world import Recorder, local_shares, small_terms, split_rows, unit_rows

from vfbandits.core import ring
from vfbandits.core.mask import MaskShare
from vfbandits.core.ring import add, decode
from vfbandits.core.shares.handover.epoch import HandedOver, HandOver, HandoverDeal, plan_handover
from vfbandits.core.shares.handover.leaving import Eliminate, Eliminated, inverse_root, steps_of
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.offer import Offer

ROOT = small_terms(widths=(1, 1, 1), max_arms=2, window=2, decisions=2, ridge=4.0)
COVARIANCE = replace(ROOT, posterior_scale=0.0, reads="widths", beta=0.5)
STAY, LEAVE = ((1, 1, 1), (0, 1, 2)), ((1, 1), (0, 2))
JOIN = ((1, 1, 1, 1), (0, 1, 2, -1))
DISJOINT = replace(ROOT, layout="disjoint")
OUTER = replace(ROOT, layout="outer", arm_dim=2)
OUTER_COVARIANCE = replace(COVARIANCE, layout="outer", arm_dim=1, intercept=True)
CASES = {
    "root, new secrets": (ROOT, STAY),
    "root, one leaves": (ROOT, LEAVE),
    "Lambda⁻¹, new secrets": (COVARIANCE, STAY),
    "Lambda⁻¹, one leaves": (COVARIANCE, LEAVE),
    "disjoint, root, one leaves": (DISJOINT, LEAVE),
    "disjoint, Lambda⁻¹, one leaves": (replace(COVARIANCE, layout="disjoint"), LEAVE),
    "outer, root, one joins": (OUTER, JOIN),
    "outer, root, one leaves": (OUTER, LEAVE),
    "outer, Lambda⁻¹, one leaves": (OUTER_COVARIANCE, LEAVE),
}
EACH_CASE = pytest.mark.parametrize(("terms", "change"), CASES.values(), ids=CASES)
MESSAGES = (HandOver, HandedOver, Eliminate, Eliminated, HandoverDeal)
CUT_FIELDS = {("Eliminate", "shares"), ("Eliminated", "shares")}
# What A opens of a column that leaves, and what is public.
OUTPUTS = {("Eliminated", "opened"), ("HandoverDeal", "plan")}


class World:
    """A state that was learnt, and a hand-over of it under words that can be changed."""

    def __init__(self, monkeypatch, terms, change):
        self.monkeypatch, self.change = monkeypatch, change
        self.sheet = ring.WordSource.sheet
        self.base = learnt(terms)
        entropy = np.random.default_rng(5).bytes
        secrets = [entropy(32) for _ in range(2 * len(change[0]) + 3)]
        self.names = {secrets[1]: "active", secrets[2]: "helper"}
        after, plan = plan_handover(terms, *change)
        self.steps = [*steps_of(plan.in_blocks(after))]

    def run(self, changes=None, *, drawn=None):
        recorder, local = Recorder(), deepcopy(self.base)
        local.on_message = recorder
        local._entropy = np.random.default_rng(5).bytes  # noqa: SLF001

        def changed_sheet(source, name, parts):
            sheet = self.sheet(source, name, parts)
            who = self.names.get(source.to_bytes(), "own")
            if drawn is not None:
                drawn[source.to_bytes(), name] += 1
            taken = []
            for part in parts:
                words = sheet.take(part).copy()
                for (owner, kind, slot, at, index), delta in (changes or {}).items():
                    if (owner, kind, slot, at) == (who, name.kind, name.slot, part):
                        word = words[(slice(None), *index)]
                        value = int(word[0]) + (int(word[1]) << 64) + delta
                        word[:] = [value % 2**64, value // 2**64 % 2**64]
                taken.append(words.tobytes())
            return ring.Sheet(name, bytearray(b"".join(taken)), ring.Layout(parts))

        with self.monkeypatch.context() as patch:
            patch.setattr(ring.WordSource, "sheet", changed_sheet)
            local.hand_over(*self.change, [MaskShare(np.eye(1))] * len(self.change[0]))
        return recorder, local

    def blinding_of(self, label):
        """The stream word behind a word of a view, and by what factor it acts."""
        name, slot, part, index = label
        if name in ("HandOver", "HandedOver"):
            owner = "active" if name == "HandOver" else "helper"
            if part == "seed":
                return ("own", "seed", 0, "seed", index), 1
            return (owner, "handover", 0, f"mask_{part}", index), 1
        if name == "HandoverDeal":
            return (self._dealt(part, index[0])), 1
        owner = "active" if name == "Eliminate" else "helper"
        if part == "scalar":
            return (owner, "handover", slot, "mask_scalar", index), 1
        return (owner, "handover", slot, "rho", index), 2**ring.CUT

    def _dealt(self, part, place):
        """Words that A is dealt stand one after the other, step by step."""
        if part == "opened":
            scales = [step for step in self.steps if step.name == "scale"]
            column, block = divmod(place, scales[0].n_blocks)
            return ("helper", "handover", scales[column].number, "blind", (block,))
        for step in self.steps:
            if place < step.size:
                return ("helper", "handover", step.number, "mask", (place,))
            place -= step.size
        raise AssertionError(part)


def learnt(terms):
    """A federation whose state has masks, with two contexts that wait."""
    local, rng = local_shares(terms, seed=3), np.random.default_rng(1)
    for k in range(6):
        offers = {"disjoint": Offer((0, 1), 2), "outer": Offer(features=np.full((2, 1), 0.5))}
        X = 0.7 * unit_rows(rng, 2 if terms.layout == "per_arm" else 1, sum(terms.widths))
        if terms.arm_dim == 2:
            offers["outer"] = Offer(features=0.5 * np.eye(2))
        opened = local.decide(split_rows(X, terms), offers.get(terms.layout))
        event = local.pick(opened, k % opened.n_arms)
        if k not in (1, 2):
            local.learn(event, 0.5 + k)
    assert local.active.needs_deal
    assert len(local.active.open_contexts()) == 2
    return local


def view_of(recorder, party):
    """Every word of a hand-over that a party received."""
    seen = {}
    for _, receiver, message in recorder.messages:
        if receiver != party or not isinstance(message, MESSAGES):
            continue
        for part in fields(message)[1:]:
            label = type(message).__name__, part.name
            if label in OUTPUTS:
                continue
            numbers = np.asarray(ring.to_integers(getattr(message, part.name)), dtype=object)
            for index in np.ndindex(numbers.shape):
                seen[label[0], message.place.slot, part.name, index] = int(numbers[index])
    return seen


@EACH_CASE
@pytest.mark.parametrize("party", ["active", "helper"])
def test_every_word_of_a_hand_over_has_a_blinding_of_its_own(party, terms, change, monkeypatch):
    world, rng = World(monkeypatch, terms, change), np.random.default_rng(11)
    view = view_of(world.run()[0], party)
    assert len(view) >= (20 if change is LEAVE else 9)
    graph, used = {}, Counter()
    for label in view:
        where, scale = world.blinding_of(label)
        used[where] += 1
        size = 2 ** (128 - ring.CUT) if label[::2] in CUT_FIELDS else 2**128
        delta = int.from_bytes(rng.bytes(16)) % size
        after = view_of(world.run({where: delta * scale})[0], party)
        assert (after[label] - view[label]) % size in (delta, -delta % size), label
        graph[label] = {other for other in view if other != label and after[other] != view[other]}
    assert max(used.values()) == 1
    assert {*TopologicalSorter(graph).static_order()} == {*view}  # a cycle raises


@EACH_CASE
def test_no_word_covers_two_values(terms, change, monkeypatch):
    world, drawn = World(monkeypatch, terms, change), Counter()
    world.run(drawn=drawn)
    handed = {key: count for key, count in drawn.items() if key[1].kind == "handover"}
    # Once by the dealer, once by the server whose words they are; all of the new epoch.
    assert {*handed.values()} == {2}
    assert {source for source, _ in handed} == {*world.names}
    assert {name.epoch for _, name in handed} == {1}
    once = [count for (_, name), count in drawn.items() if name.kind in ("seed", "scale")]
    assert once == [1, 1]


def gaps_of(dealer):
    words = dealer.snapshot().words
    matrix = words["rows"] if "rows" in words else words["S"]
    return matrix, words["theta"][:, 0]


@pytest.mark.parametrize(
    "terms",
    [ROOT, COVARIANCE, replace(COVARIANCE, layout="disjoint"), OUTER],
    ids=["root", "Lambda⁻¹", "disjoint", "outer"],
)
def test_old_secrets_and_one_servers_new_state_tell_nothing(terms, monkeypatch):
    world = World(monkeypatch, terms, STAY)
    old, (_, new) = world.base, world.run()
    gaps_before = gaps_of(old.dealer)
    for name, sign in (("active", 1), ("helper", -1)):
        before, after = (getattr(local, name).held()[:2] for local in (old, new))
        values = [decode(add(*sides)) / 2.0 for sides in held_by_both(old)]
        for side, side_after, gap, value in zip(before, after, gaps_before, values, strict=True):
            shift = gap if sign > 0 else ring.negative(gap)
            # The old dealer could read the old side, and cannot read the new one.
            assert np.allclose(decode(add(side, shift)), value)
            assert (np.abs(decode(add(side_after, shift)) - value) > 1.0).all()
    assert all(np.array_equal(a, b) for a, b in zip(old.reveal(), new.reveal(), strict=True))


def held_by_both(local):
    return zip(local.active.held()[:2], local.helper.held()[:2], strict=True)


@pytest.mark.parametrize("terms", [ROOT, DISJOINT, OUTER], ids=["per_arm", "disjoint", "outer"])
def test_contexts_that_wait_are_shared_afresh(terms, monkeypatch):
    world = World(monkeypatch, terms, STAY)
    old, (_, new) = world.base, world.run()
    for event, share in old.active.open_contexts().items():
        x = decode(add(share, old.helper.open_contexts()[event]))
        ours, theirs = (s.open_contexts()[event] for s in (new.active, new.helper))
        assert np.array_equal(decode(add(ours, theirs)), x)
        for mixed in (add(share, theirs), add(ours, old.helper.open_contexts()[event])):
            assert (np.abs(decode(mixed) - x) > 1.0).all()


@pytest.mark.parametrize(
    ("terms", "columns"),
    [
        (COVARIANCE, [1]),
        (replace(COVARIANCE, layout="disjoint"), [1, 4]),
        (OUTER_COVARIANCE, [4]),
    ],
    ids=["per_arm", "disjoint", "outer"],
)
def test_what_is_opened_of_a_column_is_a_variance_times_a_factor_that_changes(
    terms, columns, monkeypatch
):
    """A opens t²p with t² between 1 and 512; t is another one for each block and secret of B's."""
    world = World(monkeypatch, terms, LEAVE)
    _, S = world.base.reveal()
    p, factors = np.diag(S)[columns] * terms.ridge, []
    for seed in range(12):
        local = deepcopy(world.base)
        helper = local.helper.snapshot()
        header = {**helper.header, "noise": np.random.default_rng(seed).bytes(32).hex()}
        monkeypatch.setattr(local.helper, "snapshot", lambda h=header, w=helper.words: Kept(h, w))
        opened = []
        monkeypatch.setattr(
            "vfbandits.core.shares.handover.passage.inverse_root",
            lambda *both, into=opened: into.append(both) or inverse_root(*both),
        )
        local.hand_over(*LEAVE, [MaskShare(np.eye(1))] * 2)
        assert len(opened) == terms.arm_width
        factors += (1.0 / decode(inverse_root(*opened[0])) ** 2 / p).tolist()
    assert min(factors) >= 1.0 - 1e-6
    assert max(factors) <= 512.0
    assert max(factors) / min(factors) > 10.0
    assert len({*factors}) == len(factors)


def test_statistics_of_views_do_not_depend_on_what_was_learnt():
    """Bits of all words are balanced, for a state that has learnt nothing and for one that has."""
    for n in (0, 6):
        ones = total = 0
        for seed in range(30):
            local = local_shares(ROOT, seed=seed) if n == 0 else deepcopy(learnt(ROOT))
            recorder = Recorder()
            local.on_message = recorder
            local._entropy = np.random.default_rng((seed, n)).bytes  # noqa: SLF001
            local.hand_over(*STAY, [MaskShare(np.eye(1))] * 3)
            for message in recorder.view("helper") + recorder.view("active", "helper"):
                if isinstance(message, (HandOver, HandedOver)):
                    for words in (message.state, message.theta):
                        ones += int(np.bitwise_count(words).sum())
                        total += 64 * words.size
        assert total > 0
        assert abs(ones - total / 2) < 5 * np.sqrt(total) / 2
