"""What an ask may want, and what rows may be: checked at both ends with the same functions."""

import math
from collections.abc import Sequence
from hashlib import blake2b, sha256

import msgspec
import numpy as np
from scipy.linalg.blas import ddot

from vfbandits.core.arrays import Matrix
from vfbandits.core.secure_sum import RowsOfOne
from vfbandits.errors import ContextError, WireError
from vfbandits.protocol.messages import DIGEST_SIZE, MAX_BYTES, Ask

ROUNDING = 1e-9
LARGEST_NUMBER = 1 << 63
REAL = "rows"
USER = "rows of one user"
TRIAL = "trial"
SLOT = "rows in a slot"
CHANGE = "change of masks"
# One form for each value, whatever the machine: both ends make digests of it.
_spell = msgspec.msgpack.Encoder().encode


def problem_with_rows(ask: Ask, *, layout: str, n_columns: int) -> str:
    """Why nobody could answer this ask with rows of ``n_columns``; empty if one could."""
    n_rows = ask.n_rows
    if not (0 <= ask.round < LARGEST_NUMBER and 0 <= ask.attempt < LARGEST_NUMBER):
        return f"rounds and attempts are numbers below 2^63, got {ask.round} and {ask.attempt}"
    if layout == "per_arm":
        if not n_rows or len(ask.arms) != len(ask.users):
            return (
                f"layout 'per_arm' needs arms for each user, got {len(ask.arms)} lists of arms for "
                f"{len(ask.users)} users"
            )
    elif not n_rows or ask.arms:
        return (
            f"layout {layout!r} needs users and no arms, got {len(ask.users)} users and "
            f"{len(ask.arms)} lists of arms"
        )
    if len(ask.campaigns) not in (0, 1, len(ask.users)):
        return f"campaigns are one, or one for each user, got {len(ask.campaigns)}"
    size = 8 * n_rows * n_columns
    return f"an answer has at most {MAX_BYTES} bytes, wanted {size}" if size > MAX_BYTES else ""


def digest_for(ask: Ask) -> bytes:
    """A digest of the row keys in their order, and of what else the rows depend on.

    >>> ask = Ask(1, 0, 1, users=("ann",))
    >>> digest_for(ask) == digest_for(Ask(2, 1, 1, users=("ann",)))
    True
    >>> digest_for(ask) == digest_for(Ask(1, 0, 1, users=("ann",), trial=7))
    False
    """
    keys = _spell((ask.trial, ask.senders, ask.users, ask.arms))
    return blake2b(keys, digest_size=DIGEST_SIZE).digest()


def ask_digest(
    kind: str,
    users: tuple[str, ...],
    arms: tuple[tuple[str, ...], ...],
    *,
    details: tuple[int | str, ...] = (),
) -> bytes:
    """A digest of what a passive participant looked up, for the key of its pads.

    ``users`` and ``arms`` are those whose rows it looked up, in their order, and not the names by
    which it was asked for them: two participants that are asked by different names for the same
    rows have the same digest.  ``kind`` is ``REAL``, ``USER``, ``TRIAL`` or ``CHANGE``; ``details``
    are what else an ask of this kind depends on.  Each participant makes the digest itself and
    sends it to nobody.

    >>> ask_digest(REAL, ("ann",), (("tea",),)) == ask_digest(REAL, ("ann",), (("mate",),))
    False
    >>> ask_digest(REAL, ("ann",), ()) == ask_digest(TRIAL, ("ann",), (), details=(7,))
    False
    """
    # The party that chooses the users could search for collisions: 256 bits, not 128 as above.
    return sha256(_spell((kind, details, users, arms))).digest()


def rows_digest(ask: Ask) -> bytes:
    """The digest of an ask for rows: users and arms are looked up by the names in the ask."""
    if ask.trial:
        return ask_digest(TRIAL, ask.users, ask.arms, details=(ask.trial, *ask.campaigns))
    # All participants of a round receive the same campaigns.
    return ask_digest(REAL, ask.users, ask.arms, details=ask.campaigns)


def slot_digest(ask: Ask) -> bytes:
    """The digest of an ask on secret shares: what was asked for, and in which slot."""
    place = ask.place
    slot = () if place is None else (place.window, place.attempt, place.slot)
    details = (*slot, "absent", *ask.absent, "campaigns", *ask.campaigns)
    return ask_digest(SLOT, ask.users, ask.arms, details=details)


def user_parts(ask: Ask, users: Sequence[str]) -> list[RowsOfOne]:
    """What the pads of an ask are keyed by: each user, its place, arms and campaign.

    ``users`` are the ids of those that are asked for, whatever the names in the ask are.

    >>> ask = Ask(1, 0, 1, users=("5f", "1c"))
    >>> ann, bob = user_parts(ask, ("ann", "bob"))
    >>> ann == user_parts(ask._replace(users=("77", "1c")), ("ann", "eve"))[0] != bob
    True
    """
    parts = enumerate(zip(users, ask.rows_per_user, ask.campaign_of_each, strict=True))
    return [
        RowsOfOne(
            n_rows,
            ask_digest(USER, (user,), ask.arms[place : place + 1], details=(place, campaign)),
        )
        for place, (user, n_rows, campaign) in parts
    ]


def is_number(value: int) -> bool:
    """Whether rounds, attempts and epochs may have this number."""
    return 0 <= value < LARGEST_NUMBER


def refuse_not_finite(rows: Matrix) -> None:
    """Refuse NaN, infinity, and entries whose squares overflow."""
    flat = rows.ravel()
    if not math.isfinite(ddot(flat, flat)):
        raise WireError(
            "wanted finite features, got NaN, an infinity or a value whose square overflows"
        )


def refuse_out_of_bounds(rows: Matrix, bound: float) -> None:
    """Refuse NaN, infinity and entries larger than ``bound``.

    >>> import numpy as np
    >>> refuse_out_of_bounds(np.array([[1.0, -2.0]]), bound=2.0)
    >>> refuse_out_of_bounds(np.array([[1.0, np.nan]]), bound=2.0)
    Traceback (most recent call last):
    ...
    vfbandits.errors.WireError: wanted finite values of at most 2, \
got NaN, an infinity or a larger value
    """
    flat = rows.ravel()
    # No entry is larger than the length of all together, which is cheaper to find.
    if ddot(flat, flat) <= bound * bound:
        return
    most = bound * (1.0 + ROUNDING)
    if not (float(rows.max()) <= most and float(rows.min()) >= -most):
        # Not how many, nor where: the sentence goes to the active participant.
        raise WireError(
            f"wanted finite values of at most {bound:g}, got NaN, an infinity or a larger value"
        )


def refuse_features_beyond(rows: Matrix, bound: float, what: str) -> None:
    """Refuse plain features (n, width) that are not finite or larger than the terms' ``bound``.

    For features that the caller itself has sent, or keeps: the error says which one it is and how
    large, as a power of ten.

    >>> refuse_features_beyond(np.array([[1.0, 1.79e9]]), 64.0, "own block")
    Traceback (most recent call last):
    ...
    vfbandits.errors.ContextError: own block: features must be at most 64 in size, as the roster's \
terms say, got about 1e+09 at feature 1 of row 0; scale it
    >>> refuse_features_beyond(np.array([[3.0]]), 1.0, "arm features")
    Traceback (most recent call last):
    ...
    vfbandits.errors.ContextError: arm features: features must be at most 1 in size, as the \
roster's terms say, got a larger one at feature 0 of row 0; scale it
    """
    flat = rows.ravel()
    if ddot(flat, flat) <= bound * bound:
        return
    sizes = np.abs(rows)
    beyond = np.argwhere(~(sizes <= bound * (1.0 + ROUNDING)))
    if not len(beyond):
        return
    row, feature = (int(place) for place in beyond[0])
    size = float(sizes[row, feature])
    about = "NaN or inf"
    if math.isfinite(size):
        power = math.floor(math.log10(size))
        about = f"about 1e{power:+03d}" if 10.0**power > bound else "a larger one"
    raise ContextError(
        f"{what}: features must be at most {bound:g} in size, as the roster's terms say, got "
        f"{about} at feature {feature} of row {row}; scale it"
    )
