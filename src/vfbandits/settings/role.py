"""What one process of the active participant does."""

from enum import StrEnum


class Role(StrEnum):
    """Rank, learn, or both."""

    BOTH = "both"
    RANKER = "ranker"
    TRAINER = "trainer"
