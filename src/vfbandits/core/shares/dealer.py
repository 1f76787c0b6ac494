"""The dealer: correlated randomness for both servers, made ahead of time.

It knows every mask and sees no message, so it learns nothing.  Server B and the participants get
secrets once; server A gets secrets, and words for each slot.  Each of those words is blinded by a
word of B's stream that blinds nothing else: were two alternatives of one value blinded by the same
word, their difference would show masks of B.
"""

import io
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.mask import Entropy
from vfbandits.core.ring import (
    SECRET_SIZE,
    Layout,
    Sheet,
    SheetName,
    Words,
    WordSource,
    add,
    negative,
    short_mask,
    subtract,
    times,
    zeros,
)
from vfbandits.core.shares.blocks import block_columns, by_blocks, split_blocks, theta_times
from vfbandits.core.shares.comparison import (
    Bits,
    Numbers,
    deal_tables,
    shuffled,
    shuffled_masks,
    words_of_tables,
)
from vfbandits.core.shares.covariance.dealer import CovarianceDealer, CovarianceWindow, deal_lift
from vfbandits.core.shares.handover.epoch import (
    Handover,
    HandoverDeal,
    dealt_gaps,
    handover_sheet,
    placed,
    state_words,
)
from vfbandits.core.shares.handover.leaving import EliminationDealer, n_factors, steps_of
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.messages import DecisionDeal, FoldDeal, Place, RewardDeal, WindowDeal
from vfbandits.core.shares.rows import chosen, scored_rows
from vfbandits.core.shares.sides import (
    PRODUCT_BITS,
    clipped,
    gap_term,
    narrow_mask,
    reopened_mask,
    scaled_gap_term,
)
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError

MAX_ATTEMPTS = 8


@dataclass(frozen=True, slots=True, eq=False)
class ServerSecrets:
    """What the dealer gives one server: a source of its own, and one for each participant."""

    own: WordSource
    inputs: tuple[WordSource, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ParticipantSecrets:
    """What the dealer gives one participant: the sources that hide its block, one per server."""

    active: WordSource
    helper: WordSource


class Mask(NamedTuple):
    """Of a masked value what A is dealt, λ_A, and what products need, the gap λ_A − λ_B."""

    A: Words
    gap: Words


@dataclass(slots=True)
class _Window:
    """Gaps of the rows that a window's rewards leave."""

    a: Words
    g: Words
    h: Words


class Dealer:
    """Makes secrets and windows of words; keeps the masks of the state and forgets the rest."""

    def __init__(
        self,
        terms: ShareTerms,
        *,
        entropy: Entropy = os.urandom,
        epoch: int = 0,
        first_window: int = 0,
        handover: Handover | None = None,
    ) -> None:
        n = len(terms.widths)
        self.terms = terms
        self.epoch = epoch
        self.first_window = first_window
        self.handover = handover
        if handover is not None:
            handover.refuse_other(terms)
        sources = [WordSource(entropy(SECRET_SIZE)) for _ in range(2 * n + 3)]
        self._own = sources[0]
        self._active = ServerSecrets(sources[1], tuple(sources[3 : 3 + n]))
        self._helper = ServerSecrets(sources[2], tuple(sources[3 + n :]))
        # Gaps of G by rows and by columns, and of theta.  G = I and theta = 0 are public at first.
        self._rows = zeros(terms.dim, terms.row_dim)
        self._columns = self._rows.copy()
        self._theta = zeros(1, terms.dim)
        self._covariance = CovarianceDealer(terms)
        self._layouts = {
            "decide": (
                Layout(terms.active_decision_words()),
                Layout(terms.helper_decision_words()),
            ),
            "learn": (Layout(terms.active_reward_words()), Layout(terms.helper_reward_words())),
            "fold": (Layout(terms.active_fold_words()), Layout(terms.helper_fold_words())),
        }
        self._inputs = [InputMasks(secrets, terms) for secrets in (self._active, self._helper)]
        self._next_window = first_window

    def __repr__(self) -> str:
        """Counts; no secret."""
        return f"Dealer(windows={self._next_window})"

    def active_secrets(self) -> ServerSecrets:
        """For server A."""
        return self._active

    def helper_secrets(self) -> ServerSecrets:
        """For server B."""
        return self._helper

    def participant_secrets(self, participant: int) -> ParticipantSecrets:
        """For the participant of that number."""
        return ParticipantSecrets(
            self._active.inputs[participant], self._helper.inputs[participant]
        )

    def snapshot(self) -> Kept:
        """All secrets and the masks of the state: the next window follows from them alone."""
        sources = (
            self._own,
            self._active.own,
            self._helper.own,
            *self._active.inputs,
            *self._helper.inputs,
        )
        header = {
            "epoch": self.epoch,
            "window": self._next_window,
            "secrets": "".join(source.to_bytes().hex() for source in sources),
            "first_window": self.first_window,
            "idle": self.terms.idle,
            "handover": None if self.handover is None else self.handover.to_record(),
        }
        if not self.terms.is_root:
            return Kept(header, self._covariance.kept())
        words = {"rows": self._rows, "columns": self._columns, "theta": self._theta}
        return Kept(header, words)

    @classmethod
    def restore(cls, terms: ShareTerms, kept: Kept) -> "Dealer":
        """The dealer that goes on, word for word, as the one that was kept would."""
        secrets = io.BytesIO(kept.secret("secrets"))
        about = kept.record
        dealer = cls(
            terms,
            entropy=secrets.read,
            epoch=about.integer("epoch"),
            first_window=about.integer("first_window") if "first_window" in kept.header else 0,
            handover=Handover.from_record(kept.header.get("handover")),
        )
        dealer._next_window = kept.record.integer("window")
        if not terms.is_root:
            dealer._covariance.restore(kept)
            return dealer
        dealer._rows = kept.take("rows", dealer._rows)
        dealer._columns = kept.take("columns", dealer._columns)
        dealer._theta = kept.take("theta", dealer._theta)
        return dealer

    @property
    def next_window(self) -> int:
        """The number of the window that is dealt next."""
        return self._next_window

    def deal(self) -> WindowDeal:
        """The next window.  Almost never are masks such that a number could wrap: then again."""
        window = self._next_window
        self._next_window += 1
        for attempt in range(MAX_ATTEMPTS - 1):
            with suppress(SharesError):
                return self._deal(window, attempt)
        return self._deal(window, MAX_ATTEMPTS - 1)

    def _deal(self, window: int, attempt: int) -> WindowDeal:
        terms = self.terms
        n, d = terms.window, terms.dim
        rows = _Window(zeros(n, d), zeros(n, d), zeros(1, n))
        n_places = max(n, terms.decisions)
        places = [Place(self.epoch, window, attempt, slot) for slot in range(n_places)]
        handover = None
        if window == self.first_window and self.handover is not None:
            handover = self._deal_handover(places[0], self.handover)
        if not terms.is_root:
            return self._deal_covariance(places, handover)
        rewards = tuple(self._deal_reward(place, rows) for place in places[:n])
        decisions = tuple(self._deal_decision(place, rows) for place in places[: terms.decisions])
        fold, root, theta = self._deal_fold(places[0], rows)
        # Last: an attempt that fails leaves no trace.
        self._rows = add(self._rows, root)
        self._columns = block_columns(self._rows)
        self._theta = add(self._theta, theta)
        return WindowDeal(
            window=window,
            attempt=attempt,
            decisions=decisions,
            rewards=rewards,
            fold=fold,
            handover=handover,
        )

    def _deal_handover(self, place: Place, plan: Handover) -> HandoverDeal:
        """Words of a hand-over; the state has the gaps after it from now on."""
        terms, change = self.terms, plan.in_blocks(self.terms)
        shapes = state_words(change)
        A = handover_sheet(self._active.own, place, shapes)
        B = handover_sheet(self._helper.own, place, shapes | {"mask_scalars": (n_factors(change),)})
        gaps = dealt_gaps(A, B, change)
        masks, opened = zeros(0), zeros(0)
        if change.lost:
            # B alone masks its factors.
            leaving = EliminationDealer(gaps, negative(B.take("mask_scalars")), change)
            for step in steps_of(change):
                leaving.deal(
                    step,
                    handover_sheet(self._active.own, step.place(place), step.active_words()),
                    handover_sheet(self._helper.own, step.place(place), step.helper_words()),
                )
            gaps = leaving.result()
            masks, opened = (np.concatenate(m, axis=1) for m in (leaving.masks, leaving.opened))
        after = placed(gaps, change, is_gap=True)
        if terms.is_root:
            self._rows, self._theta = after.matrix, after.theta[:, None]
            self._columns = block_columns(self._rows)
        else:
            self._covariance = CovarianceDealer(terms, after.matrix, after.theta[:, None])
        return HandoverDeal(place, plan.to_numbers(), masks, opened)

    def _deal_covariance(self, places: list[Place], handover: HandoverDeal | None) -> WindowDeal:
        form, rows = self._covariance, CovarianceWindow(self.terms)
        rewards = tuple(
            form.deal_reward(place, *self._sheets("learn", place), rows)
            for place in places[: self.terms.window]
        )
        decisions = tuple(
            form.deal_decision(
                place,
                *self._sheets("decide", place),
                [masks.take(place) for masks in self._inputs],
                rows,
                self._secret_bits(place),
            )
            for place in places[: self.terms.decisions]
        )
        first = places[0]
        fold, after = form.deal_fold(first, *self._sheets("fold", first), rows)
        self._covariance = after  # last: an attempt that fails leaves no trace
        return WindowDeal(
            window=first.window,
            attempt=first.attempt,
            decisions=decisions,
            rewards=rewards,
            fold=fold,
            handover=handover,
        )

    def _sheets(self, kind: str, place: Place) -> tuple[Sheet, Sheet]:
        name, (active, helper) = sheet_name(kind, place), self._layouts[kind]
        return self._active.own.sheet(name, active), self._helper.own.sheet(name, helper)

    def _deal_reward(self, place: Place, rows: _Window) -> RewardDeal:
        i = place.slot
        A, B = self._sheets("learn", place)
        a, g, h = rows.a[:, :i], rows.g[:, :i], rows.h[:, :, :i]
        x = subtract(A.take("mask_context"), B.take("mask_context"))[:, None]
        overlaps = _fresh(gap_term(x, g), A, B, "overlaps")
        u = overlaps.gap
        f = _fresh(subtract(state_term(x, self._columns), _mixed(u, a)), A, B, "whitened")
        projections = _fresh(gap_term(f.gap, a), A, B, "projections")
        gain_term = subtract(state_term(f.gap, self._rows), _mixed(projections.gap, g))
        gain = _fresh(gain_term, A, B, "gain")
        mean_term = add(gap_term(x, self._theta), gap_term(h, u))
        difference = _fresh(negative(mean_term), A, B, "difference")
        rho = add(A.take("rho_square"), B.take("rho_square"))
        square = subtract(rho, gap_term(f.gap, f.gap)[:, 0])
        table = self.terms.scalars.coefficients(short_mask(square, bits=PRODUCT_BITS))[:, 0]
        scalars = _fresh(zeros(1, 2), A, B, "scalars")
        weight, step = scalars.gap[:, 0, :1], scalars.gap[:, 0, 1:]
        row = _fresh(scaled_gap_term(weight, f.gap), A, B, "row")
        residual = _fresh(scaled_gap_term(step, difference.gap), A, B, "residual")
        rows.a[:, i], rows.g[:, i] = row.gap[:, 0], gain.gap[:, 0]
        rows.h[:, 0, i : i + 1] = residual.gap[:, 0]
        return RewardDeal(
            place,
            overlaps=overlaps.A[:, 0],
            whitened=f.A[:, 0],
            projections=projections.A[:, 0],
            difference=difference.A[:, 0],
            coefficients=subtract(table, B.take("coefficients")),
            scalars=scalars.A[:, 0],
            gain=gain.A[:, 0],
            row=row.A[:, 0],
            residual=residual.A[:, 0],
        )

    def _deal_decision(self, place: Place, rows: _Window) -> DecisionDeal:
        terms = self.terms
        A, B = self._sheets("decide", place)
        inputs = [masks.take(place) for masks in self._inputs]
        lift = zeros(0, 0)
        if terms.lift_rows:
            inputs = deal_lift(terms, A, B, subtract(*inputs))
            lift = inputs[0]
        else:
            inputs = [scored_rows(terms, part, terms.max_arms) for part in inputs]
        tau = negative(rows.h)
        direction_term = zeros(1, terms.dim)
        projections = zeros(1, 0)
        if terms.is_noisy:
            z = subtract(A.take("mask_noise"), B.take("mask_noise"))[:, None]
            t = _fresh(gap_term(z, rows.a), A, B, "projections")
            projections = t.A
            tau = add(t.gap, tau)
            direction_term = state_term(z, self._rows)
        y = _fresh(direction_term, A, B, "direction")
        w = add(self._theta, y.gap)
        products = theta_times(subtract(*inputs), w)
        scores = negative(add(products, products))
        context = chosen(terms, A.take("mask_choice"), inputs[1])
        order = shuffled(A.take("order"))
        ranks, rho = A.take("mask_ranks"), B.take("rho_scores")
        masks = shuffled_masks(ranks, rho, order, bits=PRODUCT_BITS)
        words = words_of_tables(B.take("tables"))
        tables, tops = deal_tables(masks, self._secret_bits(place), words)
        half = tables.shape[1] // 2
        terms_of_rows = scaled_gap_term(tau[:, 0], rows.g)
        return DecisionDeal(
            place,
            projections=projections[:, 0],
            direction=y.A[:, 0],
            rows=clipped(negative(add(terms_of_rows, B.take("blind_rows")))),
            scores=subtract(scores, B.take("blind_scores")),
            context=subtract(context, B.take("blind_context")),
            tables=np.stack((tables[:, :half], tables[:, half:])),
            tops=tops ^ (B.take("flips")[0] & np.uint64(1)).astype(np.uint8),
            lift=lift,
        )

    def _secret_bits(self, place: Place) -> Numbers:
        sheet = self._own.sheet(sheet_name("dealer", place), self.terms.dealer_words())
        return np.asarray(sheet.take("bits")[0])

    def _deal_fold(self, place: Place, rows: _Window) -> tuple[FoldDeal, Words, Words]:
        """The deal, and the gaps of the changes of G and theta."""
        A, B = self._sheets("fold", place)
        g, a = (np.ascontiguousarray(part.swapaxes(1, 2)) for part in (rows.g, rows.a))
        rho = add(A.take("rho_root"), B.take("rho_root"))
        n = self.terms.n_blocks
        parts = zip(split_blocks(g, n), split_blocks(a, n), strict=True)
        term = np.hstack([gap_term(*part) for part in parts])
        root = _mask(narrow_mask(add(rho, term)), B.take("mask_root"))
        theta = _fresh(_mixed(rows.h, rows.g), A, B, "theta")
        return FoldDeal(place, root=root.A, theta=theta.A[:, 0]), root.gap, theta.gap


def sheet_name(kind: str, place: Place) -> SheetName:
    """The name of the words that one slot uses."""
    return SheetName(kind, *place)


def state_term(v: Words, rows: Words) -> Words:
    """The dealer's term of twice the products of v with the state, from their gaps."""
    return by_blocks(gap_term, v, rows)


class InputMasks:
    """One server's masks of the contexts of a window, drawn for all slots together."""

    __slots__ = ("_has_constant", "_idle", "_layouts", "_masks", "_secrets", "_window")

    def __init__(self, secrets: ServerSecrets, terms: ShareTerms) -> None:
        self._secrets = secrets
        self._has_constant = terms.intercept
        self._layouts = [Layout(terms.input_words(j)) for j in range(len(terms.widths))]
        self._idle = terms.idle
        self._window: tuple[int, ...] = ()
        self._masks: dict[int, Words] = {}

    def take(self, place: Place) -> Words:
        """The masks of one decision, (input_rows, user_dim), from all participants; once."""
        masks = self.look(place)
        del self._masks[place.slot]
        return masks

    def look(self, place: Place) -> Words:
        """The masks that ``take`` will give."""
        if place[:3] != self._window:
            self._window = place[:3]
            name = sheet_name("input", of_window(place))
            blocks = [
                source.sheet(name, layout).take_stacked()
                for source, layout in zip(self._secrets.inputs, self._layouts, strict=True)
            ]
            if self._idle:  # public zeros
                blocks.append(np.zeros((*blocks[0].shape[:3], self._idle), np.uint64))
            if self._has_constant:  # everybody knows it, and it has no mask
                blocks.insert(0, np.zeros((*blocks[0].shape[:3], 1), np.uint64))
            self._masks = dict(enumerate(np.concatenate(blocks, axis=3)))
        try:
            return self._masks[place.slot]
        except KeyError:
            raise SharesError(f"the masks of {place} were taken before") from None


def absent_columns(terms: ShareTerms, absent: Bits) -> NDArray[np.bool_]:
    """Which columns of a row, (user_dim,), belong to absent participants."""
    columns = np.repeat(absent.astype(bool), terms.widths)
    constant, idle = np.zeros(int(terms.intercept), bool), np.zeros(terms.idle, bool)
    return np.concatenate((constant, columns, idle))


def of_window(place: Place) -> Place:
    """What names words for all decisions of a window."""
    return place._replace(slot=0)


def _mask(whole: Words, helper: Words) -> Mask:
    """A mask λ of which B has its part already."""
    active = subtract(whole, helper)
    return Mask(active, subtract(active, helper))


def _fresh(term: Words, A: Sheet, B: Sheet, name: str) -> Mask:
    """The mask of a row of products after its parts were exchanged under ρ_A and ρ_B and reopened.

    ``term`` is the dealer's of twice the products, (1, n); the first n words are used.
    """
    n = term.shape[2]
    rho = add(A.take(f"rho_{name}")[:, None, :n], B.take(f"rho_{name}")[:, None, :n])
    return _mask(reopened_mask(subtract(rho, term)), B.take(f"mask_{name}")[:, None, :n])


def _mixed(weights: Words, rows: Words) -> Words:
    """The dealer's term of twice Σ_l weights_l·rows_l, from gaps (1, n) and (n, d)."""
    products = times(weights, rows)
    return negative(add(products, products))
