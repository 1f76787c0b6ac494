"""How much a passive participant answers: one table of its configuration file."""

from pathlib import Path
from typing import Final

from vfbandits.errors import ConfigError
from vfbandits.settings.values import AtLeastOne, Positive, Settings, Text, duration_s

DISCRETE: Final = "discrete"
FINDINGS: Final = (DISCRETE,)


class AccessSettings(Settings, frozen=True, kw_only=True):
    """Limits on what leaves a passive participant, and how long the record of it is kept.

    Attributes
    ----------
    users_per_day
        How many users it answers about on one day (UTC); without it any number.
    asks_per_user_per_day
        How often it answers about one user on one day; without it any number.
    rows_per_second
        How many rows it sends on average; a burst may have the rows of one second.  Without it any
        number.
    allow
        A text file with a user in each line: nobody else is answered about.
    campaigns
        Campaigns of the active participant that are answered; without it all are.
    consent
        A column of the feature table with true or false: users without true are not answered about.
        It is no feature.
    changed_after
        How long a changed row of a user waits until it is answered, as "24h" (units s, min, h, d);
        meanwhile the earlier row is.  Without it changes are answered immediately.
    accept
        Findings of the check at the start that are accepted, with their columns, as
        "discrete: age_group, is_member".
    keep_days
        Files of the access record whose last entry is older are removed; without it none is.
    """

    users_per_day: AtLeastOne | None = None
    asks_per_user_per_day: AtLeastOne | None = None
    rows_per_second: Positive | None = None
    allow: Path | None = None
    campaigns: tuple[Text, ...] | None = None
    consent: Text | None = None
    changed_after: Text | None = None
    accept: tuple[Text, ...] = ()
    keep_days: Positive | None = None

    def __post_init__(self) -> None:
        """Refuse a time that is none, and findings that there are not."""
        for finding, columns in map(_split_finding, self.accept):
            if finding not in FINDINGS or not all(columns):
                raise ConfigError(
                    'access.accept has findings with columns, such as "discrete: age_group, '
                    f'is_member", and knows {", ".join(FINDINGS)}; got {finding[:40]!r} with '
                    f"{len(columns)} columns"
                )
        if self.changed_after is not None:
            duration_s(self.changed_after, "access.changed_after")

    def accepted(self, finding: str) -> frozenset[str]:
        """The columns for which a finding is accepted.

        >>> sorted(AccessSettings(accept=("discrete: age, city",)).accepted("discrete"))
        ['age', 'city']
        """
        pairs = map(_split_finding, self.accept)
        return frozenset(name for one, columns in pairs if one == finding for name in columns)

    @property
    def changed_after_s(self) -> float | None:
        """``changed_after`` in seconds."""
        if self.changed_after is None:
            return None
        return duration_s(self.changed_after, "access.changed_after")


def _split_finding(text: str) -> tuple[str, list[str]]:
    """The name of a finding, and its columns."""
    finding, _, columns = text.partition(":")
    return finding.strip(), [name.strip() for name in columns.split(",")]
