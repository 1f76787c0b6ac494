"""The access record in figures: for each day and campaign, how much was answered and declined."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from vfbandits.participant.access.chain import Content
from vfbandits.participant.access.limits import ANSWERED


@dataclass(slots=True)
class Tally:
    """Counts of entries: those that were answered, and ``others`` by their outcome."""

    answered: int = 0
    rows: int = 0
    others: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set, repr=False)

    @property
    def users(self) -> int:
        """Number of users that were answered about."""
        return len(self.names)

    def add(self, content: Content) -> None:
        """Count an entry."""
        if content.outcome == ANSWERED:
            self.answered += 1
            self.rows += content.rows
            self.names.add(content.user)
        else:
            self.others[content.outcome] += 1

    def document(self) -> dict[str, object]:
        """As JSON."""
        counts = {"answered": self.answered, "users": self.users, "rows": self.rows}
        return {**counts, "others": dict(self.others)}


@dataclass(slots=True)
class Day:
    """One day (UTC), in all and by the campaign that the active participant named."""

    date: str
    total: Tally = field(default_factory=Tally)
    campaigns: dict[str, Tally] = field(default_factory=dict)

    def add(self, content: Content) -> None:
        """Count an entry."""
        self.total.add(content)
        if content.campaign:
            self.campaigns.setdefault(content.campaign, Tally()).add(content)

    def document(self) -> dict[str, object]:
        """As JSON."""
        campaigns = {name: self.campaigns[name].document() for name in sorted(self.campaigns)}
        return {"date": self.date, **self.total.document(), "campaigns": campaigns}


def by_day(contents: Iterable[Content], *, users: Collection[str] | None = None) -> list[Day]:
    """The days, oldest first; with ``users``, of the entries about these users only.

    >>> entry = Content(0.0, "ab", 1, "decision", "answered", 3, "spring")
    >>> [(day.total.answered, [*day.campaigns]) for day in by_day([entry])]
    [(1, ['spring'])]
    """
    days: dict[str, Day] = {}
    for content in contents:
        if users is not None and content.user not in users:
            continue
        date = datetime.fromtimestamp(content.at, UTC).date().isoformat()
        days.setdefault(date, Day(date)).add(content)
    return [days[date] for date in sorted(days)]
