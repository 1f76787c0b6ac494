"""Server A, the active participant: asks the helper, learns the arm, and puts rewards in.

It keeps T = v + λ_B of the state.  What it learns is the arm of a decision, or the arms that tie
for it; scores, means and widths stay under masks of B's.
"""

import os
from collections import OrderedDict
from typing import TypeAlias, cast

import numpy as np

from vfbandits.core.mask import Entropy
from vfbandits.core.ring import (
    SECRET_SIZE,
    Sheet,
    Words,
    WordSource,
    add,
    cut,
    encode,
    lifted,
    negative,
    open_short,
    reopen,
    rows_times,
    short,
    subtract,
    times,
    total,
    zeros,
)
from vfbandits.core.shares import messages as m
from vfbandits.core.shares.comparison import (
    TOLERANCE,
    differences,
    is_less,
    look_up,
    masked_numbers,
    pairs_among,
    refuse_large_lookups,
    shuffled,
    top_bits,
    words_of_tables,
)
from vfbandits.core.shares.covariance import HeldCovariance, widths_of
from vfbandits.core.shares.covariance_active import ActiveCovariance, Statistics
from vfbandits.core.shares.covariance_messages import ScaleDeal, ScoreDeal, ShrinkDeal
from vfbandits.core.shares.dealer import ServerSecrets, input_masks, sheet_name
from vfbandits.core.shares.helper import MAX_OPEN, Held
from vfbandits.core.shares.messages import Exchange, expect
from vfbandits.core.shares.noise import half_noise
from vfbandits.core.shares.terms import MAX_ADDEND, MAX_REWARD, ShareTerms
from vfbandits.errors import ArmError, RewardError, SharesError

Event: TypeAlias = tuple[int, int]
"""The window and the slot of a decision."""

BLANK: Event = (-1, -1)


class Opened:
    """A decision whose arm is known and which was not picked yet."""

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
        n, d = terms.window, terms.dim
        self.terms = terms
        self._secrets = secrets
        self._noise = WordSource(entropy(SECRET_SIZE))
        self._max_open = max_open
        self._root = encode(np.eye(d), bound=1.0, what="a unit matrix")
        self._theta = zeros(1, d)
        self._a, self._g, self._h = zeros(n, d), zeros(n, d), zeros(1, n)
        self._covariance = ActiveCovariance(terms)
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
        n = self.n_rows
        if not self.terms.is_root:
            return self._covariance.held(n)
        return Held(self._root, self._theta, self._a[:, :n], self._g[:, :n], self._h[:, :, :n])

    def half_noise(self, event: tuple[int, int]) -> Words:
        """A's half of the noise of a decision in its window, (dim,): for a plain twin."""
        window, slot = event
        if window != self._n_windows:
            raise SharesError(f"window {self._n_windows} is open, got a decision of {window}")
        place = m.Place(self._dealt().fold.place.epoch, window, self._dealt().attempt, slot)
        return half_noise(self._noise, self.terms, place)

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

    def decide(self, place: m.Place, blocks: list[m.Contribution]) -> Exchange[Opened]:
        """The arm with the best score for contexts that all participants have shared."""
        dealt = self._dealt().decisions[place.slot]
        sheet = self._secrets.own.sheet(
            sheet_name("decide", place), self.terms.active_decision_words()
        )
        contexts = self._joined(place, blocks)
        n_arms = contexts.shape[1]
        masks = input_masks(self._secrets, self.terms, place)
        T_X = subtract(contexts, masks[:, :n_arms])
        n = self.n_rows
        if not self.terms.is_root:
            deal_of_scores = cast("ScoreDeal", dealt)
            return (yield from self._decide_covariance(deal_of_scores, sheet, contexts, T_X))
        deal = cast("m.DecisionDeal", dealt)
        tau = negative(self._h[:, :, :n])
        share = add(sheet.take("rho_direction"), total(deal.rows[:, :n]))
        if self.terms.is_noisy:
            mask = sheet.take("mask_noise")
            noise = add(half_noise(self._noise, self.terms, place), mask)
            asked = expect(m.Asked, (yield m.Ask(place, n, contexts, noise)))
            T_z = subtract(add(noise, asked.noise), mask)[:, None]
            projections = add(
                rows_times(T_z, self._a[:, :n])[:, 0], sheet.take("rho_projections")[:, :n]
            )
            own_projections = cut(projections)
            opened = reopen(own_projections, asked.projections)
            tau = add(subtract(opened, deal.projections[:, :n])[:, None], tau)
            share = add(share, rows_times(T_z, self._root)[:, 0])
        else:
            expect(m.Asked, (yield m.Ask(place, n, contexts, zeros(0))))
            own_projections = zeros(0)
        own = cut(subtract(share, times(tau, self._g[:, :n])[:, 0]))
        sampled = expect(m.Sampled, (yield m.Sample(place, own_projections, own)))
        direction = subtract(reopen(own, sampled.direction), deal.direction)
        T_w = add(self._theta, direction[:, None])
        scores = add(rows_times(T_X, T_w)[:, :, 0], deal.scores[:, :n_arms])
        arm = yield from self._best(deal, sheet, add(scores, sampled.scores))
        return Opened(place, T_X, sheet, arm)

    def _decide_covariance(
        self, deal: ScoreDeal, sheet: Sheet, contexts: Words, T_X: Words
    ) -> Exchange[Opened]:
        statistics = yield from self._covariance.score(deal, sheet, contexts, T_X, self.n_rows)
        if self.terms.release == "statistics":
            return Opened(deal.place, T_X, sheet, -1, statistics)
        scores = statistics.scores
        if self.terms.reads == "widths":
            bonus = self.terms.beta * widths_of(statistics.forms)
            scores = add(scores, lifted(encode(bonus, bound=MAX_ADDEND, what="beta·width")))
        arm = yield from self._best(deal, sheet, scores)
        return Opened(deal.place, T_X, sheet, arm)

    def _joined(self, place: m.Place, blocks: list[m.Contribution]) -> Words:
        numbers = [block.participant for block in blocks]
        if numbers != list(range(len(self.terms.widths))) or any(
            block.place != place for block in blocks
        ):
            raise SharesError(
                f"slot {place.slot} needs a block of each participant in order, got {numbers}"
            )
        return np.concatenate([block.contexts for block in blocks], axis=2)

    def _best(self, deal: m.DecisionDeal | ScoreDeal, sheet: Sheet, scores: Words) -> Exchange[int]:
        """The best arm of scores (n_arms,) that are under masks of B's."""
        place, max_arms = deal.place, self.terms.max_arms
        n_arms = scores.shape[1]
        order = shuffled(sheet.take("order"))
        is_live = order < n_arms
        live = np.flatnonzero(is_live)
        ranks = sheet.take("mask_ranks")
        numbers = np.zeros(max_arms, np.uint64)
        numbers[live] = masked_numbers(add(scores[:, order[live]], ranks[:, live]))
        if n_arms == 1:
            return 0
        i, j, places = pairs_among(live, max_arms)
        tables = words_of_tables(deal.tables)[places]
        x = differences(numbers, i, j, tolerance=TOLERANCE)
        lookups = look_up(x, tables)
        message = m.Compare(place, is_live.astype(np.uint8), numbers[live], lookups)
        compared = expect(m.Compared, (yield message))
        refuse_large_lookups(compared.lookups)
        less = is_less(lookups ^ compared.lookups, tables)
        results = less ^ top_bits(x) ^ deal.tops[places] ^ np.uint8(1)
        found = expect(m.Candidates, (yield m.Results(place, results)))
        candidates = order[live[found.candidates == 1]]
        if not len(candidates):
            raise SharesError("no arm is the best: a score was beyond what is compared")
        return int(candidates.min())

    def pick(self, opened: Opened, arm: int) -> Exchange[Event]:
        """Keep shares of the context of the arm that is shown, until its reward comes."""
        if not 0 <= arm < opened.n_arms:
            raise ArmError(f"an arm is a position among {opened.n_arms}, got {arm}")
        deal = cast("m.DecisionDeal | ScoreDeal", self._dealt().decisions[opened.place.slot])
        one_hot = np.zeros(self.terms.max_arms)
        one_hot[arm] = 1.0
        # The choice is a whole number, not a fixed-point one: the context keeps its 40 bits.
        choice = zeros(self.terms.max_arms)
        choice[0] = one_hot.astype(np.uint64)
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
        dealt = self._dealt().rewards[n]
        place = dealt.place
        sheet = self._secrets.own.sheet(
            sheet_name("learn", place), self.terms.active_reward_words()
        )
        if not self.terms.is_root:
            deal_of_scale = cast("ScaleDeal", dealt)
            yield from self._covariance.learn(deal_of_scale, sheet, event, share, reward)
            self.n_rows += 1
            self._unfinished = None
            return
        deal = cast("m.RewardDeal", dealt)
        a, g, h = self._a[:, :n], self._g[:, :n], self._h[:, :, :n]
        mask = sheet.take("mask_context")
        own = add(share, mask)
        recalled = expect(m.Recalled, (yield m.Recall(place, *event, own)))
        T_x = subtract(add(own, recalled.context), mask)[:, None]
        own_overlaps = cut(add(rows_times(T_x, g)[:, 0], sheet.take("rho_overlaps")[:, :n]))
        T_u = subtract(reopen(own_overlaps, recalled.overlaps), deal.overlaps)[:, None]
        whitened = subtract(times(T_x, self._root), times(T_u, a))[:, 0]
        own_f = cut(add(whitened, sheet.take("rho_whitened")))
        reply = expect(m.Whitened, (yield m.Whiten(place, own_overlaps, own_f)))
        T_f = subtract(reopen(own_f, reply.whitened), deal.whitened)[:, None]
        own_q = short(add(rows_times(T_f, T_f)[:, 0], sheet.take("rho_square")))
        opened_q = open_short(own_q, reply.square)
        mean = add(rows_times(T_x, self._theta), rows_times(h, T_u))
        own_d = subtract(times(_scalar(reward), _scalar(1.0)), mean)[:, 0]
        own_d = cut(add(own_d, sheet.take("rho_difference")))
        T_d = subtract(reopen(own_d, reply.difference), deal.difference)[:, None]
        scalars = self.terms.scalars.share(opened_q, deal.coefficients[:, None])[:, 0]
        own_scalars = cut(add(scalars, sheet.take("rho_scalars")))
        own_v = cut(add(rows_times(T_f, a)[:, 0], sheet.take("rho_projections")[:, :n]))
        T_v = subtract(reopen(own_v, reply.projections), deal.projections)[:, None]
        gain = subtract(rows_times(T_f, self._root), times(T_v, g))[:, 0]
        own_g = cut(add(gain, sheet.take("rho_gain")))
        message = m.Learn(
            place,
            projections=own_v,
            square=own_q,
            difference=own_d,
            scalars=own_scalars,
            gain=own_g,
        )
        learnt = expect(m.Learnt, (yield message))
        T_s = subtract(reopen(own_scalars, learnt.scalars), deal.scalars)
        weight, step = T_s[:, None, :1], T_s[:, None, 1:]
        own_a = cut(add(times(weight, T_f)[:, 0], sheet.take("rho_row")))
        own_h = cut(add(times(step, T_d)[:, 0], sheet.take("rho_residual")))
        expect(m.Settled, (yield m.Settle(place, row=own_a, residual=own_h)))
        self._g[:, n] = subtract(reopen(own_g, learnt.gain), deal.gain)
        self._a[:, n] = subtract(reopen(own_a, learnt.row), deal.row)
        self._h[:, 0, n : n + 1] = subtract(reopen(own_h, learnt.residual), deal.residual)
        self.n_rows += 1
        self._unfinished = None

    def fold(self) -> Exchange[None]:
        """Bring the rows of a full window into the state; the window is over then."""
        dealt = self._dealt().fold
        if self.n_rows != self.terms.window:
            raise SharesError(
                f"a window is folded after {self.terms.window} rewards, got {self.n_rows}"
            )
        sheet = self._secrets.own.sheet(
            sheet_name("fold", dealt.place), self.terms.active_fold_words()
        )
        if not self.terms.is_root:
            yield from self._covariance.fold(cast("ShrinkDeal", dealt), sheet)
            self._turn()
            return
        deal = cast("m.FoldDeal", dealt)
        columns = np.ascontiguousarray(self._g.swapaxes(1, 2))
        root = cut(add(times(columns, self._a), sheet.take("rho_root")))
        theta = cut(add(times(self._h, self._g)[:, 0], sheet.take("rho_theta")))
        folded = expect(m.Folded, (yield m.Fold(deal.place, root, theta)))
        self._root = subtract(self._root, subtract(reopen(root, folded.root), deal.root))
        shift = subtract(reopen(theta, folded.theta), deal.theta)
        self._theta = add(self._theta, shift[:, None])
        self._turn()

    def _turn(self) -> None:
        """The window is over."""
        self._deal = None
        self._n_windows += 1
        self.n_rows = self.n_slots = 0

    def _dealt(self) -> m.WindowDeal:
        if self._deal is None:
            raise SharesError(f"window {self._n_windows} was not dealt")
        return self._deal


def _scalar(value: float) -> Words:
    return encode([[value]], bound=MAX_REWARD, what="a scalar")
