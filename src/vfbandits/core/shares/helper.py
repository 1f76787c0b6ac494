"""Server B, the helper: answers server A, one slot after the other, and learns nothing.

It keeps its side of the state, and shares of the contexts that wait for a reward.  All that it
receives is under masks of A or of both servers, but for counts and the results of comparisons,
which come in an order that only A knows.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from vfbandits.core.mask import Entropy
from vfbandits.core.ring import (
    SECRET_SIZE,
    Layout,
    Sheet,
    Words,
    WordSource,
    negative,
    subtract,
    zeros,
)
from vfbandits.core.shares import messages as m
from vfbandits.core.shares.blocks import root_side
from vfbandits.core.shares.comparison import (
    Bits,
    candidates,
    compare,
    refuse_lookups,
)
from vfbandits.core.shares.covariance import messages as c
from vfbandits.core.shares.covariance.form import HeldCovariance
from vfbandits.core.shares.covariance.helper import HelperCovariance, Shapes
from vfbandits.core.shares.dealer import (
    InputMasks,
    ServerSecrets,
    absent_columns,
    sheet_name,
)
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.noise import HalfNoise
from vfbandits.core.shares.root import Held, OpenedRow, Scaled
from vfbandits.core.shares.rows import (
    chosen,
    lift_share,
    lifted,
    lifted_rows,
    scored_rows,
    with_constant,
)
from vfbandits.core.shares.sides import picked, reopen_side, side
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError

MAX_OPEN = 100_000
_NOTHING = zeros(0)


class _Decision:
    """What B keeps of a decision from one step to the next.

    Words are kept until the shown arm is known, which is the last step: the next decision's can
    have their memory.
    """

    def __init__(self, sheet: Sheet, n_rows: int) -> None:
        self._sheet: Sheet | None = sheet
        self.rows = _NO_ROWS
        self.n_arms = 0  # rows that are scored, once contexts have come
        self.n_compared = 0
        self.n_rows = n_rows
        self.z: Words | None = None
        self.own_projections = _NOTHING
        self.results: Bits = _NO_BITS

    @property
    def sheet(self) -> Sheet:
        """The words of its slot, until it is over."""
        if self._sheet is None:
            raise SharesError("the decision of this slot is over: its words are gone")
        return self._sheet

    def take(self, rows: "_Rows") -> None:
        """Contexts have come."""
        self.rows, self.n_arms = rows, rows.m.shape[1]

    def end(self) -> None:
        """Forget the words."""
        self._sheet = None


class _Rows(NamedTuple):
    """The rows of a decision that are scored, and B's masks of as many as there may be.

    ``user`` is B's side of the row that participants share, where there is one for all arms.
    """

    m: Words
    masks: Words
    user: Words | None = None

    @property
    def P(self) -> Words:  # noqa: N802
        """B's side of the rows."""
        return side(self.m, self.masks[:, : self.m.shape[1]])


_NO_ROWS, _NO_BITS = _Rows(zeros(0, 0), zeros(0, 0)), np.zeros(0, np.uint8)


class _Reward:
    """What B keeps of a reward from one step to the next."""

    def __init__(self, sheet: Sheet, x: Words, overlaps: Words) -> None:
        self.sheet = sheet
        self.x = x
        self.own_overlaps = overlaps
        self.row: OpenedRow | None = None
        self.scaled: Scaled | None = None
        self.their_gain = _NOTHING


class _Fields:
    """Shapes that fields of a kind of message must have, compared all in one."""

    __slots__ = ("_known", "_shapes", "_shapes_of")

    def __init__(self, kind: type[m.Message], shapes: "Shapes") -> None:
        self._shapes = shapes
        # With one name more it gives a tuple also where one field is checked.
        self._shapes_of = attrgetter("KIND", *(f"{name}.shape" for name, _ in shapes))
        self._known: list[tuple[object, ...]] = []
        self._known.append((kind.KIND, *self._wanted(0)))

    def _wanted(self, n: int) -> list[tuple[int, ...]]:
        return [(2, n + shape) if isinstance(shape, int) else shape for _, shape in self._shapes]

    def refuse_others(self, message: m.Message, n: int) -> None:
        """Refuse a message with a field of another shape, after n rows of the window."""
        known = self._known
        while len(known) <= n:
            known.append((known[0][0], *self._wanted(len(known))))
        if self._shapes_of(message) == known[n]:
            return
        for (name, _), wanted in zip(self._shapes, self._wanted(n), strict=True):
            came = getattr(message, name).shape
            if came != wanted:
                raise SharesError(
                    f"wanted {name} of shape {wanted} in a {type(message).__name__} message, got "
                    f"{came}"
                )


_Check = Callable[[Any], int]


class _Step(NamedTuple):
    """How a kind of message is answered, and what was answered in this window, by slot.

    ``check`` refuses what does not fit the slot, and gives the number of rows that ``fields``
    depend on; without it that is the number of rows so far.
    """

    answer: Callable[[Any], m.Message]
    check: _Check | None
    fields: _Fields | None
    answered: dict[int, tuple[m.Message, m.Message]]


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
        first_window: int = 0,
    ) -> None:
        self.terms = terms
        self._secrets = secrets
        self._noise = HalfNoise(WordSource(entropy(SECRET_SIZE)), terms)
        self._max_open = max_open
        self._inputs = InputMasks(secrets, terms)
        self._state = root_side(terms)
        self._words_of = {
            "decide": Layout(terms.helper_decision_words()),
            "learn": Layout(terms.helper_reward_words()),
            "fold": Layout(terms.helper_fold_words()),
        }
        self._is_root = terms.is_root
        self._covariance = HelperCovariance(terms)
        self._is_noisy = terms.is_noisy
        self._shared_dim = sum(terms.widths) + terms.idle
        self._steps = self._make_steps()
        self._n_rows = 0
        self._epoch = epoch
        self._window = first_window
        self._attempt: int | None = None
        self._at: tuple[int, ...] = ()  # epoch, window and attempt, once a message has come
        self._decisions: dict[int, _Decision] = {}
        self._lifted: dict[int, tuple[Sheet, _Rows]] = {}
        self._rewards: dict[int, _Reward] = {}
        self._last_fold: tuple[m.Fold | c.Shrink, m.Message] | None = None
        self._open: OrderedDict[tuple[int, int], Words] = OrderedDict()

    def __repr__(self) -> str:
        """Counts; no share."""
        return f"Helper(window={self._window}, rows={self._n_rows}, open={len(self._open)})"

    def answer(self, message: m.Message) -> m.Message:
        """The answer to one message of A's."""
        place = message.place
        at = place[:3]
        if at != self._at:
            if type(message) in FOLDS and place[:2] == (self._epoch, self._window - 1):
                return self._folded_again(message)  # type: ignore[arg-type]  # by its kind
            self._refuse_elsewhere(place)
        kind, slot = type(message), place.slot
        step = self._steps.get(kind)
        if step is None:
            raise SharesError(self._why_not(kind))
        answer, check, fields, answered = step
        if slot in answered:
            before, reply = answered[slot]
            if before.to_bytes() != message.to_bytes():
                raise SharesError(
                    f"slot {slot} of window {place.window} was used before: a second message under "
                    "the same words would show the difference of the two"
                )
            return reply
        # Before a word of the slot is taken: the right message may still come.
        n = self._n_rows if check is None else check(message)
        if fields is not None:
            fields.refuse_others(message, n)
        reply = answer(message)
        self._at = at
        self._attempt = place.attempt
        if kind in FOLDS:
            self._turn(message, reply)  # type: ignore[arg-type]  # by its kind
        else:
            answered[slot] = message, reply
        return reply

    def _refuse_elsewhere(self, place: m.Place) -> None:
        if place.epoch != self._epoch:
            raise SharesError(f"epoch {self._epoch} is open, got a message for {place.epoch}")
        if place.window != self._window or self._attempt not in (None, place.attempt):
            raise SharesError(
                f"window {self._window} is open, got a message for window {place.window}, attempt "
                f"{place.attempt}"
            )

    def _why_not(self, kind: type[m.Message]) -> str:
        if kind in (COVARIANCE_ONLY if self._is_root else ROOT_ONLY):
            return (
                f"a {kind.__name__} message is of another form of the state: the servers' terms do "
                "not match"
            )
        if kind in COMPARISONS:
            return "nothing is compared where statistics are released"
        if kind is m.Pick:
            return "the shown arm comes by its features where they are scored"
        return f"a helper does not answer a {kind.__name__} message"

    def _make_steps(self) -> dict[type[m.Message], _Step]:
        """What is answered under these terms, by the kind of message."""
        terms = self.terms
        others = COVARIANCE_ONLY if terms.is_root else ROOT_ONLY
        if terms.release != "arm":
            others |= COMPARISONS
        if terms.has_units:
            others |= {m.Pick}
        checks: dict[type[m.Message], _Check] = {
            m.Sample: self._check_sample,
            m.Lift: self._refuse_other_arms,
            c.Score: self._check_score,
            **dict.fromkeys((m.Whiten, m.Learn, m.Settle), self._check_reward),
            **dict.fromkeys((c.Project, c.Scale), self._covariance.check),
        }
        shapes = self._covariance.shapes() if not terms.is_root else {}
        shapes |= _shapes(terms)
        return {
            kind: _Step(
                getattr(self, name),
                checks.get(kind),
                _Fields(kind, shapes[kind]) if kind in shapes else None,
                {},
            )
            for kind, name in _STEPS.items()
            if kind not in others
        }

    def _check_sample(self, message: m.Sample) -> int:
        self._refuse_other_contexts(message)
        return self._decision(message).n_rows if self._is_noisy else 0

    def _check_score(self, message: c.Score) -> int:
        self._refuse_other_contexts(message)
        self._covariance.refuse_other_products(message, self._n_rows)
        return self._n_rows

    def _check_reward(self, message: m.Message) -> int:
        self._reward(message)
        return self._n_rows

    def _refuse_other_contexts(self, message: m.Sample | c.Score) -> None:
        terms, contexts, n_arms = self.terms, message.contexts, message.n_arms
        if terms.lift_rows and not terms.has_units:
            found = self._lifted.get(message.place.slot)
            if found is None or found[1].m.shape[1] != n_arms or contexts.size:
                raise SharesError(
                    "wanted contexts by a Lift message before this one, got them here"
                )
            return
        wanted = n_arms if terms.layout == "per_arm" else 1
        dim = self._shared_dim
        is_wrong = terms.has_units and n_arms != terms.max_rows
        if contexts.shape != (2, wanted, dim) or not 1 <= n_arms <= terms.max_rows or is_wrong:
            raise SharesError(
                f"wanted contexts of 1 to {terms.max_rows} arms and {dim} features, got shape "
                f"{contexts.shape[1:]} for {n_arms}"
            )

    def _refuse_other_arms(self, message: m.Lift) -> int:
        terms, n = self.terms, message.arms.shape[1]
        # A user's row comes with the arms of a decision, or was there before its shown arm.
        user = (2, 0, 0) if terms.has_units else (2, 1, sum(terms.widths) + terms.idle)
        if (
            not 1 <= n <= terms.lift_rows
            or message.contexts.shape != user
            or message.arms.shape != (2, n, terms.arm_width)
            or message.products.shape != (2, n, terms.dim)
            or message.place.slot >= terms.decisions
        ):
            raise SharesError(
                f"wanted features of 1 to {terms.lift_rows} arms, {terms.arm_width} of each, got "
                f"shape {message.arms.shape[1:]}"
            )
        return int(n)

    def held(self) -> Held | HeldCovariance:
        """B's side of the state, for a federation in one process."""
        if not self.terms.is_root:
            return self._covariance.side.held(self._n_rows)
        return self._state.held(self._n_rows)

    def snapshot(self) -> Kept:
        """The state between two windows, without the open contexts."""
        if self._attempt is not None:
            raise SharesError(f"a helper is kept between two windows, got window {self._window}")
        header = {
            "epoch": self._epoch,
            "window": self._window,
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
        contexts: Iterable[tuple[tuple[int, int], Words]] = (),
        max_open: int = MAX_OPEN,
    ) -> "Helper":
        """The helper that was kept, with its open contexts, the oldest first."""
        noise, epoch = kept.secret("noise"), kept.record.integer("epoch")
        helper = cls(terms, secrets, entropy=lambda _: noise, max_open=max_open, epoch=epoch)
        helper._window = kept.record.integer("window")
        helper._open.update(contexts)
        (helper._state if terms.is_root else helper._covariance.side).restore(kept)
        return helper

    @property
    def window(self) -> int:
        """The number of the window that is open."""
        return self._window

    @property
    def n_rows(self) -> int:
        """How many rewards this window has."""
        return self._n_rows

    @property
    def next_slot(self) -> int:
        """The slot after the last one in which a decision of this window was asked for."""
        return max(self._decisions, default=-1) + 1

    def open_contexts(self) -> Mapping[tuple[int, int], Words]:
        """Shares of the contexts that wait for a reward, the oldest first."""
        return self._open

    def half_noise(self, event: tuple[int, int]) -> Words:
        """B's half of the noise of a decision in its window, (dim,): for a plain twin."""
        window, slot = event
        place = m.Place(self._epoch, window, self._attempt or 0, slot)
        return self._noise.of(place)

    # Decisions.

    def _absent(self, message: m.Absent) -> m.Absence:
        """Open its masks of blocks that no participant sends: before the slot is asked in."""
        terms, place = self.terms, message.place
        begun = self._decisions.get(place.slot)
        is_late = begun is not None and begun.n_arms
        if is_late or place.slot in self._lifted or place.slot >= terms.decisions:
            raise SharesError(
                f"masks of slot {place.slot} are opened before its contexts come, or never"
            )
        n = len(terms.widths)
        if message.absent.shape != (n,) or not 1 <= message.n_arms <= terms.input_rows:
            raise SharesError(
                f"wanted which of {n} participants are absent, for 1 to {terms.input_rows} rows"
            )
        masks = self._inputs.look(place)[:, : message.n_arms]
        return m.Absence(place, masks=masks[:, :, absent_columns(terms, message.absent)])

    def _begun(self, ask: m.Ask | c.Score) -> _Decision:
        """The decision that a first message begins."""
        terms, place = self.terms, ask.place
        if ask.n_rows != self._n_rows or place.slot >= terms.decisions:
            raise SharesError(
                f"wanted slot 0 to {terms.decisions - 1} after {self._n_rows} rewards"
            )
        decision = _Decision(self._sheet_of(place), ask.n_rows)
        self._decisions[place.slot] = decision
        return decision

    def _take_contexts(self, decision: _Decision, message: m.Sample | c.Score) -> None:
        terms = self.terms
        if message.place.slot in self._lifted:
            decision.take(self._lifted[message.place.slot][1])
            return
        masks = self._inputs.take(message.place)
        if terms.layout == "per_arm":
            decision.take(_Rows(message.contexts, masks))
            return
        user = with_constant(terms, message.contexts)
        rows = _Rows(
            scored_rows(terms, user, message.n_arms),
            scored_rows(terms, masks, terms.max_rows),
            side(user, masks)[:, 0] if terms.has_units else None,
        )
        decision.take(rows)

    def _sheet_of(self, place: m.Place) -> Sheet:
        """The words of a decision, which are drawn once."""
        if place.slot in self._decisions:
            return self._decisions[place.slot].sheet
        if place.slot in self._lifted:
            return self._lifted[place.slot][0]
        return self._sheet("decide", place)

    def _lift(self, message: m.Lift) -> m.Lifted:
        """Rows u ⊗ w: of all arms of a decision before they are scored, or of the shown one."""
        terms, place = self.terms, message.place
        sheet = self._sheet_of(place)
        if terms.has_units:
            u = self._decision(message).rows.user
        else:
            u = side(with_constant(terms, message.contexts), self._inputs.take(place))[:, 0]
        if u is None:
            raise SharesError(f"slot {place.slot} has no row of a user")
        # B has no part of the mask of arm features: its side of them is what A sent.
        own = lift_share(u, message.arms, sheet.take("rho_lift"))
        sent, mask = lifted(own, message.products), sheet.take("mask_lift")
        if terms.has_units:
            self._keep(place, negative(mask[:, 0]))
        else:
            self._lifted[place.slot] = sheet, _Rows(lifted_rows(sent), mask)
        return m.Lifted(place, rows=sent)

    def _ask(self, ask: m.Ask) -> m.Asked:
        terms, place = self.terms, ask.place
        n_noise = terms.dim if terms.is_noisy else 0
        if ask.noise.shape != (2, n_noise):
            raise SharesError(f"wanted {n_noise} numbers of noise, got {ask.noise.shape[1:]}")
        decision = self._begun(ask)
        if not terms.is_noisy:
            return m.Asked(place, noise=_NOTHING, projections=_NOTHING)
        half, n = self._noise.of(place), ask.n_rows
        masked = self._state.mask_noise(decision.sheet, half, ask.noise, n)
        decision.z, decision.own_projections = masked.side, masked.products
        return m.Asked(place, noise=masked.own, projections=masked.products)

    def _sheet(self, kind: str, place: m.Place) -> Sheet:
        return self._secrets.own.sheet(sheet_name(kind, place), self._words_of[kind])

    def _score(self, message: c.Score) -> c.Scored:
        decision = self._begun(message)
        self._take_contexts(decision, message)
        rows = decision.rows
        return self._covariance.score(message, decision.sheet, (rows.m, rows.masks))

    def _sample(self, message: m.Sample) -> m.Sampled:
        decision, state = self._decision(message), self._state
        self._take_contexts(decision, message)
        sheet, inputs = decision.sheet, (decision.rows.m, decision.rows.masks)
        if decision.z is None:
            rho, rows = sheet.take("rho_direction"), sheet.take("blind_rows")
            own = state.share_direction_without_noise(decision.n_rows, rho, rows, 0)
            direction = (own, message.direction, sheet.take("mask_direction"))
            words = sheet.take("blind_scores"), sheet.take("rho_scores")
            scores = state.scores(direction, inputs, *words)
        else:
            theirs = message.projections, message.direction
            own, scores = state.sample(sheet, decision.z, decision.own_projections, theirs, inputs)
        return m.Sampled(message.place, direction=own, scores=scores)

    def _compare(self, message: m.Compare) -> m.Compared:
        decision = self._decision(message)
        sheet, n = decision.sheet, int(np.count_nonzero(message.live))
        # In "disjoint" some of the blocks in use are on offer.
        fits = n <= decision.n_arms if self.terms.n_blocks > 1 else n == decision.n_arms
        if not fits or not n:
            raise SharesError(f"wanted as many live positions as arms, got {n}")
        decision.n_compared = n
        if message.numbers.shape != (n,):
            raise SharesError(f"wanted {n} masked numbers, got {len(message.numbers)}")
        refuse_lookups(message.lookups, n)
        words = sheet.take("tables"), sheet.take("flips")
        lookups, decision.results = compare(message.live, message.numbers, message.lookups, *words)
        return m.Compared(message.place, lookups=lookups)

    def _results(self, message: m.Results) -> m.Candidates:
        decision = self._decision(message)
        n = decision.n_compared
        n_pairs = n * (n - 1)
        if not n or len(decision.results) != n_pairs:
            raise SharesError(f"nothing was compared in slot {message.place.slot}")
        if message.results.shape != (n_pairs,):
            raise SharesError(
                f"wanted the results of {n_pairs} comparisons, got {len(message.results)}"
            )
        found = candidates(decision.results, message.results, n)
        return m.Candidates(message.place, candidates=found)

    def _pick(self, message: m.Pick) -> m.Picked:
        decision = self._decision(message)
        blind, masks = decision.sheet.take("blind_context"), decision.rows.masks
        if self.terms.n_blocks == 1:
            self._keep(message.place, picked(message.choice, masks, blind))
        else:
            share = chosen(self.terms, message.choice, masks)
            self._keep(message.place, subtract(blind, share))
        return m.Picked(message.place)

    def _keep(self, place: m.Place, share: Words) -> None:
        """Keep a share of the context of the shown arm until its reward comes."""
        self._decisions[place.slot].end()
        self._open[place.window, place.slot] = share
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)

    def _decision(self, message: m.Message) -> _Decision:
        decision = self._decisions.get(message.place.slot)
        if decision is None:
            raise SharesError(f"no decision was asked for in slot {message.place.slot}")
        if not decision.n_arms and not isinstance(message, m.Sample):
            raise SharesError(f"no contexts came in slot {message.place.slot}")
        return decision

    # Rewards.

    def _recall(self, message: m.Recall) -> m.Recalled:
        place, terms = message.place, self.terms
        if place.slot != self._n_rows:
            raise SharesError(f"the next reward has slot {self._n_rows}, got {place.slot}")
        event = (message.window, message.slot)
        share = zeros(terms.dim) if event == (-1, -1) else self._open.get(event)
        if share is None:
            raise SharesError(f"no context waits for a reward at {event}")
        sheet = self._sheet("learn", place)
        if self._is_root:
            masked = self._state.mask_context(sheet, share, message.context, self._n_rows)
            own, overlaps = masked.own, masked.products
            self._rewards[place.slot] = _Reward(sheet, masked.side, overlaps)
        else:
            recall = self._covariance.recall
            own, overlaps = recall(place.slot, sheet, share, message.context)
        self._open.pop(event, None)
        return m.Recalled(place, context=own, overlaps=overlaps)

    def _whiten(self, message: m.Whiten) -> m.Whitened:
        reward, state = self._reward(message), self._state
        theirs = message.overlaps, message.whitened
        own, row = state.whiten_and_open(reward.sheet, reward.x, reward.own_overlaps, theirs)
        reward.row = row
        return m.Whitened(
            message.place,
            whitened=own,
            projections=row.projections,
            square=row.square[0],
            difference=row.difference,
        )

    def _learn(self, message: m.Learn) -> m.Learnt:
        reward, state = self._reward(message), self._state
        if reward.row is None:
            raise SharesError(f"no context was whitened in slot {message.place.slot}")
        scaled = reward.scaled = state.gain_and_scale(reward.sheet, reward.row, message)
        reward.their_gain = message.gain
        return m.Learnt(message.place, *scaled)

    def _settle(self, message: m.Settle) -> m.Settled:
        reward = self._reward(message)
        if reward.scaled is None:
            raise SharesError(f"no reward was learnt in slot {message.place.slot}")
        theirs = message.row, message.residual
        self._state.settle(self._n_rows, reward.sheet, reward.scaled, reward.their_gain, theirs)
        del self._rewards[message.place.slot]
        self._n_rows += 1
        return m.Settled(message.place)

    def _project(self, message: c.Project) -> c.Projected:
        return self._covariance.project(message)

    def _scale(self, message: c.Scale) -> c.Scaled:
        scaled_row = self._covariance.scale(message)
        self._n_rows += 1
        return scaled_row

    def _reward(self, message: m.Message) -> _Reward:
        try:
            return self._rewards[message.place.slot]
        except KeyError:
            raise SharesError(f"no context was recalled in slot {message.place.slot}") from None

    def _shrink(self, message: c.Shrink) -> c.Shrunk:
        self._refuse_unless_full()
        return self._covariance.fold(message, self._sheet("fold", message.place))

    def _fold(self, message: m.Fold) -> m.Folded:
        self._refuse_unless_full()
        sheet, state = self._sheet("fold", message.place), self._state
        root, theta = state.changes(sheet.take("rho_root"), sheet.take("rho_theta"))
        shifted = reopen_side(theta, message.theta, sheet.take("mask_theta"), state.theta)
        state.fold(root, message.root, sheet.take("mask_root"))
        state.shift(shifted)
        return m.Folded(message.place, root=root, theta=theta)

    def _refuse_unless_full(self) -> None:
        if self._n_rows != self.terms.window:
            raise SharesError(
                f"a window is folded after {self.terms.window} rewards, got {self._n_rows}"
            )

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
        self._attempt, self._at = None, ()
        self._n_rows = 0
        self._decisions.clear()
        self._lifted.clear()
        self._rewards.clear()
        for step in self._steps.values():
            step.answered.clear()


_STEPS: dict[type[m.Message], str] = {
    m.Absent: "_absent",
    m.Lift: "_lift",
    m.Ask: "_ask",
    m.Sample: "_sample",
    m.Compare: "_compare",
    m.Results: "_results",
    m.Pick: "_pick",
    m.Recall: "_recall",
    m.Whiten: "_whiten",
    m.Learn: "_learn",
    m.Settle: "_settle",
    m.Fold: "_fold",
    c.Score: "_score",
    c.Project: "_project",
    c.Scale: "_scale",
    c.Shrink: "_shrink",
}
FOLDS = frozenset((m.Fold, c.Shrink))
COMPARISONS = frozenset((m.Compare, m.Results))
ROOT_ONLY: frozenset[type[m.Message]] = frozenset(
    (m.Ask, m.Sample, m.Whiten, m.Learn, m.Settle, m.Fold)
)
COVARIANCE_ONLY: frozenset[type[m.Message]] = frozenset((c.Score, c.Project, c.Scale, c.Shrink))


def _shapes(terms: ShareTerms) -> "dict[type[m.Message], Shapes]":
    """Shapes of the fields of messages."""
    d = (2, terms.dim)
    return {
        m.Sample: (("projections", 0), ("direction", d)),
        m.Compare: (("live", (terms.max_arms,)),),
        m.Pick: (("choice", (2, terms.max_arms)),),
        m.Recall: (("context", d),),
        m.Whiten: (("overlaps", 0), ("whitened", d)),
        m.Learn: (
            ("projections", 0),
            ("square", (1,)),
            ("difference", (2, 1)),
            ("scalars", (2, 2)),
            ("gain", d),
        ),
        m.Settle: (("row", d), ("residual", (2, 1))),
        m.Fold: (("root", (2, terms.dim, terms.row_dim)), ("theta", d)),
    }
