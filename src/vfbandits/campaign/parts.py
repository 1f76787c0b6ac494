"""How much of an estimate each participant's features make up.

Behind a blockwise mask every participant keeps its own columns, so the estimate is a sum of one
term for each.  A dense mask mixes all columns, and nobody can tell.
"""

import numpy as np

from vfbandits.core.bandit import Bandit
from vfbandits.core.context import Split
from vfbandits.core.reward import Observation

INTERCEPT = "intercept"


def parts_of(bandit: Bandit, seen: Observation, split: Split) -> dict[str, float]:
    """The estimate for an observation, by participant; they add up to it."""
    state = bandit.state_of(seen.model)
    names = list(split.names)
    if state is None:  # an arm that nothing was learnt of
        return dict.fromkeys(names, 0.0)
    terms = seen.x * state.theta
    layout = bandit.layout
    ones = int(layout.intercept)
    if layout.arm_dim is not None:
        terms = terms.reshape(bandit.dim + ones, layout.arm_dim + ones).sum(axis=1)
    starts = np.cumsum([ones, *split.widths[:-1]])
    sums = np.add.reduceat(terms, starts)
    parts = dict(zip(names, sums.tolist(), strict=True))
    return {INTERCEPT: float(terms[0]), **parts} if ones else parts
