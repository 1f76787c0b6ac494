"""Tables of an earlier version, and the steps that bring them to the newest.

Records and snapshots are never rewritten: they are read through upcasters.  Only where a *table*
must change does a journal need ``vfb journal migrate``.  A step turns the tables of one version
into those of the next; all steps run in one transaction, so a migration that is killed leaves the
tables unchanged.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import LiteralString, TypeAlias

from vfbandits.errors import JournalError


@dataclass(frozen=True, slots=True)
class Step:
    """A step from one version of the tables to the next; ``does`` describes it for a dry run."""

    does: str
    statements: tuple[LiteralString, ...]


@dataclass(frozen=True, slots=True)
class Migrated:
    """Tables were migrated: from which version to which, by whom, and when in seconds since 1970.

    This record is in a table of its own, which needs no key, and is written in the transaction of
    the migration.
    """

    tables: str
    found: int
    newest: int
    by: str
    at: float


# By the version that a step starts from.
Steps: TypeAlias = Mapping[int, Step]


@dataclass(frozen=True, slots=True)
class Migration:
    """The steps from version ``found`` of these tables to ``newest``; none if they are the same."""

    tables: str
    found: int
    newest: int
    steps: tuple[str, ...]


def newest(steps: Steps) -> int:
    """The newest version, in which new tables are created.

    >>> newest({}), newest({1: Step("add a column", ("ALTER TABLE ...",))})
    (1, 2)
    """
    return 1 + len(steps)


def plan(found: int, steps: Steps, *, tables: str, journal: str) -> Migration:
    """The migration that tables of version ``found`` need."""
    if not 1 <= found <= newest(steps):
        raise _unknown(found, newest(steps), journal)
    todo = tuple(steps[number].does for number in range(found, newest(steps)))
    return Migration(tables, found, newest(steps), todo)


def refuse_other_version(found: int, steps: Steps, *, journal: str) -> None:
    """Raise unless the tables of a journal are of the newest version."""
    if found == newest(steps):
        return
    if not 1 <= found < newest(steps):
        raise _unknown(found, newest(steps), journal)
    raise JournalError(
        f"the journal {journal} must have tables of version {newest(steps)}, got {found}: stop "
        "every process that uses it, back it up, and run `vfb journal migrate` on it"
    )


def _unknown(found: int, wanted: int, journal: str) -> JournalError:
    newer = ": it was written by a newer vfbandits, upgrade this one" if found > wanted else ""
    return JournalError(
        f"the journal {journal} must have tables of version {wanted}, got {found}{newer}"
    )
