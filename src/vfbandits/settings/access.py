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
        Maximum number of users per day (UTC) that it answers about; without it there is no limit.
    asks_per_user_per_day
        Maximum number of answers about one user per day; without it there is no limit.
    rows_per_second
        Average number of rows per second that it sends; a burst may have the rows of one second.
        Without it there is no limit.
    allow
        A text file with one user per line: it answers about these users only.
    campaigns
        Campaigns of the active participant that are answered; without it all are.
    consent
        A column of the feature table with true or false: it answers about users with true only.
        The column is not a feature.
    changed_after
        Delay until a changed row of a user is sent, such as "24h" (units s, min, h, d); the earlier
        row is sent meanwhile.  Without it there is no delay.
    accept
        Findings of the check at the start that are accepted, with their columns, such as
        "discrete: age_group, is_member".
    keep_days
        Days after its last entry until a file of the access record is removed; without it none is.
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
        """Refuse invalid durations and unknown findings."""
        for finding, columns in map(_split_finding, self.accept):
            named = [name for name in columns if name]
            if finding not in FINDINGS or named != columns:
                unnamed = " and one without a name" if named and named != columns else ""
                raise ConfigError(
                    f"access.accept must have findings ({', '.join(FINDINGS)}) with columns, such "
                    f'as "discrete: age_group, is_member", got {finding[:40]!r} with '
                    f"{len(named)} columns{unnamed}"
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
