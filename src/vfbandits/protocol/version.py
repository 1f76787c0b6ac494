"""Versions of the protocol between participants, and which one a link speaks.

A hello carries the lowest and the highest version that the passive participant speaks.  The active
one chooses the highest version that both speak and names it in its welcome.  So participants are
upgraded one after the other, while each pair still has a version in common.

A version belongs to one link.  What all participants of a round must do alike (masks, pads, row
digests) cannot change with it: that is a term of the roster.
"""

from dataclasses import dataclass

from vfbandits.errors import HandshakeError

MIN_VERSION = 1
MAX_VERSION = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions from ``lowest`` to ``highest``, both included."""

    lowest: int
    highest: int

    def __post_init__(self) -> None:
        """Refuse a range without a version in it."""
        if not MIN_VERSION <= self.lowest <= self.highest <= MAX_VERSION:
            raise HandshakeError(
                f"protocol: wanted a lowest version from {MIN_VERSION} and a highest one that is "
                f"not below it, got {self.lowest} and {self.highest}"
            )

    def __contains__(self, version: int) -> bool:
        """Whether this version is spoken."""
        return self.lowest <= version <= self.highest

    def __str__(self) -> str:
        """The range in words.

        >>> print(Versions(1, 3), "and", Versions(2, 2))
        versions 1 to 3 and version 2
        """
        if self.lowest == self.highest:
            return f"version {self.lowest}"
        return f"versions {self.lowest} to {self.highest}"

    def common(self, other: "Versions") -> int | None:
        """The highest version in both ranges; None if there is none.

        >>> Versions(1, 3).common(Versions(2, 5)), Versions(1, 3).common(Versions(4, 5))
        (3, None)
        """
        highest = min(self.highest, other.highest)
        return highest if highest >= max(self.lowest, other.lowest) else None


# Version 1 is that of vfbandits 0.2.0, the first that was published.
SPOKEN = Versions(lowest=1, highest=1)
