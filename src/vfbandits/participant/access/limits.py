"""Access limits of a passive participant: users and asks per day, rows per second, allowed users.

Days are in UTC.  Counts of the day are read from the access record at the start, so a restart does
not reset them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from vfbandits.participant.access.chain import Content
from vfbandits.participant.access.record import DAY_S

ANSWERED: Final = "answered"
NOT_ALLOWED: Final = "not allowed"
OTHER_CAMPAIGN: Final = "campaign not allowed"
NO_CONSENT: Final = "no consent"
USERS_PER_DAY: Final = "users per day"
ASKS_PER_USER: Final = "asks per user and day"
ROWS_PER_SECOND: Final = "rows per second"
LIMITS: Final = (
    NOT_ALLOWED,
    OTHER_CAMPAIGN,
    NO_CONSENT,
    USERS_PER_DAY,
    ASKS_PER_USER,
    ROWS_PER_SECOND,
)


class AccessLimits:
    """Limits of one participant; None is no limit.

    >>> limits = AccessLimits(users_per_day=1)
    >>> limits.judge(["ann"], now=0.0), limits.judge(["ann", "bob"], now=1.0)
    (['answered'], ['answered', 'users per day'])
    """

    def __init__(
        self,
        *,
        users_per_day: int | None = None,
        asks_per_user_per_day: int | None = None,
        rows_per_second: float | None = None,
        allowed: frozenset[str] | None = None,
        campaigns: frozenset[str] | None = None,
    ) -> None:
        self._users_per_day = users_per_day
        self._asks_per_user = asks_per_user_per_day
        self._rows_per_second = rows_per_second
        self._allowed = allowed
        self._campaigns = campaigns
        self._is_open = all(
            limit is None for limit in (users_per_day, asks_per_user_per_day, allowed, campaigns)
        )
        self._day = -1
        self._asks: Counter[str] = Counter()
        self._free_at = 0.0  # when the rows answered so far are within the rate

    def remember(self, contents: Iterable[Content], *, now: float) -> None:
        """Count what was answered today before this process started."""
        if self._is_open:
            return
        self._begin_day(now)
        for content in contents:
            if int(content.at // DAY_S) == self._day and content.outcome == ANSWERED:
                self._asks[content.user] += 1

    def admits_rows(self, n_rows: int, *, now: float) -> bool:
        """Whether so many rows may be sent now; a burst may have the rows of one second."""
        if self._rows_per_second is None:
            return True
        free_at = max(self._free_at, now) + n_rows / self._rows_per_second
        # An ask for more rows than that is answered after a pause.
        if free_at > now + 1.0 and self._free_at > now:
            return False
        self._free_at = free_at
        return True

    def judge(
        self, users: Sequence[str], *, now: float, campaigns: Iterable[str] = repeat("")
    ) -> list[str]:
        """For each user "answered", which is counted, or the limit that it exceeds.

        ``campaigns`` has the campaign of each.
        """
        if self._is_open:  # no limit needs counts
            return [ANSWERED] * len(users)
        self._begin_day(now)
        return [*map(self._judge, users, campaigns)]

    def _judge(self, user: str, campaign: str) -> str:
        asks = self._asks.get(user, 0)
        if self._campaigns is not None and campaign not in self._campaigns:
            return OTHER_CAMPAIGN
        if self._allowed is not None and user not in self._allowed:
            return NOT_ALLOWED
        if self._asks_per_user is not None and asks >= self._asks_per_user:
            return ASKS_PER_USER
        if self._users_per_day is not None and not asks and len(self._asks) >= self._users_per_day:
            return USERS_PER_DAY
        self._asks[user] = asks + 1
        return ANSWERED

    def _begin_day(self, now: float) -> None:
        day = int(now // DAY_S)
        if day > self._day:  # a clock that is set back does not reset the counts
            self._day = day
            self._asks.clear()
