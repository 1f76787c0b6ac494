"""The settings of a learner: ridge and forgetting.

Also the refusal of settings that look at coordinates.  A mask mixes coordinates, so a bandit that
treats them one by one would not decide behind the mask as it does in the open.
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from numbers import Real

import numpy as np

from vfbandits.errors import NotBlindError, SettingError

NEVER = 2**62
MAX_WEIGHT = 1e12
"""Most that ‖x‖²/ridge may be for a context x.

Rounding in x'Lambda⁻¹x is about 2^-52·‖x‖²/ridge, here below 1e-3, and beside a thousand such
contexts the ridge can still be seen in Lambda.
"""
MAX_SQUARE = 1e200  # so that no sum of them overflows, whatever the ridge is

_NOT_BLIND = {
    "l1": "an L1 penalty shrinks coordinates one by one",
    "elastic_net": "its L1 part shrinks coordinates one by one",
    "per_coordinate": "scaling coordinate by coordinate changes what the rotation has mixed",
    "standardize": "scaling coordinate by coordinate changes what the rotation has mixed",
    "min_max": "scaling coordinate by coordinate changes what the rotation has mixed",
    "adam": "Adam keeps a step size for each coordinate",
    "adagrad": "AdaGrad keeps a step size for each coordinate",
    "tree": "a tree splits on single coordinates",
}


@dataclass(frozen=True, slots=True)
class LearnerSettings:
    """Ridge λ > 0, and the factor γ in (0, 1] by which a reward's weight falls at each later one.

    >>> LearnerSettings(ridge=1.0, discount=0.99).refill_every
    69
    """

    ridge: float = 1.0
    discount: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no ridge and no discount."""
        object.__setattr__(self, "ridge", _number(self.ridge, "ridge"))
        object.__setattr__(self, "discount", _number(self.discount, "discount"))
        if not 0.0 < self.ridge < math.inf:
            raise SettingError(f"ridge must be a positive number, got {self.ridge}")
        if not 0.0 < self.discount <= 1.0:
            raise SettingError(f"discount must be in (0, 1], got {self.discount}")

    @property
    def max_square(self) -> float:
        """Most that ‖x‖² may be for a context x."""
        return min(MAX_WEIGHT * self.ridge, MAX_SQUARE)

    @property
    def refill_every(self) -> int:
        """Rewards until the prior has faded to half and is put back."""
        if self.discount == 1.0:
            return NEVER
        return max(1, math.ceil(math.log(2.0) / -math.log(self.discount)))


def refuse_unless_blind(*, penalty: str, scaling: str) -> None:
    """Let only settings through under which a rotation of the contexts changes no decision.

    >>> refuse_unless_blind(penalty="l2", scaling="none")
    >>> refuse_unless_blind(penalty="l1", scaling="none")
    Traceback (most recent call last):
    vfbandits.errors.NotBlindError: penalty 'l1' would decide differently behind a mask: \
an L1 penalty shrinks coordinates one by one; wanted 'l2'
    """
    for what, value, wanted in (("penalty", penalty, "l2"), ("scaling", scaling, "none")):
        if value == wanted:
            continue
        if value not in _NOT_BLIND:
            raise SettingError(f"{what} must be {wanted!r}, got {value!r}")
        hint = "; scale at each participant, before the mask" if what == "scaling" else ""
        raise NotBlindError(
            f"{what} {value!r} would decide differently behind a mask: {_NOT_BLIND[value]}; "
            f"wanted {wanted!r}{hint}"
        )


def refuse_unknown(kind: type, unknown: Mapping[str, object]) -> None:
    """Refuse keywords that ``kind`` does not take, with the nearest one that it does.

    >>> class Oven:
    ...     def __init__(self, *, heat: int = 200) -> None: ...
    >>> refuse_unknown(Oven, {"haet": 180})
    Traceback (most recent call last):
    TypeError: Oven() got an unknown option 'haet'; did you mean 'heat'?
    """
    if not unknown:
        return
    parameters = inspect.signature(kind).parameters.values()
    known = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY]
    said = []
    for name in unknown:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}"
        said.append(f"{kind.__name__}() got an unknown option {name!r}; {hint}")
    raise TypeError("\n".join(said))


def whole(value: object, what: str) -> int:
    """``value`` if it is a whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise SettingError(f"{what} must be a whole number from 1, got {value!r}")
    return value


def _number(value: object, what: str) -> float:
    if isinstance(value, list | tuple | np.ndarray):
        raise NotBlindError(
            f"{what} must be one number, got one for each coordinate: a mask mixes coordinates, "
            "so masked and plain runs would part"
        )
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingError(f"{what} must be a number, got {value!r}")
    return float(value)
