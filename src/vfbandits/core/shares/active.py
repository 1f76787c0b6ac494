"""Server A, the active participant: asks the helper, learns the arm, and puts rewards in.

It keeps its side of the state.  What it learns is what the terms release of a decision: the arm, or
the arms that tie for it, and what the policy reads.  All else stays under masks of B's.
"""

import os
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias, cast

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.core.mask import Entropy
from vfbandits.core.ring import (
    FRACTION,
    SECRET_SIZE,
    Layout,
    Sheet,
    Words,
    WordSource,
    add,
    encode,
    shifted_up,
    subtract,
    zeros,
)
from vfbandits.core.shares import messages as m
from vfbandits.core.shares.blocks import root_side
from vfbandits.core.shares.comparison import (
    begin_comparison,
    best_arm,
    end_comparison,
    refuse_lookups,
)
from vfbandits.core.shares.covariance.active import ActiveCovariance, Statistics
from vfbandits.core.shares.covariance.form import MEAN_BITS, HeldCovariance, widths_of
from vfbandits.core.shares.covariance.messages import ScaleDeal, ScoreDeal, ShrinkDeal
from vfbandits.core.shares.dealer import InputMasks, ServerSecrets, absent_columns, sheet_name
from vfbandits.core.shares.function_table import SLACK
from vfbandits.core.shares.helper import MAX_OPEN
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import Exchange, expect
from vfbandits.core.shares.noise import HalfNoise
from vfbandits.core.shares.offer import Offer, feature_words
from vfbandits.core.shares.root import Held
from vfbandits.core.shares.rows import (
    in_block,
    lift_share,
    lifted_rows,
    scored_rows,
    with_constant,
)
from vfbandits.core.shares.sides import (
    CLIP,
    PRODUCT_BITS,
    context_share,
    refuse_unless_long,
    reopen_side,
    side,
)
from vfbandits.core.shares.terms import MAX_ADDEND, MAX_REWARD, ShareTerms
from vfbandits.errors import ArmError, RewardError, SharesError

Event: TypeAlias = tuple[int, int]
"""The window and the slot of a decision."""

BLANK: Event = (-1, -1)


class Opened:
    """A decision whose arm, or whose statistics, are known and which was not picked yet.

    ``arm`` is the position of the best one among those on offer.
    """

    __slots__ = ("arm", "event", "n_arms", "place", "rows", "sheet", "statistics")

    def __init__(
        self,
        place: m.Place,
        rows: "Rows",
        sheet: Sheet,
        arm: int,
        statistics: Statistics | None = None,
    ) -> None:
        self.place = place
        self.event = (place.window, place.slot)
        self.rows = rows
        self.n_arms = rows.n_arms
        self.sheet = sheet
        self.arm = arm
        self.statistics = statistics


class Prepared:
    """A decision whose noise was exchanged, after ``n_rows`` rewards of the window.

    With noise it has the side of z, and both servers' shares of a_l·z.
    """

    __slots__ = ("n_rows", "place", "projections", "sheet", "z")

    def __init__(self, place: m.Place, sheet: Sheet, n_rows: int) -> None:
        self.place = place
        self.sheet = sheet
        self.n_rows = n_rows
        self.z: Words | None = None
        self.projections = (_NOTHING, _NOTHING, _NOTHING)


class Rows:
    """The rows of a decision that are scored, as A has them.

    ``sent`` is what B makes them of, ``m`` and ``masks`` are (n, row_dim), and ``user`` is the
    masked row that participants share with A's mask of it, where there is one row for all arms.
    ``n_arms`` are on offer, and ``places`` are their rows, where they are not those of the arms in
    order.
    """

    __slots__ = ("m", "masks", "n_arms", "offer", "places", "sent", "user")

    def __init__(
        self,
        sent: Words,
        m: Words,
        masks: Words,
        offer: Offer | None = None,
        user: tuple[Words, Words] | None = None,
    ) -> None:
        self.sent = sent
        self.m = m
        self.masks = masks
        self.offer = offer
        self.user = user
        self.n_arms: int = m.shape[1] if offer is None else offer.n_arms
        self.places = None if offer is None or not offer.blocks else offer.blocks

    @property
    def P(self) -> Words:  # noqa: N802
        """A's side of the rows."""
        return side(self.m, self.masks)


class ActiveServer:
    """The active participant's end of the protocol."""

    def __init__(
        self,
        terms: ShareTerms,
        secrets: ServerSecrets,
        *,
        entropy: Entropy = os.urandom,
        max_open: int = MAX_OPEN,
        first_window: int = 0,
    ) -> None:
        self.terms = terms
        self._secrets = secrets
        self._noise = HalfNoise(WordSource(entropy(SECRET_SIZE)), terms)
        self._max_open = max_open
        self._inputs = InputMasks(secrets, terms)
        self._state = root_side(terms)
        self._covariance = ActiveCovariance(terms)
        self._n_participants = len(terms.widths)
        self._words_of = {
            "decide": Layout(terms.active_decision_words()),
            "learn": Layout(terms.active_reward_words()),
            "fold": Layout(terms.active_fold_words()),
        }
        self._deal: m.WindowDeal | None = None
        self._n_windows = first_window
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
        header = {
            "window": self._n_windows,
            "noise": self._noise.to_bytes().hex(),
            "idle": self.terms.idle,
        }
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
        own = self._inputs.look(place)[:, : min(n_arms, self.terms.input_rows), columns]
        if opened.masks.shape != own.shape:
            raise SharesError(
                f"wanted masks of shape {own.shape[1:]} from the helper, got "
                f"{opened.masks.shape[1:]}"
            )
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
            expect(m.Asked, (yield m.Ask(place, n, _NOTHING)))
            return ready
        deal, sheet = cast("m.DecisionDeal", self._dealt().decisions[place.slot]), ready.sheet
        mask = sheet.take("mask_noise")
        noise = add(self._noise.of(place), mask)
        asked = expect(m.Asked, (yield m.Ask(place, n, noise)))
        opening, rho = (noise, asked.noise, mask), sheet.take("rho_projections")
        ready.z, own = state.open_noise(opening, n, rho)
        ready.projections = (own, asked.projections, deal.projections)
        return ready

    def decide(
        self, ready: Prepared, blocks: list[m.Contribution], offer: Offer | None = None
    ) -> Exchange[Opened]:
        """What is released of contexts that all participants have shared.

        ``offer`` says which arms there are, where participants share one row for all of them.
        """
        place, sheet, state = ready.place, ready.sheet, self._state
        dealt = self._dealt().decisions[place.slot]
        rows = yield from self._enter(place, sheet, self._joined(place, blocks), offer)
        inputs = rows.m, rows.masks
        if not self.terms.is_root:
            return (yield from self._score(cast("ScoreDeal", dealt), sheet, rows))
        deal, rho = cast("m.DecisionDeal", dealt), sheet.take("rho_direction")
        if ready.z is None:
            own = state.share_direction_without_noise(ready.n_rows, rho, deal.rows, CLIP)
        else:
            own = state.share_direction(ready.z, ready.projections, rho, deal.rows, CLIP)
        n_scored = rows.m.shape[1]
        message = m.Sample(place, n_scored, rows.sent, ready.projections[0], own)
        sampled = expect(m.Sampled, (yield message))
        direction = (own, sampled.direction, deal.direction)
        scores = state.scores(direction, inputs, deal.scores, state.nothing)
        arm = yield from self._best(deal, sheet, scores, sampled.scores, rows)
        return Opened(place, rows, sheet, arm)

    def _enter(
        self, place: m.Place, sheet: Sheet, contexts: Words, offer: Offer | None
    ) -> Exchange[Rows]:
        """The rows that are scored, of those that participants have shared."""
        terms, masks = self.terms, self._inputs.take(place)
        if terms.layout == "per_arm":
            refuse_unless_long(masks, contexts.shape[1], contexts.shape[2])
            return Rows(contexts, contexts, masks)
        if offer is None or not offer.n_arms:
            raise SharesError(f"layout {terms.layout!r} needs the arms on offer, got none")
        user = with_constant(terms, contexts), masks
        if terms.lift_rows and not terms.has_units:
            lifted = yield from self._lift(place, sheet, contexts, user, offer.features)
            return Rows(zeros(0, 0), *lifted, offer, user)
        n = terms.max_rows if terms.has_units else offer.n_blocks
        m_rows, own = (scored_rows(terms, part, n) for part in user)
        return Rows(contexts, m_rows, own, offer, user)

    def _lift(
        self,
        place: m.Place,
        sheet: Sheet,
        contexts: Words,
        user: tuple[Words, Words],
        features: Matrix | None,
    ) -> Exchange[tuple[Words, Words]]:
        """The masked rows u ⊗ w of arms with these features, and A's parts of their masks."""
        if features is None:
            raise SharesError("layout 'outer' needs features of the arms, got none")
        deal = cast("m.DecisionDeal | ScoreDeal", self._dealt().decisions[place.slot])
        n = len(features)
        mask = sheet.take("mask_arms")[:, :n]
        arms = add(feature_words(self.terms, features), mask)
        u = side(*user)[:, 0]
        own = lift_share(u, side(arms, mask), sheet.take("rho_lift"))
        reply = expect(m.Lifted, (yield m.Lift(place, contexts, arms, own)))
        if reply.rows.shape != own.shape:
            raise SharesError(
                f"wanted rows of shape {own.shape[1:]} from the helper, got {reply.rows.shape[1:]}"
            )
        return lifted_rows(reply.rows), deal.lift[:, :n]

    def _score(self, deal: ScoreDeal, sheet: Sheet, rows: Rows) -> Exchange[Opened]:
        inputs = rows.m, rows.masks
        came = yield from self._covariance.score(deal, sheet, rows.sent, inputs, self.n_rows)
        if self.terms.release == "statistics":
            return Opened(deal.place, rows, sheet, -1, came)
        scores = came.scores
        if self.terms.reads == "widths":
            bonus = self.terms.beta * widths_of(came.forms)
            # Rounding may take a width above what the bound of the rows says.
            words = encode(bonus, bound=MAX_ADDEND * (1.0 + SLACK), what="beta·width")
            scores = add(scores, shifted_up(words, MEAN_BITS - FRACTION))
        arm = yield from self._best(deal, sheet, scores, came.others, rows)
        return Opened(deal.place, rows, sheet, arm)

    def _sheet(self, kind: str, place: m.Place) -> Sheet:
        return self._secrets.own.sheet(sheet_name(kind, place), self._words_of[kind])

    def _joined(self, place: m.Place, blocks: list[m.Contribution]) -> Words:
        parts = [
            b.contexts for j, b in enumerate(blocks) if b.participant == j and b.place == place
        ]
        if not len(parts) == len(blocks) == self._n_participants:
            numbers = [b.participant for b in blocks]
            raise SharesError(
                f"slot {place.slot} needs a block of each participant in order, got {numbers}"
            )
        if self.terms.idle:
            parts.append(zeros(parts[0].shape[1], self.terms.idle))
        return np.concatenate(parts, axis=2)

    def _best(
        self,
        deal: m.DecisionDeal | ScoreDeal,
        sheet: Sheet,
        scores: Words,
        others: Words,
        rows: Rows,
    ) -> Exchange[int]:
        """The best arm on offer of scores that add up from two shares, under masks of B's."""
        place, n_arms = deal.place, rows.n_arms
        if n_arms == 1:
            return 0
        bits = PRODUCT_BITS if self.terms.is_root else MEAN_BITS
        words = sheet.take("order"), sheet.take("mask_ranks"), deal.tables
        begun = begin_comparison(scores, others, *words, bits=bits, places=rows.places)
        message = m.Compare(place, begun.is_live, begun.numbers, begun.lookups)
        compared = expect(m.Compared, (yield message))
        refuse_lookups(compared.lookups, n_arms)
        results = end_comparison(begun, compared.lookups, deal.tables, deal.tops)
        found = expect(m.Candidates, (yield m.Results(place, results)))
        if found.candidates.shape != (n_arms,):
            raise SharesError(f"wanted {n_arms} candidate bits, got {len(found.candidates)}")
        best = best_arm(begun, found.candidates, rows.places)
        if best < 0:
            raise SharesError("no arm is the best: a score was beyond what is compared")
        return best

    def pick(self, opened: Opened, arm: int) -> Exchange[Event]:
        """Keep shares of the context of the arm that is shown, until its reward comes."""
        if not 0 <= arm < opened.n_arms:
            raise ArmError(f"an arm is a position among {opened.n_arms}, got {arm}")
        self._open[opened.event] = yield from self._shown(opened, arm)
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)
        return opened.event

    def _shown(self, opened: Opened, arm: int) -> Exchange[Words]:
        """A's share of the context of one arm."""
        place, sheet, rows = opened.place, opened.sheet, opened.rows
        if self.terms.has_units and rows.offer is not None and rows.user is not None:
            features = rows.offer.features
            shown = None if features is None else features[arm : arm + 1]
            x, mask = yield from self._lift(place, sheet, zeros(0, 0), rows.user, shown)
            return subtract(x, mask)[:, 0]
        deal = cast("m.DecisionDeal | ScoreDeal", self._dealt().decisions[place.slot])
        # The choice is a whole number, not a fixed-point one: the context keeps its 44 bits.
        row = arm if rows.places is None else rows.places[arm]
        choice = zeros(self.terms.max_arms)
        choice[0, row] = 1
        masked = add(choice, sheet.take("mask_choice"))
        expect(m.Picked, (yield m.Pick(place, masked)))
        if self.terms.n_blocks == 1:
            return context_share(rows.m, rows.masks, row, deal.context)
        x = subtract(rows.m[:, row], rows.masks[:, row])
        return add(in_block(self.terms, x, row), deal.context)

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
        mask = sheet.take("mask_context")
        own = add(share, mask)
        recalled = expect(m.Recalled, (yield m.Recall(place, *event, own)))
        context = (own, recalled.context, mask)
        came = state.open_and_whiten(sheet, context, recalled.overlaps, deal.overlaps, n)
        reply = expect(m.Whitened, (yield m.Whiten(place, came.overlaps, came.whitened)))
        f = (came.whitened, reply.whitened, deal.whitened)
        words = reply.projections, reply.square, deal, round(reward * 2.0**FRACTION)
        row, own_s, own_g = state.open_and_gain(sheet, came, f, *words)
        message = m.Learn(
            place,
            projections=row.projections,
            square=row.square[0],
            difference=row.difference,
            scalars=own_s,
            gain=own_g,
        )
        learnt = expect(m.Learnt, (yield message))
        own_a, own_h = state.scale_row(
            (own_s, learnt.scalars, deal.scalars),
            (row.difference, reply.difference, deal.difference),
            row.f,
            sheet.take("rho_row"),
            sheet.take("rho_residual"),
        )
        expect(m.Settled, (yield m.Settle(place, row=own_a, residual=own_h)))
        state.append(
            n,
            row=(own_a, learnt.row, deal.row),
            gain=(own_g, learnt.gain, deal.gain),
            residual=(own_h, learnt.residual, deal.residual),
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


_NOTHING = zeros(0)
