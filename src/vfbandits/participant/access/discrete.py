"""Whether a participant's rows hold flags or counts, which are read back from masked rows.

Neither a mask nor a secure sum hides a column of few values (``vfb audit``, attack "discrete").  So
a participant does not serve such columns unless its owner accepts that by name.
"""

from dataclasses import dataclass, field
from typing import Final

from vfbandits.audit.discrete import columns_on_grids
from vfbandits.errors import ConfigError
from vfbandits.features.open import Features
from vfbandits.settings.access import DISCRETE, AccessSettings

SAMPLE: Final = 2_000


@dataclass(slots=True)
class DiscreteCheck:
    """Looks at a sample of the table, once; ``found`` are raw columns of few values."""

    features: Features
    accepted: frozenset[str]
    found: tuple[str, ...] | None = field(default=None, init=False)

    @classmethod
    def of(cls, features: Features, settings: AccessSettings) -> "DiscreteCheck":
        """The check of a participant; ConfigError if an accepted column does not exist."""
        accepted = settings.accepted(DISCRETE)
        unknown = sorted(accepted - {*features.columns})
        if unknown:
            raise ConfigError(
                f"access.accept must name columns of [features], {', '.join(features.columns)}, "
                f"got {', '.join(unknown)}"
            )
        return cls(features, accepted)

    def look(self) -> tuple[str, ...]:
        """Columns of few values, accepted or not; FeatureError if the store does not answer."""
        if self.found is None:
            places = columns_on_grids(self.features.sample(SAMPLE))
            names = [self.features.column_of_each[place] for place in places]
            self.found = tuple(dict.fromkeys(names))
        return self.found

    def problem(self) -> str:
        """Why rows must not leave; empty if they may."""
        left = ", ".join(name for name in self.look() if name not in self.accepted)
        if not left:
            return ""
        return (
            f"the columns {left} hold flags, categories or counts, which can be read back from "
            "masked rows and from their sums (vfb audit shows how).  Leave them out, or combine "
            "them with others; to serve them all the same: "
            f'[access] accept = ["{DISCRETE}: {left}"]'
        )
