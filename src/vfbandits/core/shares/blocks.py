"""The state of layout ``disjoint``: Lambda has one block for each arm and is zero elsewhere.

A context e_b ⊗ u lies in one block, but which one stays secret: rows that are learnt have words in
all of them.  Products with the state take K·d² multiplications instead of (K·d)², and a fold sends
as many numbers.  A matrix is kept as the rows of its blocks, (K·d, d).
"""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from vfbandits.core.arrays import Vector
from vfbandits.core.ring import Words, rows_times, triangle_rows
from vfbandits.core.shares.covariance import side as covariance
from vfbandits.core.shares.covariance.side import CovarianceSide, Inputs
from vfbandits.core.shares.kept import Kept
from vfbandits.core.shares.root import RootSide
from vfbandits.core.shares.rows import row_scores
from vfbandits.core.shares.sides import (
    combined,
    minus_narrow_outer,
    open_side,
    product,
    side,
)
from vfbandits.core.shares.terms import ShareTerms
from vfbandits.errors import SharesError


def split_blocks(words: Words, n: int, axis: int = 1) -> list[Words]:
    """Words in n equal parts along an axis, each of its own memory: loops need that."""
    return [np.ascontiguousarray(part) for part in np.split(words, n, axis=axis)]


def by_blocks(
    form: Callable[[Words, Words], Words], v: Words, rows: Words, *, out_axis: int = 2
) -> Words:
    """``form`` of each block of v (n, dim) with its block of ``rows`` (dim, d), side by side."""
    n = rows.shape[1] // rows.shape[2]
    if n == 1:
        return form(v, rows)
    parts = zip(split_blocks(v, n, axis=2), split_blocks(rows, n), strict=True)
    return np.concatenate([form(part, block) for part, block in parts], axis=out_axis)


def block_columns(rows: Words) -> Words:
    """The rows of the transposed blocks."""
    n = rows.shape[1] // rows.shape[2]
    return np.concatenate([block.swapaxes(1, 2) for block in split_blocks(rows, n)], axis=1)


def state_times(v: Words, rows: Words) -> Words:
    """V M' for rows v (n, dim) and a matrix M of blocks: (n, dim)."""
    return by_blocks(rows_times, v, rows)


def triangle_times(X: Words, rows: Words) -> Words:
    """X L' for each row of X (n, d) and the triangle of the state, or of the row's own block."""
    n = rows.shape[1] // rows.shape[2]
    if n == 1:
        return triangle_rows(X, rows)
    blocks = split_blocks(rows, n)
    pairs = zip(split_blocks(X, X.shape[1]), blocks, strict=False)
    return np.concatenate([triangle_rows(x, block) for x, block in pairs], axis=1)


def window_times(X: Words, V: Words) -> Words:
    """x·V_l for each row of X (n, d) and rows V (window, dim), or their part in the row's block."""
    d = X.shape[2]
    n = V.shape[2] // d
    if n == 1:
        return rows_times(X, V)
    pairs = zip(split_blocks(X, X.shape[1]), split_blocks(V, n, axis=2), strict=False)
    return np.concatenate([rows_times(x, part) for x, part in pairs], axis=1)


def theta_times(X: Words, theta: Words) -> Words:
    """x·theta for each row of X (n, d) and theta (1, dim), or its part in the row's block: (n,)."""
    return window_times(X, theta)[:, :, 0]


def root_side(terms: ShareTerms) -> RootSide:
    """A server's side of an untaught state in its root form."""
    return BlockRootSide(terms) if terms.n_blocks > 1 else RootSide(terms)


def covariance_side(terms: ShareTerms, *, lift: int, down: int) -> CovarianceSide:
    """A server's side of an untaught state in its covariance form."""
    if terms.n_blocks > 1:
        return BlockCovarianceSide(terms, lift=lift, down=down)
    return CovarianceSide(terms, lift=lift, down=down)


def _terms_of_block(terms: ShareTerms) -> ShareTerms:
    """Terms under which one block is the whole state."""
    return dataclasses.replace(
        terms, layout="per_arm", intercept=False, widths=(terms.row_dim,), max_arms=1
    )


class BlockRootSide(RootSide):
    """The root form with a G of blocks; theta and the window's rows are as wide as all of them."""

    __slots__ = ("_terms",)

    def __init__(self, terms: ShareTerms) -> None:
        super().__init__(terms)
        self._terms = terms

    def _loops(self) -> None:
        """None: compiled steps know one matrix."""

    def direction(self, z: Words | None, tau: Words, rho: Words) -> Words:
        """As in ``RootSide``."""
        if z is None:
            return super().direction(z, tau, rho)
        return self._by_blocks(self._split(self._rows), z, self._g, tau, rho)

    def whitened(self, x: Words, u: Words, rho: Words) -> Words:
        """As in ``RootSide``."""
        columns = [block.swapaxes(1, 2) for block in self._split(self._rows)]
        return self._by_blocks([*map(np.ascontiguousarray, columns)], x, self._a, u, rho)

    def gain(self, f: Words, v: Words, rho: Words) -> Words:
        """As in ``RootSide``."""
        return self._by_blocks(self._split(self._rows), f, self._g, v, rho)

    def _by_blocks(
        self, blocks: list[Words], v: Words, window: Words, weights: Words, rho: Words
    ) -> Words:
        """Shares of M v − Σ_l weights_l·window_l, for the blocks of M."""
        rows = split_blocks(window, len(blocks), axis=2)
        parts = zip(blocks, self._split(v), rows, self._split(rho), strict=True)
        return np.hstack(
            [combined(block, part, row, weights, under) for block, part, row, under in parts]
        )

    def _products(self, X: Words, w: Words, rho: Words) -> Words:
        return row_scores(self._terms, X, w, rho)

    def _change_of_root(self, rho: Words) -> Words:
        """The blocks of Σ g_l a_l' alone: it is zero elsewhere."""
        n = self._terms.n_blocks
        rows = split_blocks(self._g, n, axis=2), split_blocks(self._a, n, axis=2)
        parts = zip(*rows, self._split(rho), strict=True)
        return np.hstack([minus_narrow_outer(*part) for part in parts])

    def _split(self, words: Words) -> list[Words]:
        return split_blocks(words, self._terms.n_blocks)


class BlockCovarianceSide(CovarianceSide):
    """The covariance form with an S of blocks; row a of the contexts belongs to block a."""

    __slots__ = ("_blocks",)

    def __init__(self, terms: ShareTerms, *, lift: int, down: int) -> None:
        each = _terms_of_block(terms)
        blocks = range(terms.n_blocks)
        self._blocks = [CovarianceSide(each, lift=lift, down=down) for _ in blocks]
        self._begin(terms, lift=lift, down=down)
        self._gather()

    def _gather(self) -> None:
        held = [block.held(0) for block in self._blocks]
        self._S = np.concatenate([part.S for part in held], axis=1)
        self._theta = np.concatenate([part.theta for part in held], axis=1)

    def restore(self, kept: Kept) -> None:
        """Go on from a state that was kept."""
        super().restore(kept)
        parts = zip(self._blocks, self._split(self._S), self._split(self._theta), strict=True)
        for block, S, theta in parts:
            block.set_state(S, theta)

    def _steps(self) -> None:
        """None: compiled steps know one matrix."""

    def products(self, inputs: Inputs, n: int, rho: Words, rows: Words) -> tuple[Words, Words]:
        """As in ``CovarianceSide``; where means alone are read S is not needed."""
        if self.terms.reads == "means":
            return super().products(inputs, n, rho, rows)
        contexts, masks = inputs
        n_arms = contexts.shape[1]
        parts = zip(self._blocks, *map(_each, (contexts, masks[:, :n_arms], rho)), strict=False)
        own = [block.products((x, mask), n, under, rows)[1] for block, x, mask, under in parts]
        return side(contexts, masks[:, :n_arms]), np.hstack(own[:n_arms])

    def means(self, exchanged: covariance.Exchanged, inputs: Inputs, terms: Words) -> Words:
        """As in ``CovarianceSide``."""
        contexts, masks = inputs
        n_arms = contexts.shape[1]
        products = [split_blocks(words, len(self._blocks), axis=2) for words in exchanged]
        rows = map(_each, (contexts, masks[:, :n_arms]))
        columns = split_blocks(terms[:, :, :n_arms], n_arms, axis=2)
        parts = zip(self._blocks, zip(*products, strict=True), *rows, columns, strict=False)
        return np.hstack(
            [block.means(shares, (x, mask), term) for block, shares, x, mask, term in parts]
        )

    def statistics(
        self, exchanged: covariance.Exchanged, X: Words, forms: Words, means: Words
    ) -> tuple[Words, Words]:
        """As in ``CovarianceSide``."""
        parts = self._by_arm(exchanged, X, forms, means)
        each = [block.statistics(*part) for block, part in parts]
        return np.hstack([form for form, _ in each]), np.hstack([mean for _, mean in each])

    def opened_statistics(
        self,
        exchanged: covariance.Exchanged,
        X: Words,
        forms: Words,
        means: Words,
        their_forms: Words,
        their_means: Words,
    ) -> tuple[Vector, Vector]:
        """As in ``CovarianceSide``."""
        n_arms = X.shape[1]
        if their_forms.shape != (2, n_arms) or their_means.shape != (2, n_arms):
            raise SharesError(
                f"wanted {n_arms} forms and {n_arms} means from the helper, got "
                f"{their_forms.shape[1:]} and {their_means.shape[1:]}"
            )
        parts = zip(
            self._by_arm(exchanged, X, forms, means),
            _each(their_forms),
            _each(their_means),
            strict=True,
        )
        each = [block.opened_statistics(*part, form, mean) for (block, part), form, mean in parts]
        return np.hstack([form for form, _ in each]), np.hstack([mean for _, mean in each])

    def _by_arm(
        self, exchanged: covariance.Exchanged, X: Words, forms: Words, means: Words
    ) -> Iterator[tuple[CovarianceSide, tuple[covariance.Exchanged, Words, Words, Words]]]:
        """Each arm's block, and its part of what the servers sent and of the dealer's terms."""
        own, theirs, mask = exchanged
        if own.shape != theirs.shape:
            raise SharesError(f"wanted shares of shape {own.shape[1:]}, got {theirs.shape[1:]}")
        n_arms = X.shape[1]
        rows = map(_each, (own, theirs, mask[:, :n_arms], X))
        columns = [split_blocks(words[:, :, :n_arms], n_arms, axis=2) for words in (forms, means)]
        for block, one, other, part, x, form, mean in zip(
            self._blocks, *rows, *columns, strict=False
        ):
            yield block, ((one, other, part), x, form, mean)

    def overlaps(self, exchanged: covariance.Exchanged, n: int, rho: Words) -> tuple[Words, Words]:
        """As in ``CovarianceSide``."""
        d = self.terms.dim
        parts = [self._split(words) for words in (*exchanged, rho[:, :d])]
        own = [
            block.overlaps(shares, 0, under)[1]
            for block, *shares, under in zip(self._blocks, *parts, strict=True)
        ]
        x = open_side(*exchanged)
        return x, np.hstack((*own, product(self._V, x, np.ascontiguousarray(rho[:, d:]), n)))

    def append(self, n: int, row: covariance.Exchanged) -> None:
        """As in ``CovarianceSide``."""
        super().append(n, row)
        self._hand_down(n)

    def _hand_down(self, n: int) -> None:
        for block, V in zip(self._blocks, self._split(self._V[:, n]), strict=True):
            block.put(n, V, self._h[:, n])

    def changes(self, rho_inverse: Words, rho_theta: Words) -> tuple[Words, Words]:
        """As in ``CovarianceSide``, with the blocks of V'V alone: it is zero elsewhere."""
        parts = zip(self._blocks, self._split(rho_inverse), self._split(rho_theta), strict=True)
        each = [block.changes(*rho) for block, *rho in parts]
        return np.hstack([first for first, _ in each]), np.hstack([second for _, second in each])

    def fold(self, inverse: covariance.Exchanged, theta: covariance.Exchanged) -> None:
        """As in ``CovarianceSide``."""
        for own, theirs, _ in (inverse, theta):
            if own.shape != theirs.shape:
                raise SharesError(f"wanted {own.shape[1:]} words, got {theirs.shape[1:]}")
        triangles, thetas = ([self._split(words) for words in part] for part in (inverse, theta))
        for block, first, second in zip(
            self._blocks, zip(*triangles, strict=True), zip(*thetas, strict=True), strict=True
        ):
            block.fold(first, second)
        self._gather()

    def _split(self, words: Words) -> list[Words]:
        return split_blocks(words, len(self._blocks))


def _each(words: Words) -> list[Words]:
    """The rows of words (n, …), each as (1, …)."""
    return split_blocks(words, words.shape[1])
