"""Server B, the helper: answers server A, one slot after the other, and learns nothing.

It keeps m and λ_B of the state, and shares of the contexts that wait for a reward.  All that it
receives is under masks of A or of both servers, but for counts and the results of comparisons,
which come in an order that only A knows.
"""

import os
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.mask import Entropy
from vfbandits.core.ring import (
    SECRET_SIZE,
    Sheet,
    Words,
    WordSource,
    add,
    cut,
    encode,
    negative,
    open_short,
    reopen,
    short,
    subtract,
    times,
    total,
    zeros,
)
from vfbandits.core.shares import covariance_messages as c
from vfbandits.core.shares import messages as m
from vfbandits.core.shares.comparison import (
    TOLERANCE,
    Bits,
    Lookups,
    Numbers,
    differences,
    is_less,
    look_up,
    pairs_among,
    refuse_large_lookups,
    words_of_tables,
)
from vfbandits.core.shares.covariance import HeldCovariance
from vfbandits.core.shares.covariance_helper import HelperCovariance
from vfbandits.core.shares.dealer import ServerSecrets, input_masks, sheet_name
from vfbandits.core.shares.masked import Known, product_share, rows_share
from vfbandits.core.shares.noise import half_noise
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError

MAX_OPEN = 100_000
ROOT_ONLY = (m.Ask, m.Sample, m.Whiten, m.Learn, m.Settle, m.Fold)
COVARIANCE_ONLY = (c.Score, c.Project, c.Scale, c.Shrink)


class Held(NamedTuple):
    """One server's side of the state: A's T = v + λ_B, or B's λ_B.  Their difference is v.

    ``root`` and ``theta`` are as of the last fold; ``a``, ``g`` and ``h`` are rows learnt since.
    """

    root: Words
    theta: Words
    a: Words
    g: Words
    h: Words


class _Decision:
    """What B keeps of a decision from one step to the next."""

    def __init__(self, sheet: Sheet, X: Known, n_rows: int) -> None:
        self.sheet = sheet
        self.X = X
        self.n_rows = n_rows
        self.noise: Known | None = None
        self.own_projections = zeros(0)
        self.lookups: Lookups = np.zeros(0, np.uint16)
        self.results: Bits = np.zeros(0, np.uint8)
        self.n_live = 0


class _Reward:
    """What B keeps of a reward from one step to the next."""

    def __init__(self, sheet: Sheet, x: Known, overlaps: Words) -> None:
        self.sheet = sheet
        self.x = x
        self.own_overlaps = overlaps
        self.f = x
        self.own_projections = zeros(0)
        self.own_square = np.zeros(1, np.uint64)
        self.own_difference = zeros(1)
        self.own_row = zeros(0)
        self.own_residual = zeros(1)
        self.gain: Known | None = None


class Helper:
    """The helper's end of the protocol: one message in, one message out.

    A repeated message gets the same answer.  Another message for the same step of a slot is
    refused, and so is a slot of a window that is over.
    """

    def __init__(
        self,
        terms: ShareTerms,
        secrets: ServerSecrets,
        *,
        entropy: Entropy = os.urandom,
        max_open: int = MAX_OPEN,
        epoch: int = 0,
    ) -> None:
        n, d = terms.window, terms.dim
        self.terms = terms
        self._secrets = secrets
        self._noise = WordSource(entropy(SECRET_SIZE))
        self._max_open = max_open
        self._root = Known(_identity(d), zeros(d, d))
        self._theta = Known(zeros(1, d), zeros(1, d))
        self._a, self._g = (Known(zeros(n, d), zeros(n, d)) for _ in range(2))
        self._h = Known(zeros(1, n), zeros(1, n))
        self._covariance = HelperCovariance(terms)
        self._n_rows = 0
        self._epoch = epoch
        self._window = 0
        self._attempt: int | None = None
        self._decisions: dict[int, _Decision] = {}
        self._rewards: dict[int, _Reward] = {}
        self._answered: dict[tuple[int, int], tuple[m.Message, m.Message]] = {}
        self._last_fold: tuple[m.Fold | c.Shrink, m.Message] | None = None
        self._open: OrderedDict[tuple[int, int], Words] = OrderedDict()

    def __repr__(self) -> str:
        """Counts; no share."""
        return f"Helper(window={self._window}, rows={self._n_rows}, open={len(self._open)})"

    def answer(self, message: m.Message) -> m.Message:
        """The answer to one message of A's."""
        place = message.place
        if place.epoch != self._epoch:
            raise SharesError(f"epoch {self._epoch} is open, got a message for {place.epoch}")
        if isinstance(message, m.Fold | c.Shrink) and place.window == self._window - 1:
            return self._folded_again(message)
        if place.window != self._window or self._attempt not in (None, place.attempt):
            raise SharesError(
                f"window {self._window} is open, got a message for window {place.window}, attempt "
                f"{place.attempt}"
            )
        key = (message.KIND, place.slot)
        before = self._answered.get(key)
        if before is not None:
            if before[0].to_bytes() != message.to_bytes():
                raise SharesError(
                    f"slot {place.slot} of window {place.window} was used before: a second message "
                    "under the same words would show the difference of the two"
                )
            return before[1]
        self._refuse_other_shapes(message)
        reply = self._respond(message)
        self._attempt = place.attempt
        if isinstance(message, m.Fold | c.Shrink):
            self._turn(message, reply)
        else:
            self._answered[key] = message, reply
        return reply

    def _refuse_other_shapes(self, message: m.Message) -> None:
        """Before a word of the slot is taken: the right message may still come."""
        if isinstance(message, COVARIANCE_ONLY if self.terms.is_root else ROOT_ONLY):
            raise SharesError(
                f"a {type(message).__name__} message is of another form of the state: the servers' "
                "terms do not match"
            )
        d, n = self.terms.dim, self._n_rows
        if isinstance(message, m.Sample) and self.terms.is_noisy:
            n = self._decision(message).n_rows
        elif isinstance(message, m.Sample):
            n = 0
        elif isinstance(message, m.Whiten | m.Learn | m.Settle):
            self._reward(message)
        shapes: dict[type[m.Message], dict[str, tuple[int, ...]]] = {
            m.Sample: {"projections": (n,), "direction": (d,)},
            m.Pick: {"choice": (self.terms.max_arms,)},
            m.Recall: {"context": (d,)},
            m.Whiten: {"overlaps": (n,), "whitened": (d,)},
            m.Learn: {
                "projections": (n,),
                "square": (1,),
                "difference": (1,),
                "scalars": (2,),
                "gain": (d,),
            },
            m.Settle: {"row": (d,), "residual": (1,)},
            m.Fold: {"root": (d, d), "theta": (d,)},
        }
        if isinstance(message, COVARIANCE_ONLY):
            shapes[type(message)] = self._covariance.shapes(message, n)
        for name, shape in shapes.get(type(message), {}).items():
            came = getattr(message, name).shape
            came = came if name == "square" else came[1:]
            if came != shape:
                raise SharesError(
                    f"wanted {name} of shape {shape} in a {type(message).__name__} message, got "
                    f"{came}"
                )

    def held(self) -> Held | HeldCovariance:
        """B's side of the state, for a federation in one process."""
        n = self._n_rows
        if not self.terms.is_root:
            return self._covariance.held(n)
        a, g = self._a.part[:, :n], self._g.part[:, :n]
        return Held(self._root.part, self._theta.part, a, g, self._h.part[:, :, :n])

    def half_noise(self, event: tuple[int, int]) -> Words:
        """B's half of the noise of a decision in its window, (dim,): for a plain twin."""
        window, slot = event
        place = m.Place(self._epoch, window, self._attempt or 0, slot)
        return half_noise(self._noise, self.terms, place)

    def _respond(self, message: m.Message) -> m.Message:  # noqa: PLR0911  (one for each kind)
        match message:
            case m.Ask():
                return self._ask(message)
            case m.Sample():
                return self._sample(message)
            case m.Compare():
                return self._compare(message)
            case m.Results():
                return self._results(message)
            case m.Pick():
                return self._pick(message)
            case m.Recall():
                return self._recall(message)
            case m.Whiten():
                return self._whiten(message)
            case m.Learn():
                return self._learn(message)
            case m.Settle():
                return self._settle(message)
            case m.Fold():
                return self._fold(message)
            case c.Score() | c.Project() | c.Scale() | c.Shrink():
                return self._respond_covariance(message)
        raise SharesError(f"a helper does not answer a {type(message).__name__} message")

    # Decisions.

    def _begun(self, ask: m.Ask | c.Score) -> _Decision:
        """The decision that a first message begins."""
        terms, place = self.terms, ask.place
        n_arms = ask.contexts.shape[1]
        if ask.contexts.shape[1:] != (n_arms, terms.dim) or not 1 <= n_arms <= terms.max_arms:
            raise SharesError(
                f"wanted contexts of 1 to {terms.max_arms} arms and {terms.dim} features, got "
                f"shape {ask.contexts.shape[1:]}"
            )
        if ask.n_rows != self._n_rows or place.slot >= terms.decisions:
            raise SharesError(
                f"wanted slot 0 to {terms.decisions - 1} after {self._n_rows} rewards"
            )
        sheet = self._secrets.own.sheet(sheet_name("decide", place), terms.helper_decision_words())
        masks = input_masks(self._secrets, terms, place)
        decision = _Decision(sheet, Known(ask.contexts, masks), ask.n_rows)
        self._decisions[place.slot] = decision
        return decision

    def _ask(self, ask: m.Ask) -> m.Asked:
        terms, place = self.terms, ask.place
        decision = self._begun(ask)
        sheet = decision.sheet
        if not terms.is_noisy:
            return m.Asked(place, noise=zeros(0), projections=zeros(0))
        mask = sheet.take("mask_noise")
        own = add(half_noise(self._noise, terms, place), mask)
        z = Known(add(own, ask.noise)[:, None], mask[:, None])
        decision.noise = z
        share = rows_share(z, self._a.rows(ask.n_rows))[:, 0]
        decision.own_projections = cut(add(share, sheet.take("rho_projections")[:, : ask.n_rows]))
        return m.Asked(place, noise=own, projections=decision.own_projections)

    def _sample(self, message: m.Sample) -> m.Sampled:
        decision = self._decision(message)
        sheet, n = decision.sheet, decision.n_rows
        g, h = self._g.rows(n), Known(self._h.m[:, :, :n], self._h.part[:, :, :n])
        tau = Known(negative(h.m), negative(h.part))
        share = sheet.take("rho_direction")[:, None]
        if decision.noise is not None:
            opened = reopen(decision.own_projections, message.projections)
            part = sheet.take("mask_projections")[:, :n]
            tau = Known(opened[:, None], part[:, None]).plus(tau)
            share = add(share, rows_share(decision.noise, self._root))
        share = subtract(share, product_share(tau, g))
        share = add(share, total(sheet.take("blind_rows")[:, :n])[:, None])[:, 0]
        own = cut(share)
        y = Known(reopen(own, message.direction)[:, None], sheet.take("mask_direction")[:, None])
        w = self._theta.plus(y)
        X = decision.X
        n_arms = X.m.shape[1]
        scores = rows_share(Known(X.m, X.part[:, :n_arms]), w)[:, :, 0]
        for part_name in ("blind_scores", "rho_scores"):
            scores = add(scores, sheet.take(part_name)[:, :n_arms])
        return m.Sampled(message.place, direction=own, scores=scores)

    def _compare(self, message: m.Compare) -> m.Compared:
        decision = self._decision(message)
        sheet = decision.sheet
        live = np.flatnonzero(message.live)
        if len(live) != decision.X.m.shape[1] or len(message.live) != self.terms.max_arms:
            raise SharesError(f"wanted as many live positions as arms, got {len(live)}")
        i, j, places = pairs_among(live, self.terms.max_arms)
        if len(message.numbers) != len(live) or message.lookups.shape != i.shape:
            raise SharesError(
                f"wanted {len(live)} numbers and {len(i)} look-ups, got {len(message.numbers)} and "
                f"{len(message.lookups)}"
            )
        refuse_large_lookups(message.lookups)
        tables = words_of_tables(sheet.take("tables"))[places]
        x = differences(_at(message.numbers, live, self.terms), i, j, tolerance=TOLERANCE)
        decision.lookups = look_up(x, tables)
        flips = (sheet.take("flips")[0][places] & np.uint64(1)).astype(np.uint8)
        decision.results = is_less(decision.lookups ^ message.lookups, tables) ^ flips
        decision.n_live = len(live)
        return m.Compared(message.place, lookups=decision.lookups)

    def _results(self, message: m.Results) -> m.Candidates:
        decision = self._decision(message)
        if message.results.shape != decision.results.shape:
            raise SharesError(
                f"wanted the results of {len(decision.results)} comparisons, got "
                f"{len(message.results)}"
            )
        results = decision.results ^ message.results
        n = decision.n_live
        candidates = np.asarray(results.reshape(n, n - 1).all(axis=1), dtype=np.uint8)
        return m.Candidates(message.place, candidates=candidates)

    def _pick(self, message: m.Pick) -> m.Picked:
        decision = self._decision(message)
        share = negative(times(message.choice[:, None], decision.X.part)[:, 0])
        place = message.place
        self._open[place.window, place.slot] = add(share, decision.sheet.take("blind_context"))
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)
        return m.Picked(place)

    def _decision(self, message: m.Message) -> _Decision:
        try:
            return self._decisions[message.place.slot]
        except KeyError:
            raise SharesError(f"no decision was asked for in slot {message.place.slot}") from None

    # Rewards.

    def _recall(self, message: m.Recall) -> m.Recalled:
        place, terms = message.place, self.terms
        if place.slot != self._n_rows:
            raise SharesError(f"the next reward has slot {self._n_rows}, got {place.slot}")
        event = (message.window, message.slot)
        share = zeros(terms.dim) if event == (-1, -1) else self._open.get(event)
        if share is None:
            raise SharesError(f"no context waits for a reward at {event}")
        sheet = self._secrets.own.sheet(sheet_name("learn", place), terms.helper_reward_words())
        mask = sheet.take("mask_context")
        own = add(share, mask)
        x = Known(add(own, message.context)[:, None], mask[:, None])
        n = self._n_rows
        if not terms.is_root:
            overlaps = self._covariance.recall(n, sheet, x)
            self._open.pop(event, None)
            return m.Recalled(place, context=own, overlaps=overlaps)
        overlaps = rows_share(x, self._g.rows(n))[:, 0]
        overlaps = cut(add(overlaps, sheet.take("rho_overlaps")[:, :n]))
        self._rewards[place.slot] = _Reward(sheet, x, overlaps)
        self._open.pop(event, None)
        return m.Recalled(place, context=own, overlaps=overlaps)

    def _whiten(self, message: m.Whiten) -> m.Whitened:
        reward, n = self._reward(message), self._n_rows
        sheet, x, a = reward.sheet, reward.x, self._a.rows(self._n_rows)
        u = Known(
            reopen(reward.own_overlaps, message.overlaps)[:, None],
            sheet.take("mask_overlaps")[:, None, :n],
        )
        share = subtract(product_share(x, self._root), product_share(u, a))[:, 0]
        own = cut(add(share, sheet.take("rho_whitened")))
        opened = reopen(own, message.whitened)
        f = Known(opened[:, None], sheet.take("mask_whitened")[:, None])
        reward.f = f
        projections = rows_share(f, a)[:, 0]
        reward.own_projections = cut(add(projections, sheet.take("rho_projections")[:, :n]))
        reward.own_square = short(add(rows_share(f, f)[:, 0], sheet.take("rho_square")))
        h = Known(self._h.m[:, :, :n], self._h.part[:, :, :n])
        mean = add(rows_share(x, self._theta), rows_share(h, u))[:, 0]
        reward.own_difference = cut(subtract(sheet.take("rho_difference"), mean))
        return m.Whitened(
            message.place,
            whitened=own,
            projections=reward.own_projections,
            square=reward.own_square,
            difference=reward.own_difference,
        )

    def _learn(self, message: m.Learn) -> m.Learnt:
        reward, n = self._reward(message), self._n_rows
        sheet, f = reward.sheet, reward.f
        v = Known(
            reopen(reward.own_projections, message.projections)[:, None],
            sheet.take("mask_projections")[:, None, :n],
        )
        gain = subtract(rows_share(f, self._root), product_share(v, self._g.rows(n)))
        gain = cut(add(gain[:, 0], sheet.take("rho_gain")))
        opened = open_short(reward.own_square, message.square)
        scalars = self.terms.scalars.share(opened, sheet.take("coefficients")[:, None])[:, 0]
        scalars = cut(add(scalars, sheet.take("rho_scalars")))
        opened_scalars, part = reopen(scalars, message.scalars), sheet.take("mask_scalars")
        weight, step = (
            Known(opened_scalars[:, None, k : k + 1], part[:, None, k : k + 1]) for k in range(2)
        )
        difference = Known(
            reopen(reward.own_difference, message.difference)[:, None],
            sheet.take("mask_difference")[:, None],
        )
        reward.own_row = cut(add(product_share(weight, f)[:, 0], sheet.take("rho_row")))
        residual = product_share(step, difference)[:, 0]
        reward.own_residual = cut(add(residual, sheet.take("rho_residual")))
        reward.gain = Known(reopen(gain, message.gain), sheet.take("mask_gain"))
        return m.Learnt(
            message.place,
            scalars=scalars,
            gain=gain,
            row=reward.own_row,
            residual=reward.own_residual,
        )

    def _settle(self, message: m.Settle) -> m.Settled:
        reward, n = self._reward(message), self._n_rows
        if reward.gain is None:
            raise SharesError(f"no reward was learnt in slot {message.place.slot}")
        sheet = reward.sheet
        row = reopen(reward.own_row, message.row)
        residual = reopen(reward.own_residual, message.residual)
        self._g.m[:, n], self._g.part[:, n] = reward.gain
        self._a.m[:, n], self._a.part[:, n] = row, sheet.take("mask_row")
        self._h.m[:, 0, n : n + 1] = residual
        self._h.part[:, 0, n : n + 1] = sheet.take("mask_residual")
        self._n_rows += 1
        return m.Settled(message.place)

    def _reward(self, message: m.Message) -> _Reward:
        try:
            return self._rewards[message.place.slot]
        except KeyError:
            raise SharesError(f"no context was recalled in slot {message.place.slot}") from None

    def _refuse_unless_full(self) -> None:
        if self._n_rows != self.terms.window:
            raise SharesError(
                f"a window is folded after {self.terms.window} rewards, got {self._n_rows}"
            )

    def _fold(self, message: m.Fold) -> m.Folded:
        self._refuse_unless_full()
        sheet = self._secrets.own.sheet(
            sheet_name("fold", message.place), self.terms.helper_fold_words()
        )
        columns = Known(*(np.ascontiguousarray(w.swapaxes(1, 2)) for w in self._g))
        root = cut(add(product_share(columns, self._a), sheet.take("rho_root")))
        theta = cut(add(product_share(self._h, self._g)[:, 0], sheet.take("rho_theta")))
        change = Known(reopen(root, message.root), sheet.take("mask_root"))
        shift = Known(reopen(theta, message.theta)[:, None], sheet.take("mask_theta")[:, None])
        self._root, self._theta = self._root.minus(change), self._theta.plus(shift)
        return m.Folded(message.place, root=root, theta=theta)

    def _respond_covariance(self, message: c.Score | c.Project | c.Scale | c.Shrink) -> m.Message:
        form, place = self._covariance, message.place
        if isinstance(message, c.Score):
            decision = self._begun(message)
            n_arms = message.contexts.shape[1]
            X = Known(decision.X.m, decision.X.part[:, :n_arms])
            return form.score(message, decision.sheet, X)
        if isinstance(message, c.Project):
            return form.project(message)
        if isinstance(message, c.Scale):
            scaled = form.scale(message)
            self._n_rows += 1
            return scaled
        self._refuse_unless_full()
        sheet = self._secrets.own.sheet(sheet_name("fold", place), self.terms.helper_fold_words())
        return form.fold(message, sheet)

    def _folded_again(self, message: m.Fold | c.Shrink) -> m.Message:
        """The answer to the last fold, which may have been lost on its way."""
        if self._last_fold is None or self._last_fold[0].to_bytes() != message.to_bytes():
            raise SharesError(
                f"window {message.place.window} was folded before: a second message under the same "
                "words would show the difference of the two"
            )
        return self._last_fold[1]

    def _turn(self, message: m.Fold | c.Shrink, reply: m.Message) -> None:
        """Begin the next window; but for this fold, slots of the old one are not answered again."""
        self._last_fold = message, reply
        self._window += 1
        self._attempt = None
        self._n_rows = 0
        self._decisions.clear()
        self._rewards.clear()
        self._answered.clear()


def _identity(dim: int) -> Words:
    return encode(np.eye(dim), bound=1.0, what="a unit matrix")


def _at(numbers: Numbers, live: NDArray[np.intp], terms: ShareTerms) -> Numbers:
    """Numbers of the live positions, each at its position."""
    placed = np.zeros(terms.max_arms, np.uint64)
    placed[live] = numbers
    return placed
