"""Messages of the covariance form; picks, comparisons and recalls are those of the root form."""

from typing import ClassVar

from vfbandits.core.shares.messages import (
    Count,
    Cut,
    Full,
    Message,
    PackedBits,
    Short,
    message_class,
)

# A decision: A asks, B answers; with the release of the arm, comparisons follow.


@message_class
class Score(Message):
    """Masked contexts as ``Sample`` has them, the window's rows so far, and A's shares of products.

    ``products`` are [XL | XV'] (n_arms, row_dim + n_rows), or where means alone are read the
    direction Σ h_l v_l (1, dim).
    """

    KIND: ClassVar[int] = 40

    n_rows: Count
    n_arms: Count
    contexts: Full
    products: Cut


@message_class
class Scored(Message):
    """B's shares of the products, and of what A opens.

    ``forms`` and ``means`` are without their low bits: A sees units of 2^-40, and not all bits
    of a sum of products.  With the release of the arm no means are there, and ``scores`` are B's
    shares of them under its masks ρ.
    """

    KIND: ClassVar[int] = 41

    products: Cut
    forms: Cut
    means: Cut
    scores: Full


# A reward, after Recall and Recalled, whose overlaps are [xS | xV'].


@message_class
class Project(Message):
    """A's shares of [xS | xV'], of v = Lambda⁻¹x and r − x·theta, and of q = x'Lambda⁻¹x."""

    KIND: ClassVar[int] = 42

    overlaps: Cut
    gain: Cut
    square: Short


@message_class
class Projected(Message):
    """B's shares of v and r − x·theta, of q, and of s = 1/√(1 + q)."""

    KIND: ClassVar[int] = 43

    gain: Cut
    square: Short
    scale: Cut


@message_class
class Scale(Message):
    """A's shares of s, and of s·v and h = s·(r − x·theta)."""

    KIND: ClassVar[int] = 44

    scale: Cut
    row: Cut


@message_class
class Scaled(Message):
    """B's shares of s·v and h."""

    KIND: ClassVar[int] = 45

    row: Cut


# A fold: A asks, B answers, and the next window begins.


@message_class
class Shrink(Message):
    """A's shares of the lower triangle of V'V, and of Σ h_l v_l."""

    KIND: ClassVar[int] = 46

    inverse: Cut
    theta: Cut


@message_class
class Shrunk(Message):
    """B's shares of the same."""

    KIND: ClassVar[int] = 47

    inverse: Cut
    theta: Cut


# The dealer to server A, ahead of time.


@message_class
class ScoreDeal(Message):
    """For one decision: A's parts of masks, and terms of products, each blinded by words of B's.

    Attributes
    ----------
    products
        A's parts of the masks of the products of ``Score``.
    rows
        The dealer's terms of h_l v_l, (window, dim), where means alone are read.
    forms, means
        The dealer's terms of what is opened: one row for the state at the last fold, and one for
        each row of the window, (1 + window, n).  Each number is blinded by a word that blinds
        nothing else: A adds up as many as there are rows.  Its low bits are not needed.
    context
        The dealer's term of the chosen context, (dim,).
    tables, tops
        As in ``DecisionDeal``; empty where statistics are released.
    lift
        As in ``DecisionDeal``.
    """

    KIND: ClassVar[int] = 48

    products: Full
    rows: Cut
    forms: Cut
    means: Cut
    context: Full
    tables: Full
    tops: PackedBits
    lift: Full


@message_class
class ScaleDeal(Message):
    """For one reward: A's parts of masks, and its shares of the table of s; each blinded by B."""

    KIND: ClassVar[int] = 49

    overlaps: Full
    gain: Full
    coefficients: Full
    scale: Full
    row: Full


@message_class
class ShrinkDeal(Message):
    """For one fold: A's parts of the masks of the triangle of V'V and of Σ h_l v_l."""

    KIND: ClassVar[int] = 50

    inverse: Full
    theta: Full
