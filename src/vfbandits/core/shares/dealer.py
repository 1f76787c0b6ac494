"""The dealer: correlated randomness for both servers, made ahead of time.

It knows every mask and sees no message, so it learns nothing.  Server B and the participants get
secrets once; server A gets secrets, and words for each slot.  Each of those words is blinded by a
word of B's stream that blinds nothing else: were two alternatives of one value blinded by the same
word, their difference would show masks of B.
"""

import os
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from vfbandits.core.mask import Entropy
from vfbandits.core.ring import (
    SECRET_SIZE,
    Sheet,
    SheetName,
    Words,
    WordSource,
    add,
    negative,
    rows_times,
    short_mask,
    subtract,
    times,
    zeros,
)
from vfbandits.core.shares.comparison import (
    Numbers,
    deal_tables,
    shuffled,
    shuffled_masks,
    words_of_tables,
)
from vfbandits.core.shares.covariance_dealer import CovarianceDealer, CovarianceWindow
from vfbandits.core.shares.masked import Mask, cross, fresh, fresh_matrix, row_of
from vfbandits.core.shares.messages import DecisionDeal, FoldDeal, Place, RewardDeal, WindowDeal
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


@dataclass(slots=True)
class _Window:
    """Masks of the rows that a window's rewards leave."""

    a: Mask
    g: Mask
    h: Mask
    rewards: list[RewardDeal] = field(default_factory=list)


class Dealer:
    """Makes secrets and windows of words; keeps the masks of the state and forgets the rest."""

    def __init__(self, terms: ShareTerms, *, entropy: Entropy = os.urandom, epoch: int = 0) -> None:
        n = len(terms.widths)
        self.terms = terms
        self.epoch = epoch
        sources = [WordSource(entropy(SECRET_SIZE)) for _ in range(2 * n + 3)]
        self._own = sources[0]
        self._active = ServerSecrets(sources[1], tuple(sources[3 : 3 + n]))
        self._helper = ServerSecrets(sources[2], tuple(sources[3 + n :]))
        d = terms.dim
        # G = I and theta = 0 are public at first: they need no mask until the first fold.
        self._root = Mask(zeros(d, d), zeros(d, d))
        self._theta = Mask(zeros(1, d), zeros(1, d))
        self._covariance = CovarianceDealer(terms)
        self._next_window = 0

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
        if not terms.is_root:
            return self._deal_covariance(window, attempt)
        n, d = terms.window, terms.dim
        rows = _Window(
            a=Mask(zeros(n, d), zeros(n, d)),
            g=Mask(zeros(n, d), zeros(n, d)),
            h=Mask(zeros(1, n), zeros(1, n)),
        )
        for slot in range(n):
            rows.rewards.append(self._deal_reward(Place(self.epoch, window, attempt, slot), rows))
        decisions = tuple(
            self._deal_decision(Place(self.epoch, window, attempt, slot), rows)
            for slot in range(terms.decisions)
        )
        fold, root, theta = self._deal_fold(Place(self.epoch, window, attempt, 0), rows)
        self._root, self._theta = root, theta  # last: an attempt that fails leaves no trace
        return WindowDeal(window, attempt, decisions, tuple(rows.rewards), fold)

    def _deal_covariance(self, window: int, attempt: int) -> WindowDeal:
        form, rows = self._covariance, CovarianceWindow(self.terms)

        def place(slot: int) -> Place:
            return Place(self.epoch, window, attempt, slot)

        rewards = tuple(
            form.deal_reward(place(slot), *self._sheets("learn", place(slot)), rows)
            for slot in range(self.terms.window)
        )
        decisions = tuple(
            form.deal_decision(
                place(slot),
                *self._sheets("decide", place(slot)),
                self._input_masks(place(slot)),
                rows,
                self._secret_bits(place(slot)),
            )
            for slot in range(self.terms.decisions)
        )
        fold, after = form.deal_fold(place(0), *self._sheets("fold", place(0)), rows)
        self._covariance = after  # last: an attempt that fails leaves no trace
        return WindowDeal(window, attempt, decisions, rewards, fold)

    def _sheets(self, kind: str, place: Place) -> tuple[Sheet, Sheet]:
        terms = self.terms
        shapes = {
            "decide": (terms.active_decision_words(), terms.helper_decision_words()),
            "learn": (terms.active_reward_words(), terms.helper_reward_words()),
            "fold": (terms.active_fold_words(), terms.helper_fold_words()),
        }[kind]
        name = sheet_name(kind, place)
        return self._active.own.sheet(name, shapes[0]), self._helper.own.sheet(name, shapes[1])

    def _deal_reward(self, place: Place, rows: _Window) -> RewardDeal:
        i, one = place.slot, slice(place.slot, place.slot + 1)
        A, B = self._sheets("learn", place)
        a, g = rows.a.rows(i), rows.g.rows(i)
        h = Mask(rows.h.A[:, :, :i], rows.h.B[:, :, :i])
        x = Mask(row_of(A, "mask_context"), row_of(B, "mask_context"))
        overlaps = fresh(cross(x, g, rows_times), A, B, "overlaps", i)
        whitened_term = subtract(cross(x, self._root, times), cross(overlaps, a, times))
        f = fresh(whitened_term, A, B, "whitened")
        projections = fresh(cross(f, a, rows_times), A, B, "projections", i)
        gain_term = subtract(cross(f, self._root, rows_times), cross(projections, g, times))
        new_g = fresh(gain_term, A, B, "gain")
        mean_term = add(cross(x, self._theta, rows_times), cross(h, overlaps, rows_times))
        difference = fresh(negative(mean_term), A, B, "difference")
        rho_square = add(row_of(A, "rho_square"), row_of(B, "rho_square"))
        square_mask = short_mask(subtract(rho_square, cross(f, f, rows_times)))[0]
        table = self.terms.scalars.coefficients(square_mask)[:, 0]
        scalars = fresh(zeros(1, 2), A, B, "scalars")
        weight, step = (
            Mask(scalars.A[:, :, k : k + 1], scalars.B[:, :, k : k + 1]) for k in range(2)
        )
        new_a = fresh(cross(weight, f, times), A, B, "row")
        new_h = fresh(cross(step, difference, times), A, B, "residual")
        for kept, new in ((rows.a, new_a), (rows.g, new_g)):
            kept.A[:, one], kept.B[:, one] = new.A, new.B
        rows.h.A[:, :, one], rows.h.B[:, :, one] = new_h.A, new_h.B
        return RewardDeal(
            place,
            overlaps=overlaps.A[:, 0],
            whitened=f.A[:, 0],
            projections=projections.A[:, 0],
            difference=difference.A[:, 0],
            coefficients=subtract(table, B.take("coefficients")),
            scalars=scalars.A[:, 0],
            gain=new_g.A[:, 0],
            row=new_a.A[:, 0],
            residual=new_h.A[:, 0],
        )

    def _deal_decision(self, place: Place, rows: _Window) -> DecisionDeal:
        terms = self.terms
        A, B = self._sheets("decide", place)
        X = self._input_masks(place)
        tau = Mask(negative(rows.h.A), negative(rows.h.B))
        direction_term = zeros(1, terms.dim)
        projections = zeros(1, 0)
        if terms.is_noisy:
            z = Mask(row_of(A, "mask_noise"), row_of(B, "mask_noise"))
            t = fresh(cross(z, rows.a, rows_times), A, B, "projections")
            projections = t.A
            tau = Mask(add(t.A, tau.A), add(t.B, tau.B))
            direction_term = cross(z, self._root, rows_times)
        y = fresh(direction_term, A, B, "direction")
        w = Mask(add(self._theta.A, y.A), add(self._theta.B, y.B))
        columns = Mask(tau.A.swapaxes(1, 2), tau.B.swapaxes(1, 2))
        scores = cross(X, w, rows_times)[:, :, 0]
        context = times(row_of(A, "mask_choice"), X.B)[:, 0]
        order = shuffled(A.take("order"))
        masks = shuffled_masks(A.take("mask_ranks"), B.take("rho_scores"), order)
        tables, tops = deal_tables(
            masks, self._secret_bits(place), words_of_tables(B.take("tables"))
        )
        half = tables.shape[1] // 2
        return DecisionDeal(
            place,
            projections=projections[:, 0],
            direction=y.A[:, 0],
            rows=negative(add(_scaled(columns, rows.g), B.take("blind_rows"))),
            scores=subtract(scores, B.take("blind_scores")),
            context=subtract(context, B.take("blind_context")),
            tables=np.stack((tables[:, :half], tables[:, half:])),
            tops=tops ^ (B.take("flips")[0] & np.uint64(1)).astype(np.uint8),
        )

    def _input_masks(self, place: Place) -> Mask:
        return Mask(
            *(input_masks(secrets, self.terms, place) for secrets in (self._active, self._helper))
        )

    def _secret_bits(self, place: Place) -> Numbers:
        sheet = self._own.sheet(sheet_name("dealer", place), self.terms.dealer_words())
        return np.asarray(sheet.take("bits")[0])

    def _deal_fold(self, place: Place, rows: _Window) -> tuple[FoldDeal, Mask, Mask]:
        A, B = self._sheets("fold", place)
        g_columns = Mask(rows.g.A.swapaxes(1, 2), rows.g.B.swapaxes(1, 2))
        root_term = cross(g_columns, rows.a, times)
        root = fresh_matrix(root_term, A, B, "root")
        theta = fresh(cross(rows.h, rows.g, times), A, B, "theta")
        deal = FoldDeal(place, root=root.A, theta=theta.A[:, 0])
        new_root = Mask(subtract(self._root.A, root.A), subtract(self._root.B, root.B))
        new_theta = Mask(add(self._theta.A, theta.A), add(self._theta.B, theta.B))
        return deal, new_root, new_theta


def sheet_name(kind: str, place: Place) -> SheetName:
    """The name of the words that one slot uses."""
    return SheetName(kind, place.epoch, place.window, place.attempt, place.slot)


def input_masks(secrets: ServerSecrets, terms: ShareTerms, place: Place) -> Words:
    """One server's masks of the contexts of a decision, (max_arms, dim), from all participants."""
    name = sheet_name("input", place)
    blocks = [
        source.sheet(name, terms.input_words(j)).take("contexts")
        for j, source in enumerate(secrets.inputs)
    ]
    return np.concatenate(blocks, axis=2)


def _scaled(scalars: Mask, rows: Mask) -> Words:
    """The dealer's term of each row times its scalar: scalars (n, 1), rows (n, dim)."""
    n, d = rows.A.shape[1:]
    result = zeros(n, d)
    for k in range(n):
        one = slice(k, k + 1)
        scalar, row = (Mask(mask.A[:, one], mask.B[:, one]) for mask in (scalars, rows))
        result[:, one] = cross(scalar, row, times)
    return result
