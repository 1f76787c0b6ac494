"""What all parties of a federation on secret shares agree on before the first message."""

import math
from dataclasses import asdict, dataclass
from functools import cached_property

import numpy as np

from vfbandits.core.arrays import Matrix
from vfbandits.core.layout.build import LayoutSettings
from vfbandits.core.ring import REACH
from vfbandits.core.settings import whole
from vfbandits.core.shares.covariance import words as covariance_words
from vfbandits.core.shares.function_table import FunctionTable, function_table
from vfbandits.core.shares.messages import Place
from vfbandits.core.shares.sides import WRAP_BITS
from vfbandits.errors import SettingError

MAX_ARMS = 64
MAX_RELEASED_ARMS = 1_024
"""Most arms where nothing is dealt for pairs of them: means or widths are released."""
DEFAULT_ARMS = 16
MAX_LENGTH = 16.0
"""Most that ‖x‖/√ridge may be: dealt tables grow with its square."""
MAX_REWARD = 16.0
MAX_DEVIATION = 4.0
"""Most that posterior_scale·‖x‖/√ridge may be: eight deviations stay within what is compared."""
MAX_SCALE = 2.0**REACH / 16.0
"""Most that posterior_scale may be: sixteen deviations of the noise stay within the ring."""

MAX_ADDEND = 32.0
"""Most that beta·‖x‖/√ridge may be: half of what is compared."""

MAX_REMASKED = 2 ** (WRAP_BITS - 2)
"""Most products that a window masks again: more than one deal in four would be refused."""

RELEASES = ("arm", "statistics")
READS = ("noise", "means", "widths", "covariance")

Shapes = dict[str, tuple[int, ...]]


def row_weight(q: Matrix) -> Matrix:
    """The c = 1/(1 + q + √(1 + q)), by which Potter's update scales the row f."""
    return 1.0 / (1.0 + q + np.sqrt(1.0 + q))


def step_size(q: Matrix) -> Matrix:
    """1/(1 + q), by which the update scales the reward less its mean."""
    return 1.0 / (1.0 + q)


def input_part(slot: int) -> str:
    """The name of the words that hide a participant's block in one decision of a window."""
    return f"slot {slot}"


def update_scale(q: Matrix) -> Matrix:
    """S = 1/√(1 + q), by which an update scales Lambda⁻¹x and the reward less its mean."""
    return 1.0 / np.sqrt(1.0 + q)


def default_window(reads: str) -> int:
    """How many rewards a window has where the terms of a federation do not say it.

    A fold of a square root sends twice as many numbers as one of Lambda⁻¹, so it comes less often.
    """
    return 25 if reads == "noise" else 16


@dataclass(frozen=True)  # no slots: what follows from the fields is computed once
class ShareTerms:
    """Sizes and bounds; dealt words fit one set of terms only.

    Attributes
    ----------
    widths
        Of the participants' blocks.
    max_arms
        Most arms of one decision.  Dealt material grows with its square.
    ridge, posterior_scale
        The prior's weight, and the v of LinTS.  With v = 0 no noise is drawn.
    bound
        Most that the length of a row of one participant's block may be.
    window, decisions
        How many rewards, and how many decisions, a window has slots for.
    release
        What the active participant learns of a decision: "arm", or "statistics", which are the
        numbers that ``reads`` names.
    reads
        What the policy reads of each arm.  "noise": a draw of LinTS in parameter space, for which
        the state is kept as a square root.  "means", "widths" (and means) or "covariance" (and
        means): the state is kept as Lambda⁻¹.
    beta
        The multiple of the width that LinUCB adds to a mean.
    idle
        Columns of the state that belong to no participant: those of participants that have left,
        where the state is a square root.
    layout, arm_dim, intercept
        Where the arm enters.  In "disjoint" there are ``max_arms`` models in all, in "outer" arm
        features are ``arm_dim`` wide and known to A alone.
    arm_bound
        Most that the length of a row of arm features may be.

    >>> ShareTerms(widths=(2, 3), max_arms=4, ridge=1.0, posterior_scale=0.1).dim
    5
    >>> ShareTerms(widths=(2, 3), max_arms=4, ridge=1.0, posterior_scale=0.1, layout="disjoint").dim
    20
    """

    widths: tuple[int, ...]
    max_arms: int
    ridge: float
    posterior_scale: float
    bound: float = 1.0
    window: int = 16
    decisions: int = 16
    release: str = "arm"
    reads: str = "noise"
    beta: float = 0.0
    idle: int = 0
    layout: str = "per_arm"
    arm_dim: int = 0
    arm_bound: float = 1.0
    intercept: bool = False

    def __post_init__(self) -> None:
        """Refuse what the ring has no room for."""
        for name in ("max_arms", "window", "decisions"):
            whole(getattr(self, name), name)
        LayoutSettings(sum(self.widths), self.layout, self.arm_dim or None, self.intercept)
        needs_pairs = self.release == "arm" or self.reads == "covariance"
        if self.max_rows > (MAX_ARMS if needs_pairs else MAX_RELEASED_ARMS):
            what = "arm_dim" if self.has_units else "max_arms"
            raise SettingError(
                f"{what} must be at most {MAX_ARMS if needs_pairs else MAX_RELEASED_ARMS} on "
                f"secret shares, got {self.max_rows}: each decision needs dealt words for every "
                + ("pair of arms" if needs_pairs else "arm")
            )
        for name in ("bound", "ridge", "arm_bound"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise SettingError(f"{name} must be a positive number, got {getattr(self, name)!r}")
        if not self.max_length <= MAX_LENGTH:
            raise SettingError(
                f"{self._length} must be at most "
                f"{MAX_LENGTH:g} on secret shares, got {self.max_length:g}: scale the features, or "
                "raise the ridge"
            )
        if not self.posterior_scale <= MAX_SCALE:
            raise SettingError(
                f"posterior_scale must be at most {MAX_SCALE:g} on secret shares, got "
                f"{self.posterior_scale:g}"
            )
        if not self.posterior_scale * self.max_length <= MAX_DEVIATION:
            raise SettingError(
                f"posterior_scale·{self._length} must be at most {MAX_DEVIATION:g} on "
                f"secret shares, got {self.posterior_scale * self.max_length:g}"
            )

        if self.release == "arm" and not self.beta * self.max_length <= MAX_ADDEND:
            raise SettingError(
                f"beta·{self._length} must be at most {MAX_ADDEND:g} on secret shares "
                f"with release 'arm', got {self.beta * self.max_length:g}"
            )
        for name, known in (("release", RELEASES), ("reads", READS)):
            if getattr(self, name) not in known:
                raise SettingError(
                    f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}"
                )
        if (self.release, self.reads) in (("arm", "covariance"), ("statistics", "noise")):
            raise SettingError(f"release {self.release!r} does not go with reads {self.reads!r}")
        self._refuse_other_layout()
        self._refuse_many_products()

    def _refuse_other_layout(self) -> None:
        if self.idle and not self.is_root:
            raise SettingError(f"only a square root has idle columns, got {self.idle}")
        if (self.has_units, self.reads) == (True, "widths") or (
            (self.layout, self.reads) == ("disjoint", "covariance")
        ):
            raise SettingError(
                f"reads {self.reads!r} does not go with layout {self.layout!r} and release "
                f"{self.release!r}"
            )

    def _refuse_many_products(self) -> None:
        if self.n_remasked > MAX_REMASKED:
            raise SettingError(
                f"a window of secret shares has at most {MAX_REMASKED:,} products that are masked "
                f"again, got {self.n_remasked:,}: take fewer arms (max_arms) or features"
            )

    def document(self) -> dict[str, object]:
        """All terms by name; of the layout only what is not as it is in "per_arm".

        >>> terms = ShareTerms(widths=(2, 3), max_arms=4, ridge=1.0, posterior_scale=0.1)
        >>> "layout" in terms.document()
        False
        """
        values = asdict(self)
        if self.layout == "per_arm":  # digests of terms from before there were other layouts
            for name in ("layout", "arm_dim", "arm_bound", "intercept"):
                del values[name]
        return values

    @cached_property
    def is_root(self) -> bool:
        """Whether the state is kept as a square root, and not as Lambda⁻¹."""
        return self.reads == "noise"

    @cached_property
    def scale_table(self) -> FunctionTable:
        """The table of the function of q = x'Lambda⁻¹x that scales an update of Lambda⁻¹."""
        return function_table((update_scale,), self.max_length**2)

    @cached_property
    def user_dim(self) -> int:
        """Width of what participants share, row by row.

        With the constant of an intercept before, and idle columns behind.
        """
        return sum(self.widths) + self.intercept + self.idle

    @cached_property
    def arm_width(self) -> int:
        """Width of arm features with the constant of an intercept; 1 outside of "outer"."""
        return self.arm_dim + self.intercept if self.layout == "outer" else 1

    @cached_property
    def n_blocks(self) -> int:
        """How many blocks Lambda has on its diagonal; it is zero elsewhere."""
        return self.max_arms if self.layout == "disjoint" else 1

    @cached_property
    def row_dim(self) -> int:
        """Width of a row that is scored: of one block of Lambda."""
        return self.user_dim * self.arm_width

    @cached_property
    def dim(self) -> int:
        """Width of the whole context that is learnt."""
        return self.n_blocks * self.row_dim

    @cached_property
    def input_rows(self) -> int:
        """How many rows a participant shares in a decision at most: one for each arm, or one."""
        return self.max_arms if self.layout == "per_arm" else 1

    @cached_property
    def has_units(self) -> bool:
        """Whether the rows u ⊗ e_k of all arm features are scored, and not those of the arms.

        A mean is linear in the arm's features and a covariance bilinear, so that A, which is
        released them for unit vectors, has them for all arms.
        """
        return self.layout == "outer" and self.release == "statistics"

    @cached_property
    def max_rows(self) -> int:
        """How many rows are scored at most in a decision."""
        return self.arm_width if self.has_units else self.max_arms

    @cached_property
    def lift_rows(self) -> int:
        """For how many arms u ⊗ w is computed in shares: all of a decision, the shown one, or 0."""
        if self.layout != "outer":
            return 0
        return 1 if self.has_units else self.max_arms

    @cached_property
    def arm_length(self) -> float:
        """Most that the length of arm features may be, with the constant of an intercept."""
        return math.hypot(self.arm_bound, self.intercept) if self.layout == "outer" else 1.0

    @cached_property
    def unit(self) -> float:
        """By what participants divide their rows: x'x is at most 1 in a context of length √ridge.

        In "outer" A divides arm features by ``arm_length``, so that they are at most 1 long.
        """
        return math.sqrt(self.ridge) / self.arm_length

    @cached_property
    def max_length(self) -> float:
        """Most that ‖x‖/√ridge may be for a whole context."""
        return math.sqrt(self.bound**2 * len(self.widths) + self.intercept) / self.unit

    @cached_property
    def _length(self) -> str:
        """``max_length`` in words."""
        squares = "(participants·bound² + 1)" if self.intercept else ""
        user = f"√({squares}/ridge)" if squares else "bound·√(participants/ridge)"
        if self.layout != "outer":
            return user
        return f"√(arm_bound² + 1)·{user}" if squares else f"arm_bound·{user}"

    @cached_property
    def scalars(self) -> FunctionTable:
        """The table of the two functions of q = x'Lambda⁻¹x that scale an update."""
        return function_table((row_weight, step_size), self.max_length**2)

    @cached_property
    def is_noisy(self) -> bool:
        """Whether a decision draws noise."""
        return self.posterior_scale > 0.0

    @cached_property
    def n_pairs(self) -> int:
        """Ordered pairs of arms."""
        return self.max_arms * (self.max_arms - 1)

    @cached_property
    def n_remasked(self) -> int:
        """How many products a window masks again at most."""
        d = self.dim
        decision, fold = d + self.window, d  # a root is folded in narrow shares
        if not self.is_root:
            decision = math.prod(covariance_words.products(self))
            fold = covariance_words.n_triangles(self) + d
        decision += self.lift_rows * d
        return self.decisions * decision + self.window * (3 * (d + self.window) + 4) + fold

    def round_of(self, place: Place) -> int:
        """The number of a decision's slot among all slots, from 1.

        >>> terms = ShareTerms(widths=(2, 3), max_arms=4, ridge=1.0, posterior_scale=0.1)
        >>> terms.round_of(Place(1, window=2, attempt=0, slot=3))
        36
        """
        return place.window * self.decisions + place.slot + 1

    def input_words(self, participant: int) -> Shapes:
        """Words that hide one participant's blocks in a window; each server has its own."""
        shape = (self.input_rows, self.widths[participant])
        return {input_part(slot): shape for slot in range(self.decisions)}

    def active_decision_words(self) -> Shapes:
        """Words of server A for a decision."""
        if not self.is_root:
            return covariance_words.active_decision(self)
        shapes: Shapes = {"mask_noise": (self.dim,), "rho_projections": (self.window,)}
        if not self.is_noisy:
            shapes = {}
        return shapes | {
            "rho_direction": (self.dim,),
            "mask_choice": (self.max_arms,),
            "mask_ranks": (self.max_arms,),
            "order": (self.max_arms,),
            **self.active_lift_words(),
        }

    def active_lift_words(self) -> Shapes:
        """Words of server A for u ⊗ w, where arms have features."""
        if not self.lift_rows:
            return {}
        return {
            "mask_arms": (self.lift_rows, self.arm_width),
            "rho_lift": (self.lift_rows, self.dim),
        }

    def helper_lift_words(self) -> Shapes:
        """Words of server B for u ⊗ w."""
        shape = (self.lift_rows, self.dim)
        return {"rho_lift": shape, "mask_lift": shape} if self.lift_rows else {}

    def helper_decision_words(self) -> Shapes:
        """Words of server B for a decision."""
        if not self.is_root:
            return covariance_words.helper_decision(self)
        shapes: Shapes = {
            "mask_noise": (self.dim,),
            "rho_projections": (self.window,),
            "mask_projections": (self.window,),
        }
        if not self.is_noisy:
            shapes = {}
        return shapes | {
            "rho_direction": (self.dim,),
            "mask_direction": (self.dim,),
            "blind_rows": (self.window, self.dim),
            "blind_scores": (self.max_arms,),
            "rho_scores": (self.max_arms,),
            "blind_context": (self.dim,),
            "tables": (self.n_pairs, 8),
            "flips": (self.n_pairs,),
            **self.helper_lift_words(),
        }

    def active_reward_words(self) -> Shapes:
        """Words of server A for a reward."""
        if not self.is_root:
            return covariance_words.active_reward(self)
        return {
            "mask_context": (self.dim,),
            "rho_overlaps": (self.window,),
            "rho_whitened": (self.dim,),
            "rho_projections": (self.window,),
            "rho_square": (1,),
            "rho_difference": (1,),
            "rho_scalars": (2,),
            "rho_gain": (self.dim,),
            "rho_row": (self.dim,),
            "rho_residual": (1,),
        }

    def helper_reward_words(self) -> Shapes:
        """Words of server B for a reward."""
        if not self.is_root:
            return covariance_words.helper_reward(self)
        return {
            "mask_context": (self.dim,),
            "rho_overlaps": (self.window,),
            "mask_overlaps": (self.window,),
            "rho_whitened": (self.dim,),
            "mask_whitened": (self.dim,),
            "rho_projections": (self.window,),
            "mask_projections": (self.window,),
            "rho_square": (1,),
            "rho_difference": (1,),
            "mask_difference": (1,),
            "coefficients": self.scalars.shape,
            "rho_scalars": (2,),
            "mask_scalars": (2,),
            "rho_gain": (self.dim,),
            "mask_gain": (self.dim,),
            "rho_row": (self.dim,),
            "mask_row": (self.dim,),
            "rho_residual": (1,),
            "mask_residual": (1,),
        }

    def active_fold_words(self) -> Shapes:
        """Words of server A for a fold."""
        if not self.is_root:
            return covariance_words.active_fold(self)
        return {"rho_root": (self.dim, self.row_dim), "rho_theta": (self.dim,)}

    def helper_fold_words(self) -> Shapes:
        """Words of server B for a fold."""
        if not self.is_root:
            return covariance_words.helper_fold(self)
        return self.active_fold_words() | {
            "mask_root": (self.dim, self.row_dim),
            "mask_theta": (self.dim,),
        }

    def dealer_words(self) -> Shapes:
        """Secret bits of the comparisons of a decision, which nobody but the dealer knows."""
        return {"bits": (self.n_pairs,)}
