"""Server A, the active participant: asks the helper, learns the arm, and puts rewards in.

It keeps its side of the state.  What it learns is what the terms release of a decision: the arm, or
the arms that tie for it, and what the policy reads.  All else stays under masks of B's.
"""

import math
import os
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias, cast

import numpy as np

from vfbandits.core.mask import Entropy
from vfbandits.core.ring import (
    FRACTION,
    SECRET_SIZE,
    Layout,
    Sheet,
    Words,
    WordSource,
    add,
    cut,
    encode,
    open_short,
    shifted_up,
    subtract,
    zeros,
)
from vfbandits.core.shares import messages as m
from vfbandits.core.shares.comparison import (
    less_pairs,
    live_positions,
    look_up_pairs,
    masked_ranks,
    refuse_lookups,
    shuffled,
)
from vfbandits.core.shares.covariance import MEAN_BITS, HeldCovariance, widths_of
from vfbandits.core.shares.covariance_active import ActiveCovariance, Statistics
from vfbandits.core.shares.covariance_messages import ScaleDeal, ScoreDeal, ShrinkDeal
from vfbandits.core.shares.dealer import InputMasks, ServerSecrets, absent_columns, sheet_name
from vfbandits.core.shares.function_table import SLACK
from vfbandits.core.shares.helper import MAX_OPEN
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import Exchange, expect
from vfbandits.core.shares.noise import HalfNoise
from vfbandits.core.shares.root import Exchanged, Held, OpenedRow, RootSide
from vfbandits.core.shares.sides import (
    PRODUCT_BITS,
    open_side,
    plus_first_clipped,
    reopen_side,
    whole_product,
)
from vfbandits.core.shares.terms import MAX_ADDEND, MAX_REWARD, ShareTerms
from vfbandits.errors import ArmError, RewardError, SharesError

Event: TypeAlias = tuple[int, int]
"""The window and the slot of a decision."""

BLANK: Event = (-1, -1)


class Opened:
    """A decision whose arm, or whose statistics, are known and which was not picked yet."""

    __slots__ = ("T_X", "arm", "event", "n_arms", "place", "sheet", "statistics")

    def __init__(
        self,
        place: m.Place,
        T_X: Words,
        sheet: Sheet,
        arm: int,
        statistics: Statistics | None = None,
    ) -> None:
        self.place = place
        self.event = (place.window, place.slot)
        self.T_X = T_X
        self.n_arms = T_X.shape[1]
        self.sheet = sheet
        self.arm = arm
        self.statistics = statistics


class Prepared:
    """A decision whose noise was exchanged, after ``n_rows`` rewards of the window.

    ``tau`` are the weights of the window's rows in the sampled direction.
    """

    __slots__ = ("n_rows", "own_projections", "place", "sheet", "tau", "z")

    def __init__(self, place: m.Place, sheet: Sheet, n_rows: int) -> None:
        self.place = place
        self.sheet = sheet
        self.n_rows = n_rows
        self.z: Words | None = None
        self.tau = self.own_projections = zeros(0)


class ActiveServer:
    """The active participant's end of the protocol."""

    def __init__(
        self,
        terms: ShareTerms,
        secrets: ServerSecrets,
        *,
        entropy: Entropy = os.urandom,
        max_open: int = MAX_OPEN,
    ) -> None:
        self.terms = terms
        self._secrets = secrets
        self._noise = HalfNoise(WordSource(entropy(SECRET_SIZE)), terms)
        self._max_open = max_open
        self._inputs = InputMasks(secrets, terms)
        self._state = RootSide(terms)
        self._covariance = ActiveCovariance(terms)
        self._participants = list(range(len(terms.widths)))
        self._words_of = {
            "decide": Layout(terms.active_decision_words()),
            "learn": Layout(terms.active_reward_words()),
            "fold": Layout(terms.active_fold_words()),
        }
        self._deal: m.WindowDeal | None = None
        self._n_windows = 0
        self.n_rows = 0
        self.n_slots = 0
        self._open: OrderedDict[Event, Words] = OrderedDict()
        self._unfinished: tuple[Event, float] | None = None

    def __repr__(self) -> str:
        """Counts; no share."""
        return f"ActiveServer(window={self._n_windows}, rows={self.n_rows}, slots={self.n_slots})"

    @property
    def needs_deal(self) -> bool:
        """Whether the next window has to be dealt."""
        return self._deal is None

    @property
    def is_used_up(self) -> bool:
        """Whether this window has no slot left for a decision."""
        return self.n_slots >= self.terms.decisions

    @property
    def is_full(self) -> bool:
        """Whether this window has no slot left for a reward, and must be folded."""
        return self.n_rows >= self.terms.window

    def held(self) -> Held | HeldCovariance:
        """A's side of the state, for a federation in one process."""
        if not self.terms.is_root:
            return self._covariance.side.held(self.n_rows)
        return self._state.held(self.n_rows)

    def snapshot(self) -> Kept:
        """The state between two windows, without the open contexts."""
        if self._deal is not None:
            raise SharesError(f"server A is kept between two windows, got window {self._n_windows}")
        header = {"window": self._n_windows, "noise": self._noise.to_bytes().hex()}
        state = self._state if self.terms.is_root else self._covariance.side
        return Kept(header, state.kept())

    @classmethod
    def restore(
        cls,
        terms: ShareTerms,
        secrets: ServerSecrets,
        kept: Kept,
        *,
        contexts: Iterable[tuple[Event, Words]] = (),
        max_open: int = MAX_OPEN,
    ) -> "ActiveServer":
        """The server that was kept, with its open contexts, the oldest first."""
        noise = kept.secret("noise")
        server = cls(terms, secrets, entropy=lambda _: noise, max_open=max_open)
        server._n_windows = kept.record.integer("window")
        server._open.update(contexts)
        (server._state if terms.is_root else server._covariance.side).restore(kept)
        return server

    @property
    def window(self) -> int:
        """The number of the window that is open, or must be dealt."""
        return self._n_windows

    def open_contexts(self) -> Mapping[Event, Words]:
        """Shares of the contexts that wait for a reward, the oldest first."""
        return self._open

    def forget(self, event: Event) -> None:
        """Wait no longer for the reward of a decision."""
        self._open.pop(event, None)

    def skip_to(self, slot: int) -> None:
        """Use no slot of this window before that one."""
        self.n_slots = max(self.n_slots, slot)

    def half_noise(self, event: tuple[int, int]) -> Words:
        """A's half of the noise of a decision in its window, (dim,): for a plain twin."""
        window, slot = event
        if window != self._n_windows:
            raise SharesError(f"window {self._n_windows} is open, got a decision of {window}")
        place = m.Place(self._dealt().fold.place.epoch, window, self._dealt().attempt, slot)
        return self._noise.of(place)

    def take(self, deal: m.WindowDeal) -> None:
        """Begin a window with what the dealer made for it."""
        if self._deal is not None or deal.window != self._n_windows:
            raise SharesError(
                f"wanted what is dealt for window {self._n_windows}, got window {deal.window}"
            )
        self._deal = deal

    def next_place(self) -> m.Place:
        """The slot of the next decision.  It is used up by this call, whatever happens then."""
        deal = self._dealt()
        if self.is_used_up:
            raise SharesError("the window has no slot left for a decision: it must be folded")
        place = deal.decisions[self.n_slots].place
        self.n_slots += 1
        return place

    def fill_absent(
        self, place: m.Place, numbers: Collection[int], *, n_arms: int
    ) -> Exchange[list[m.Contribution]]:
        """Blocks of zeros for participants that do not answer in this slot, now or later.

        Their masks are opened for it.  A message under those masks would be read: these
        participants must have been named absent in every ask of this slot.
        """
        flags = np.zeros(len(self.terms.widths), np.uint8)
        flags[[*numbers]] = 1
        opened = expect(m.Absence, (yield m.Absent(place, n_arms, flags)))
        columns = absent_columns(self.terms, flags)
        own = self._inputs.look(place)[:, :n_arms, columns]
        if opened.masks.shape != own.shape:
            raise SharesError("the helper opened masks of another shape than was asked for")
        masks = add(own, opened.masks)
        stops = np.cumsum([self.terms.widths[j] for j in sorted(numbers)])[:-1]
        parts = np.split(masks, stops, axis=2)
        return [
            m.Contribution(place, participant=j, contexts=part)
            for j, part in zip(sorted(numbers), parts, strict=True)
        ]

    def prepare(self, place: m.Place) -> Exchange[Prepared]:
        """What a decision needs before its contexts: participants may still be sharing them."""
        n, state = self.n_rows, self._state
        ready = Prepared(place, self._sheet("decide", place), n)
        if not self.terms.is_root:
            return ready
        if not self.terms.is_noisy:
            expect(m.Asked, (yield m.Ask(place, n, zeros(0))))
            ready.tau = state.minus_h[:, :n]
            return ready
        deal, sheet = cast("m.DecisionDeal", self._dealt().decisions[place.slot]), ready.sheet
        mask = sheet.take("mask_noise")
        noise = add(self._noise.of(place), mask)
        asked = expect(m.Asked, (yield m.Ask(place, n, noise)))
        z = ready.z = open_side(noise, asked.noise, mask)
        own = ready.own_projections = state.projections(z, n, sheet.take("rho_projections"))
        ready.tau = reopen_side(own, asked.projections, deal.projections, state.minus_h)
        return ready

    def decide(self, ready: Prepared, blocks: list[m.Contribution]) -> Exchange[Opened]:
        """What is released of contexts that all participants have shared."""
        place, sheet, state = ready.place, ready.sheet, self._state
        dealt = self._dealt().decisions[place.slot]
        contexts = self._joined(place, blocks)
        n_arms = contexts.shape[1]
        masks = self._inputs.take(place)[:, :n_arms]
        T_X = subtract(contexts, masks)
        if not self.terms.is_root:
            return (yield from self._score(cast("ScoreDeal", dealt), sheet, contexts, T_X, masks))
        deal = cast("m.DecisionDeal", dealt)
        own = state.direction(ready.z, ready.tau, sheet.take("rho_direction"))
        own = plus_first_clipped(deal.rows, ready.n_rows, own)
        message = m.Sample(place, contexts, ready.own_projections, own)
        sampled = expect(m.Sampled, (yield message))
        w = reopen_side(own, sampled.direction, deal.direction, state.theta)
        scores = whole_product(subtract(T_X, masks), w, deal.scores)
        arm = yield from self._best(deal, sheet, scores, sampled.scores)
        return Opened(place, T_X, sheet, arm)

    def _score(
        self, deal: ScoreDeal, sheet: Sheet, contexts: Words, T_X: Words, masks: Words
    ) -> Exchange[Opened]:
        came = yield from self._covariance.score(deal, sheet, contexts, masks, self.n_rows)
        if self.terms.release == "statistics":
            return Opened(deal.place, T_X, sheet, -1, came)
        scores = came.scores
        if self.terms.reads == "widths":
            bonus = self.terms.beta * widths_of(came.forms)
            # Rounding may take a width above what the bound of the rows says.
            words = encode(bonus, bound=MAX_ADDEND * (1.0 + SLACK), what="beta·width")
            scores = add(scores, shifted_up(words, MEAN_BITS - FRACTION))
        arm = yield from self._best(deal, sheet, scores, came.others)
        return Opened(deal.place, T_X, sheet, arm)

    def _sheet(self, kind: str, place: m.Place) -> Sheet:
        return self._secrets.own.sheet(sheet_name(kind, place), self._words_of[kind])

    def _joined(self, place: m.Place, blocks: list[m.Contribution]) -> Words:
        numbers = [block.participant for block in blocks if block.place == place]
        if numbers != self._participants or len(blocks) != len(numbers):
            raise SharesError(
                f"slot {place.slot} needs a block of each participant in order, got {numbers}"
            )
        contexts = [block.contexts for block in blocks]
        if self.terms.idle:
            contexts.append(zeros(contexts[0].shape[1], self.terms.idle))
        return np.concatenate(contexts, axis=2)

    def _best(
        self, deal: m.DecisionDeal | ScoreDeal, sheet: Sheet, scores: Words, others: Words
    ) -> Exchange[int]:
        """The best arm of scores (n_arms,) that add up from two shares, under masks of B's."""
        place, max_arms = deal.place, self.terms.max_arms
        n_arms = scores.shape[1]
        order = shuffled(sheet.take("order"))
        live = live_positions(order, n_arms)
        ranks = sheet.take("mask_ranks")
        if n_arms == 1:
            return 0
        bits = PRODUCT_BITS if self.terms.is_root else MEAN_BITS
        numbers = masked_ranks(scores, others, ranks, order, bits=bits)
        is_live = np.zeros(max_arms, np.uint8)
        is_live[live] = 1
        lookups, tops = look_up_pairs(numbers, live, deal.tables)
        message = m.Compare(place, is_live, numbers[live], lookups)
        compared = expect(m.Compared, (yield message))
        refuse_lookups(compared.lookups, n_arms)
        opened = lookups ^ compared.lookups
        less = less_pairs(opened, live, max_arms, deal.tables, deal.tops)
        results = less ^ tops ^ np.uint8(1)
        found = expect(m.Candidates, (yield m.Results(place, results)))
        if found.candidates.shape != live.shape:
            raise SharesError(f"wanted {n_arms} candidate bits, got {len(found.candidates)}")
        candidates = order[live[found.candidates == 1]]
        if not len(candidates):
            raise SharesError("no arm is the best: a score was beyond what is compared")
        return int(candidates.min())

    def pick(self, opened: Opened, arm: int) -> Exchange[Event]:
        """Keep shares of the context of the arm that is shown, until its reward comes."""
        if not 0 <= arm < opened.n_arms:
            raise ArmError(f"an arm is a position among {opened.n_arms}, got {arm}")
        deal = cast("m.DecisionDeal | ScoreDeal", self._dealt().decisions[opened.place.slot])
        # The choice is a whole number, not a fixed-point one: the context keeps its 44 bits.
        choice = zeros(self.terms.max_arms)
        choice[0, arm] = 1
        masked = add(choice, opened.sheet.take("mask_choice"))
        expect(m.Picked, (yield m.Pick(opened.place, masked)))
        self._open[opened.event] = add(opened.T_X[:, arm], deal.context)
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)
        return opened.event

    def learn(self, event: Event, reward: float) -> Exchange[None]:
        """Learn the reward of a decision; A sees uniform words only."""
        if not abs(reward) <= MAX_REWARD:
            raise RewardError(
                f"a reward on secret shares must be at most {MAX_REWARD:g} in size, got {reward}"
            )
        share = self._open.get(event)
        if share is None:
            raise SharesError(f"no context waits for a reward at {event}")
        yield from self._learn(event, share, reward)
        del self._open[event]

    def fill(self) -> Exchange[None]:
        """Fill one row of the window with a blank, the context 0, which changes nothing."""
        yield from self._learn(BLANK, zeros(self.terms.dim), 0.0)

    def _learn(self, event: Event, share: Words, reward: float) -> Exchange[None]:
        n = self.n_rows
        if self.is_full:
            raise SharesError("the window has no slot left for a reward: it must be folded")
        # B may have seen messages of a reward that failed.  Another one in its slot would show B
        # the difference of the two contexts or rewards; the same one sends the same bytes.
        if self._unfinished not in (None, (event, reward)):
            raise SharesError(
                f"slot {n} of window {self._n_windows} belongs to a reward that failed on its way, "
                f"of the decision {self._unfinished[0]}: repeat that reward first, with the same "
                "value"
            )
        self._unfinished = event, reward
        dealt, state = self._dealt().rewards[n], self._state
        place = dealt.place
        sheet = self._sheet("learn", place)
        if not self.terms.is_root:
            deal_of_scale = cast("ScaleDeal", dealt)
            yield from self._covariance.learn(deal_of_scale, sheet, event, share, reward)
            self.n_rows += 1
            self._unfinished = None
            return
        deal = cast("m.RewardDeal", dealt)
        none = state.nothing
        mask = sheet.take("mask_context")
        own = add(share, mask)
        recalled = expect(m.Recalled, (yield m.Recall(place, *event, own)))
        x = open_side(own, recalled.context, mask)
        own_u = state.overlaps(x, n, sheet.take("rho_overlaps"))
        u = reopen_side(own_u, recalled.overlaps, deal.overlaps, none)
        own_f = state.whitened(x, u, sheet.take("rho_whitened"))
        reply = expect(m.Whitened, (yield m.Whiten(place, own_u, own_f)))
        rho_difference = add(sheet.take("rho_difference"), _as_product(reward))
        rho = OpenedRow(sheet.take("rho_projections"), sheet.take("rho_square"), rho_difference)
        f, row = state.open_row(Exchanged(own_f, reply.whitened, deal.whitened), x, u, rho)
        own_q = row.square[0]
        opened_q = open_short(own_q, reply.square, bits=PRODUCT_BITS)
        table, coefficients = self.terms.scalars, deal.coefficients[:, None]
        scalars = table.share(opened_q, coefficients, bits=PRODUCT_BITS)[:, 0]
        own_s = cut(add(scalars, sheet.take("rho_scalars")))
        v = reopen_side(row.projections, reply.projections, deal.projections, none)
        own_g = state.gain(f, v, sheet.take("rho_gain"))
        message = m.Learn(
            place,
            projections=row.projections,
            square=own_q,
            difference=row.difference,
            scalars=own_s,
            gain=own_g,
        )
        learnt = expect(m.Learnt, (yield message))
        own_a, own_h = state.scale_row(
            Exchanged(own_s, learnt.scalars, deal.scalars),
            Exchanged(row.difference, reply.difference, deal.difference),
            f,
            (sheet.take("rho_row"), sheet.take("rho_residual")),
        )
        expect(m.Settled, (yield m.Settle(place, row=own_a, residual=own_h)))
        state.append(
            n,
            row=Exchanged(own_a, learnt.row, deal.row),
            gain=Exchanged(own_g, learnt.gain, deal.gain),
            residual=Exchanged(own_h, learnt.residual, deal.residual),
        )
        self.n_rows += 1
        self._unfinished = None

    def fold(self) -> Exchange[None]:
        """Bring the rows of a full window into the state; the window is over then."""
        dealt = self._dealt().fold
        if self.n_rows != self.terms.window:
            raise SharesError(
                f"a window is folded after {self.terms.window} rewards, got {self.n_rows}"
            )
        sheet = self._sheet("fold", dealt.place)
        if self.terms.is_root:
            yield from self._fold_root(cast("m.FoldDeal", dealt), sheet)
        else:
            yield from self._covariance.fold(cast("ShrinkDeal", dealt), sheet)
        self._deal = None
        self._n_windows += 1
        self.n_rows = self.n_slots = 0

    def _fold_root(self, deal: m.FoldDeal, sheet: Sheet) -> Exchange[None]:
        root, theta = self._state.changes(sheet.take("rho_root"), sheet.take("rho_theta"))
        folded = expect(m.Folded, (yield m.Fold(deal.place, root, theta)))
        shifted = reopen_side(theta, folded.theta, deal.theta, self._state.theta)
        self._state.fold(root, folded.root, deal.root)
        self._state.shift(shifted)

    def _dealt(self) -> m.WindowDeal:
        if self._deal is None:
            raise SharesError(f"window {self._n_windows} was not dealt")
        return self._deal


def _as_product(reward: float) -> Words:
    """A reward as twice a product has it, (1,)."""
    whole = round(math.ldexp(reward, FRACTION)) << (PRODUCT_BITS - FRACTION)
    return np.array([[whole % 2**64], [(whole >> 64) % 2**64]], np.uint64)
