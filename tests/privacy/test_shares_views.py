"""What each party of a federation on secret shares sees, word by word.

Equal arms say nothing about views, so views are looked at themselves.  A word of a view is
*blinded* by a stream word that the party does not have.  Changing that word by δ must change the
view's word by δ, and the words that depend on it further must come in an order without cycles.
Then the map from stream words to view words is one to one, so that uniform stream words make a
uniform view: it can be simulated without a context, an arm, a reward or a mean.
"""

import pickle
from collections import Counter, defaultdict
from dataclasses import fields, replace
from graphlib import TopologicalSorter
from itertools import combinations

import numpy as np
import pytest
from shares_world import Recorder, local_shares, small_terms, split_rows

from vfbandits.core import ring
from vfbandits.core.ring import CUT
from vfbandits.core.shares import messages as m
from vfbandits.core.shares.comparison import UNIT_BITS
from vfbandits.core.shares.covariance.form import MEAN_BITS
from vfbandits.core.shares.offer import Offer
from vfbandits.core.shares.sides import CLIP, PRODUCT_BITS

# With a large ridge q is below 1/2, and a reward's table is small.
TERMS = small_terms(widths=(1, 1), max_arms=2, window=2, decisions=2, ridge=4.0)
CONTEXTS = np.array([[[0.3, -0.4], [0.5, 0.1]], [[-0.2, 0.6], [0.7, 0.2]]])
REWARDS = (1.0, 0.25)
ARMS = (0, 1)


def covariance_terms(reads, release):
    beta = 0.5 if reads == "widths" else 0.0
    return replace(TERMS, posterior_scale=0.0, reads=reads, release=release, beta=beta)


def layout_terms(layout, reads="noise", release="arm"):
    terms = TERMS if reads == "noise" else covariance_terms(reads, release)
    return replace(terms, layout=layout, arm_dim=2 if layout == "outer" else 0, intercept=True)


FORMS = {
    "LinTS, arm": TERMS,
    "root without noise": replace(TERMS, posterior_scale=0.0),
    "LinGreedy, arm": covariance_terms("means", "arm"),
    "LinUCB, arm": covariance_terms("widths", "arm"),
    "LinGreedy, statistics": covariance_terms("means", "statistics"),
    "LinUCB, statistics": covariance_terms("widths", "statistics"),
    "LinTS, statistics": covariance_terms("covariance", "statistics"),
    "disjoint, LinTS, arm": layout_terms("disjoint"),
    "disjoint, LinGreedy, arm": layout_terms("disjoint", "means"),
    "disjoint, LinUCB, statistics": layout_terms("disjoint", "widths", "statistics"),
    "outer, LinTS, arm": layout_terms("outer"),
    "outer, LinGreedy, arm": layout_terms("outer", "means"),
    "outer, LinUCB, arm": layout_terms("outer", "widths"),
    "outer, LinUCB, statistics": layout_terms("outer", "covariance", "statistics"),
}
HIDDEN = (
    "LinTS, arm",
    "LinGreedy, arm",
    "LinUCB, arm",
    "LinTS, statistics",
    "disjoint, LinTS, arm",
    "outer, LinGreedy, arm",
)
HIDDEN_FORMS = [pytest.param(FORMS[form], id=form) for form in HIDDEN] + [
    pytest.param(FORMS["root without noise"], id="root without noise", marks=pytest.mark.long)
]
FEATURES = np.array([[0.6, -0.3], [0.2, 0.7]])
EACH_FORM = pytest.mark.parametrize("terms", FORMS.values(), ids=FORMS)

# The word of the same slot that blinds each field; other fields are outputs, or public.
BLINDED_BY_HELPER = {
    "Contribution": {"contexts": "contexts"},
    "DecisionDeal": {
        "projections": "mask_projections",
        "direction": "mask_direction",
        "rows": "blind_rows",
        "scores": "blind_scores",
        "context": "blind_context",
        "tables": "tables",
        "tops": "flips",
        "lift": "mask_lift",
    },
    "RewardDeal": {
        "overlaps": "mask_overlaps",
        "whitened": "mask_whitened",
        "projections": "mask_projections",
        "difference": "mask_difference",
        "coefficients": "coefficients",
        "scalars": "mask_scalars",
        "gain": "mask_gain",
        "row": "mask_row",
        "residual": "mask_residual",
    },
    "FoldDeal": {"root": "mask_root", "theta": "mask_theta"},
    "Lifted": {"rows": "rho_lift"},
    "Asked": {"noise": "mask_noise", "projections": "rho_projections"},
    "Sampled": {"direction": "rho_direction", "scores": "rho_scores"},
    "Recalled": {"context": "mask_context", "overlaps": "rho_overlaps"},
    "Whitened": {
        "whitened": "rho_whitened",
        "projections": "rho_projections",
        "square": "rho_square",
        "difference": "rho_difference",
    },
    "Learnt": {
        "scalars": "rho_scalars",
        "gain": "rho_gain",
        "row": "rho_row",
        "residual": "rho_residual",
    },
    "Folded": {"root": "rho_root", "theta": "rho_theta"},
    "ScoreDeal": {
        "products": "mask_products",
        "rows": "blind_rows",
        "forms": "blind_forms",
        "means": "blind_means",
        "context": "blind_context",
        "tables": "tables",
        "tops": "flips",
        "lift": "mask_lift",
    },
    "ScaleDeal": {
        "overlaps": "mask_overlaps",
        "gain": "mask_gain",
        "coefficients": "coefficients",
        "scale": "mask_scale",
        "row": "mask_row",
    },
    "ShrinkDeal": {"inverse": "mask_inverse", "theta": "mask_theta"},
    "Scored": {"products": "rho_products", "scores": "rho_scores"},
    "Projected": {"gain": "rho_gain", "square": "rho_square", "scale": "rho_scale"},
    "Scaled": {"row": "rho_row"},
    "Shrunk": {"inverse": "rho_inverse", "theta": "rho_theta"},
}
BLINDED_BY_ACTIVE = {
    "Ask": {"noise": "mask_noise"},
    "Lift": {"contexts": "contexts", "arms": "mask_arms", "products": "rho_lift"},
    "Sample": {
        "contexts": "contexts",
        "projections": "rho_projections",
        "direction": "rho_direction",
    },
    "Compare": {"numbers": "mask_ranks"},
    "Pick": {"choice": "mask_choice"},
    "Recall": {"context": "mask_context"},
    "Whiten": {"overlaps": "rho_overlaps", "whitened": "rho_whitened"},
    "Learn": {
        "projections": "rho_projections",
        "square": "rho_square",
        "difference": "rho_difference",
        "scalars": "rho_scalars",
        "gain": "rho_gain",
    },
    "Settle": {"row": "rho_row", "residual": "rho_residual"},
    "Fold": {"root": "rho_root", "theta": "rho_theta"},
    "Score": {"contexts": "contexts", "products": "rho_products"},
    "Project": {"overlaps": "rho_overlaps", "gain": "rho_gain", "square": "rho_square"},
    "Scale": {"scale": "rho_scale", "row": "rho_row"},
    "Shrink": {"inverse": "rho_inverse", "theta": "rho_theta"},
}
# What a party learns, and what is public: released statistics, the arms that tie for the best,
# results of comparisons in an order that the party does not know, and counts.  Look-ups are seen as
# what they open to.
OUTPUTS = {
    "active": {
        ("Contribution", "participant"),
        ("Candidates", "candidates"),
        ("Compared", "lookups"),
        ("Scored", "forms"),
        ("Scored", "means"),
    },
    "helper": {
        ("Ask", "n_rows"),
        ("Score", "n_rows"),
        ("Sample", "n_arms"),
        ("Score", "n_arms"),
        ("Compare", "live"),
        ("Compare", "lookups"),
        ("Results", "results"),
        ("Recall", "window"),
        ("Recall", "slot"),
    },
}
PUBLIC = {
    ("Ask", "n_rows"),
    ("Score", "n_rows"),
    ("Sample", "n_arms"),
    ("Score", "n_arms"),
    ("Compare", "live"),
    ("Recall", "window"),
    ("Recall", "slot"),
}
KINDS = {
    **dict.fromkeys(("RewardDeal", "Recalled", "Whitened", "Learnt"), "learn"),
    **dict.fromkeys(("Recall", "Whiten", "Learn", "Settle"), "learn"),
    **dict.fromkeys(("FoldDeal", "Folded", "Fold"), "fold"),
    **dict.fromkeys(("ScaleDeal", "Project", "Projected", "Scale", "Scaled"), "learn"),
    **dict.fromkeys(("ShrinkDeal", "Shrink", "Shrunk"), "fold"),
}


def fields_of(form):
    return {
        (kind.__name__, part.name)
        for kind in m.Message.__subclasses__()
        for part in fields(kind)
        if part.type == form
    }


CUT_FIELDS, SHORT_FIELDS = fields_of(m.Cut), fields_of(m.Short)
CLIPPED_FIELDS, NARROW_FIELDS = fields_of(m.Clipped), fields_of(m.Narrow)


def decide(local, X, features=FEATURES):
    """A decision on two rows; in layouts with one row for all arms, on the first of them."""
    layout = local.terms.layout
    if layout == "per_arm":
        return local.decide(split_rows(X, TERMS))
    offer = Offer((1, 0), 2) if layout == "disjoint" else Offer(features=features)
    return local.decide(split_rows(X[:1], TERMS), offer)


class World:
    """Two decisions and two rewards, which fill the second window; its words can be changed."""

    def __init__(self, monkeypatch, *, seed=0, terms=TERMS, share_one_blinding=False):
        self.monkeypatch = monkeypatch
        self.share_one_blinding = share_one_blinding
        self.sheet = ring.WordSource.sheet
        self.base = local_shares(terms, seed=seed)
        for X, reward in zip(CONTEXTS[::-1], REWARDS, strict=True):  # then the state has masks
            self.base.learn(self.base.pick(decide(self.base, X), 0), reward)
        self._copy = pickle.dumps(self.base)  # to read it takes a quarter of the time of a deepcopy

    def changed(self, words, changes, owner, name, part):
        """Words of a part, with the changes that belong to it."""
        words = words.copy()
        for index, change, mode in changes.get((owner, name.kind, name.slot, part), ()):
            word = words[(slice(None), *index)]
            word[:] = shifted(word, change, mode)
        if part in ("blind_rows", "blind_forms", "blind_means") and self.share_one_blinding:
            words[:, 1:] = words[:, :1]
        return words

    def run(
        self,
        changes=None,
        *,
        contexts=CONTEXTS,
        rewards=REWARDS,
        arms=ARMS,
        other_order=(),
        features=FEATURES,
    ):
        recorder = Recorder()
        local = pickle.loads(self._copy)  # noqa: S301  (own bytes)
        local.on_message = recorder
        names = {id(source): name for name, source in sources(local).items()}
        changes_of = defaultdict(list)
        for (*place, index), (change, mode) in (changes or {}).items():
            changes_of[tuple(place)].append((index, change, mode))

        def changed_sheet(source, name, parts):
            sheet = self.sheet(source, name, parts)
            who = names.get(id(source))
            taken = []
            for part in parts:
                words = self.changed(sheet.take(part), changes_of, who, name, part)
                if part == "order" and name.slot in other_order:
                    words = words[:, ::-1]
                taken.append(words.tobytes())
            return ring.Sheet(name, bytearray(b"".join(taken)), ring.Layout(parts))

        def changed_part(source, name, layout, part):
            return changed_sheet(source, name, layout).take(part)

        with self.monkeypatch.context() as patch:
            patch.setattr(ring.WordSource, "sheet", changed_sheet)
            patch.setattr(ring.WordSource, "part", changed_part)
            released = []
            for X, reward, arm in zip(contexts, rewards, arms, strict=True):
                opened = decide(local, X, features)
                released.append(opened.arm)
                local.learn(local.pick(opened, arm), reward)
        return recorder, released


def sources(local):
    active, helper = local.dealer.active_secrets(), local.dealer.helper_secrets()
    named = {"active": active.own, "helper": helper.own, "dealer": local.dealer._own}  # noqa: SLF001
    for side, secrets in (("active", active), ("helper", helper)):
        named |= {f"{side} input {j}": source for j, source in enumerate(secrets.inputs)}
    return named


def shifted(words, change, mode):
    value = int(words[0]) + (int(words[1]) << 64)
    value = value ^ change if mode == "xor" else value + change
    return [value % 2**64, value // 2**64 % 2**64]


def view_of(recorder, party):
    """Every word and bit that a party received, by message, slot, field and place."""
    seen = {}
    lookups = {}
    for _, receiver, message in recorder.messages:
        name, slot = type(message).__name__, message.place.slot
        if name in ("Compare", "Compared"):
            lookups[name, slot] = message.lookups
        if receiver != party:
            continue
        # Blocks of all participants are columns of one matrix, each of width 1.
        column = message.participant if name == "Contribution" else 0
        for part in fields(message)[1:]:
            value = np.asarray(getattr(message, part.name))
            wide = value.dtype == np.uint64 and value.shape[:1] == (2,) and part.name != "numbers"
            numbers = np.asarray(ring.to_integers(value) if wide else value, dtype=object)
            for index in np.ndindex(numbers.shape):
                at = (index[0], column) if name == "Contribution" and index else index
                seen[name, slot, part.name, at] = int(numbers[index])
    for slot in {slot for _, slot in lookups}:
        opened = lookups["Compare", slot] ^ lookups["Compared", slot]
        for pair, bit in np.ndindex(len(opened), 13):
            seen["Opened", slot, "lookups", (pair, bit)] = int(opened[pair]) >> bit & 1
    return seen


def blinding_of(label, party, terms):
    """The stream word behind a word of a view: where it is, how it acts, and by what factor."""
    name, slot, part, index = label
    if name == "Opened":
        return ("dealer", "dealer", slot, "bits", index[:1]), "xor", 1 << index[1]
    table, owner = {
        "active": (BLINDED_BY_HELPER, "helper"),
        "helper": (BLINDED_BY_ACTIVE, "active"),
    }[party]
    word = table.get(name, {}).get(part)
    if word is None:
        return None
    if part == "contexts":
        source, word = f"{owner} input {index[1]}", f"slot {slot}"  # of the window's sheet
        return (source, "input", 0, word, (index[0], 0)), "add", 1
    where = (owner, KINDS.get(name, "decide"), slot, word, index)
    if part in ("tables", "tops"):
        return where, "xor", 1
    dropped = {**dict.fromkeys(CUT_FIELDS | SHORT_FIELDS, CUT), **dict.fromkeys(NARROW_FIELDS, 45)}
    dropped |= dict.fromkeys(CLIPPED_FIELDS, CLIP)
    dropped["Lifted", "rows"] = 45
    dropped["Compare", "numbers"] = (PRODUCT_BITS if terms.is_root else MEAN_BITS) - UNIT_BITS
    return where, "add", 2 ** dropped.get((name, part), 0)


def size_of(label):
    name, _, part, _ = label
    if name == "Opened" or part == "tops":
        return 2
    if (name, part) in SHORT_FIELDS:
        return 2**64
    if (name, part) == ("Lifted", "rows"):
        return 2**83
    if (name, part) in NARROW_FIELDS | CLIPPED_FIELDS:
        return 2**80 if (name, part) in NARROW_FIELDS else 2 ** (128 - CLIP)
    return (
        2**43 if part == "numbers" else 2 ** (128 - CUT) if (name, part) in CUT_FIELDS else 2**128
    )


def words_of(view, party):
    return [x for x in view if x[0] == "Opened" or (x[0], x[2]) not in OUTPUTS[party]]


def faults(world, party, rng, *, field=None):
    """Words of a view without a blinding of their own; and, if there is none, their order.

    With ``field``, a message and a field of it, only those words are looked at.
    """
    recorder, _ = world.run()
    view = view_of(recorder, party)
    graph, used, found = {}, Counter(), []
    for label in words_of(view, party):
        if field is not None and (label[0], label[2]) != field:
            continue
        blinding = blinding_of(label, party, world.base.terms)
        if blinding is None:
            found.append(label)
            continue
        where, mode, scale = blinding
        used[where, scale if mode == "xor" and label[0] == "Opened" else 0] += 1
        size = size_of(label)
        change = 1 if size == 2 else int.from_bytes(rng.bytes(16)) % size
        after = view_of(world.run({where: (change * scale, mode)})[0], party)
        is_own = (
            after[label] == view[label] ^ change
            if mode == "xor"
            else (after[label] - view[label]) % size in (change, -change % size)
        )
        if not is_own:
            found.append(label)
        graph[label] = {x for x in view if x != label and after.get(x) != view[x]}
    found += [where for where, count in used.items() if count > 1]
    if found:
        return found, []
    # ``graph`` has what comes after each word; a cycle raises.
    order = list(TopologicalSorter(graph).static_order())[::-1]
    return [], [label for label in order if label in graph]


@pytest.fixture
def rng():
    return np.random.default_rng(11)


@EACH_FORM
@pytest.mark.parametrize("party", ["active", "helper"])
def test_every_word_of_a_view_has_a_blinding_of_its_own(party, terms, rng, monkeypatch):
    found, order = faults(World(monkeypatch, terms=terms), party, rng)
    assert not found
    assert len(order) > (45 if party == "helper" and terms.release == "statistics" else 65)


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ("LinTS, arm", ("DecisionDeal", "rows")),
        ("LinGreedy, arm", ("ScoreDeal", "rows")),
        ("LinUCB, arm", ("ScoreDeal", "means")),
        ("LinUCB, statistics", ("ScoreDeal", "forms")),
    ],
)
def test_two_alternatives_under_one_blinding_are_found(form, field, rng, monkeypatch):
    """The mistake of a prototype, with which every arm was right: one word blinds several terms."""
    world = World(monkeypatch, terms=FORMS[form], share_one_blinding=True)
    assert world.run()[1] == World(monkeypatch, terms=FORMS[form]).run()[1]
    found, _ = faults(world, "active", rng, field=field)
    kind, part = field
    assert {label[:3] for label in found} == {(kind, 0, part), (kind, 1, part)}


@pytest.mark.parametrize("terms", HIDDEN_FORMS)
@pytest.mark.parametrize(
    ("party", "flip"),
    [
        ("helper", {"arms": (1, 0)}),
        ("helper", {"rewards": (-3.0, 0.75)}),
        ("helper", {"contexts": CONTEXTS * 0.9}),  # widths and means change with it
        ("helper", {"contexts": CONTEXTS * 0.9, "arms": (1, 1), "rewards": (0.0, 0.0)}),
        ("active", {"contexts": CONTEXTS * [1.0, 0.97]}),  # of the other participant
    ],
    ids=["arm", "reward", "context", "all", "other block"],
)
def test_with_other_masks_a_server_would_have_seen_the_same(party, flip, terms, monkeypatch):
    """For other secrets there are masks of the other server with which a view is bit-identical.

    A knows arms and rewards.  So with other contexts, that is with other widths and means, its view
    can be the same as long as the same arms are released, and no statistics.
    """
    if party == "active" and (terms.release == "statistics" or terms.reads == "widths"):
        pytest.skip("the active participant learns statistics of the contexts")
    world = World(monkeypatch, terms=terms)
    recorder, released = world.run()
    wanted = view_of(recorder, party)
    changes = {}
    others = world.run(**flip)[1]
    # Where the other arm wins, B sees the same result if A's secret order is the other one.
    swapped = [slot for slot in (0, 1) if released[slot] != others[slot]]
    assert party == "helper" or not swapped
    flip = {**flip, "other_order": swapped}
    seen = view_of(world.run(**flip)[0], party)
    assert seen.keys() == wanted.keys()
    differ = {(x[0], x[2]) for x in wanted if seen[x] != wanted[x]}
    assert differ
    assert not differ & PUBLIC
    # Again where a change has moved a word before it: of a single bit not every change is seen, and
    # so the order may lack a dependency.
    order = in_order(world, party, wanted)
    for label in order + order:
        if seen[label] == wanted[label]:
            continue
        where, mode, scale = blinding_of(label, party, terms)
        already = changes.get(where, (0, mode))[0]
        if mode == "xor":
            step = (wanted[label] ^ seen[label]) * scale
            changes[where] = already ^ step, mode
        else:
            step = (wanted[label] - seen[label]) * scale
            changes[where] = already + step, mode
        seen = view_of(world.run(changes, **flip)[0], party)
        if seen[label] != wanted[label]:  # some words are blinded by −ρ
            changes[where] = already - step, mode
            seen = view_of(world.run(changes, **flip)[0], party)
    assert seen == wanted


def in_order(world, party, view):
    """Words of a view, each before those that depend on its blinding."""
    if party == "helper":
        return words_of(view, party)  # the order of the messages
    found, order = faults(world, party, np.random.default_rng(0))
    assert not found
    return order


def test_the_dealer_and_participants_receive_nothing(monkeypatch):
    recorder, _ = World(monkeypatch).run()
    assert {receiver for _, receiver, _ in recorder.messages} == {"active", "helper"}


@EACH_FORM
def test_no_stream_word_is_drawn_for_two_purposes(terms, monkeypatch):
    """Each holder of a secret draws a sheet once, and no two sheets have a word in common."""
    users, draws = {}, Counter()
    stream, sheet = ring.WordSource._stream, ring.WordSource.sheet  # noqa: SLF001

    def watched_stream(source, name, first, n_words):
        words = stream(source, name, first, n_words)
        for place in range(n_words):
            word = bytes(words[16 * place : 16 * place + 16])
            users.setdefault(word, set()).add((id(source), name, first + place))
        return words

    def watched_sheet(source, name, parts):
        draws[id(source), name] += 1
        return sheet(source, name, parts)

    monkeypatch.setattr(ring.WordSource, "_stream", watched_stream)
    monkeypatch.setattr(ring.WordSource, "sheet", watched_sheet)
    recorder = Recorder()
    local = local_shares(terms, on_message=recorder)
    for X, reward in zip(np.tile(CONTEXTS, (4, 1, 1)), REWARDS * 4, strict=True):
        opened = decide(local, X)
        local.learn(local.pick(opened, max(opened.arm, 0)), reward)
    assert all(len(each) == 1 for each in users.values())
    named = {id(source): name for name, source in sources(local).items()}
    holders = {"active": 2, "helper": 2, "dealer": 1}  # the dealer, and the server itself
    for (source, name), count in draws.items():
        who = named.get(source, "noise of one server")
        # A block's masks are drawn by the dealer and the server, and in parts by the participant.
        assert count <= (2 if "input" in who else holders.get(who, 1)), (who, name)


# Simulators.  They are given what a party may know, and make up the rest.


def simulated(message, party, rng):
    """A message of the same shape whose words are uniform; outputs and public fields stay."""
    values = {}
    for part in fields(message)[1:]:
        value = getattr(message, part.name)
        key = (type(message).__name__, part.name)
        if not isinstance(value, np.ndarray):
            continue
        if part.name == "lookups":
            values[part.name] = rng.integers(0, 2**13, value.shape, dtype=np.uint16)
        elif key in OUTPUTS[party]:
            continue
        elif value.dtype == np.uint8:
            values[part.name] = rng.integers(0, 2, value.shape, dtype=np.uint8)
        else:
            values[part.name] = rng.integers(0, 2**64, value.shape, dtype=np.uint64)
            if key in CUT_FIELDS:
                values[part.name][1] >>= np.uint64(CUT)
            if key in NARROW_FIELDS:
                values[part.name][1] >>= np.uint64(48)
            if key in CLIPPED_FIELDS:
                values[part.name][1] >>= np.uint64(45 if key[0] == "Lifted" else CLIP)
            if part.name == "numbers":
                values[part.name] >>= np.uint64(21)
    return replace(message, **values)


def top_bytes(view, party):
    """The eight highest bits of each word of a view that has so many."""
    labels = [x for x in words_of(view, party) if size_of(x) > 2]
    return np.array([view[x] * 256 // size_of(x) for x in labels])


N_VIEWS = 128


def refuse_unless_uniform(samples):
    """Byte frequencies, the mean of each word, and each pair of words; six deviations at most."""
    n, n_words = samples.shape
    counts = np.bincount(samples.ravel(), minlength=256)
    expected = samples.size / 256
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 255) < 6 * np.sqrt(2 * 255)
    means = samples.mean(axis=0)
    assert np.abs(means - 127.5).max() < 6 * 74 / np.sqrt(n)
    signs = np.where(samples >= 128, 1, -1)
    for one, other in combinations(range(n_words), 2):
        assert abs(int(signs[:, one] @ signs[:, other])) < 6 * np.sqrt(n)


@pytest.mark.parametrize(
    "form", ["LinTS, arm", "LinUCB, arm", "LinTS, statistics", "outer, LinTS, arm"]
)
def test_real_and_simulated_views_pass_the_same_checks(form, monkeypatch):
    rng = np.random.default_rng(5)
    views = {(party, kind): [] for party in OUTPUTS for kind in ("real", "simulated")}
    for seed in range(N_VIEWS):
        recorder, _ = World(monkeypatch, seed=seed, terms=FORMS[form]).run()
        fake = Recorder()
        for sender, receiver, message in recorder.messages:
            fake(sender, receiver, simulated(message, receiver, rng))
        for party in OUTPUTS:
            for kind, recorded in (("real", recorder), ("simulated", fake)):
                views[party, kind].append(top_bytes(view_of(recorded, party), party))
    for samples in views.values():
        refuse_unless_uniform(np.array(samples))


def test_the_checks_find_a_word_that_is_not_uniform():
    rng = np.random.default_rng(0)
    samples = rng.integers(0, 256, (N_VIEWS, 40))
    refuse_unless_uniform(samples)
    for spoil in (
        lambda s: s.__setitem__((slice(None), 3), s[:, 4]),
        lambda s: s.__setitem__((slice(None), 3), s[:, 3] // 2),
        lambda s: s.__setitem__((slice(None), slice(None, None, 4)), 7),
    ):
        spoilt = samples.copy()
        spoil(spoilt)
        with pytest.raises(AssertionError):
            refuse_unless_uniform(spoilt)
