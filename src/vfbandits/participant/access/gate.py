"""Which part of an ask a passive participant answers, and its entry in the access record."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Final, NamedTuple

from vfbandits.errors import ConfigError
from vfbandits.features.base import Key, Lookup
from vfbandits.participant.access.chain import Content, entries_in, user_hash
from vfbandits.participant.access.held_rows import FILE as HELD_ROWS
from vfbandits.participant.access.held_rows import HeldRows
from vfbandits.participant.access.limits import (
    ANSWERED,
    NO_CONSENT,
    ROWS_PER_SECOND,
    AccessLimits,
)
from vfbandits.participant.access.record import AccessRecord
from vfbandits.protocol.messages import Ask
from vfbandits.settings.access import AccessSettings

DECISION: Final = "decision"
TRIAL: Final = "trial"
UNKNOWN: Final = "unknown"
DECLINED: Final = "declined"
FAILED: Final = "failed"
COUNT_AFTER: Final = 256  # asks


class Admission(NamedTuple):
    """The admission of an ask: for each user the outcome, the number of rows, and the campaign."""

    names: Sequence[str]
    outcomes: Sequence[str]
    rows: Sequence[int]
    campaigns: Sequence[str]

    @property
    def n_declined(self) -> int:
        """Number of users that are not answered about."""
        return len(self.outcomes) - self.outcomes.count(ANSWERED)

    @property
    def declined(self) -> list[str]:
        """The limits that users exceed, one for each of these users."""
        return [outcome for outcome in self.outcomes if outcome != ANSWERED]

    def refused(self) -> "Admission":
        """The same with all users declined, by the limit of the first declined one."""
        limit = next((one for one in self.declined if one != UNKNOWN), NO_CONSENT)
        outcomes = [limit if outcome == ANSWERED else outcome for outcome in self.outcomes]
        return self._replace(outcomes=outcomes)

    @property
    def is_answered(self) -> list[bool]:
        """For each row, whether it is looked up."""
        each = map(repeat, [outcome == ANSWERED for outcome in self.outcomes], self.rows)
        return [*chain.from_iterable(each)]


@dataclass(slots=True)
class AccessCounts:
    """What was answered since the process began.

    ``asks`` by "answered", "declined", "failed" and "trial"; ``users`` by the outcome that the
    record has for them; ``rows`` are those with features.
    """

    asks: Counter[str] = field(default_factory=Counter)
    users: Counter[str] = field(default_factory=Counter)
    rows: int = 0


class AccessGate:
    """The limits and the record that guard the features of one participant."""

    def __init__(
        self,
        record: AccessRecord,
        limits: AccessLimits,
        *,
        needs_consent: bool = False,
        held: HeldRows | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.record = record
        self._counts = AccessCounts()
        self._uncounted: list[list[Content]] = []
        self._limits = limits
        self._needs_consent = needs_consent
        self._held = held
        self._clock = clock
        limits.remember(entries_in(record.folder), now=clock())

    def admit(self, ask: Ask) -> Admission:
        """The users to answer about; ``note`` must come before the answer leaves."""
        names = [*map(self.record.user, ask.users)]
        rows = [*map(len, ask.arms)] if ask.arms else [1] * len(names)
        now, campaigns = self._clock(), ask.campaign_of_each
        if self._limits.admits_rows(sum(rows), now=now):
            outcomes = self._limits.judge(names, now=now, campaigns=campaigns)
        else:
            outcomes = [ROWS_PER_SECOND] * len(names)
        return Admission(names, outcomes, rows, campaigns)

    def consented(self, admission: Admission, lookup: Lookup) -> Admission:
        """The same without users that gave no consent.

        If consent is required, an unknown user is declined as well: otherwise it could be
        distinguished from a known user without consent.
        """
        if not self._needs_consent or not (lookup.refused or lookup.absent):
            return admission
        refused, absent = {*lookup.refused}, {*lookup.absent}
        outcomes, start = [], 0
        for given, rows in zip(admission.outcomes, admission.rows, strict=True):
            places = range(start, start + rows)
            start += rows
            outcome = given
            if given == ANSWERED and not refused.isdisjoint(places):
                outcome = NO_CONSENT
            elif given == ANSWERED and absent.issuperset(places):
                outcome = UNKNOWN
            outcomes.append(outcome)
        return admission._replace(outcomes=outcomes)

    def steady(self, keys: Sequence[Key], lookup: Lookup) -> Lookup:
        """``lookup`` with earlier rows in place of those that changed recently."""
        if self._held is None:
            return lookup
        name = self.record.user
        return self._held.settle([(name(key[0]), "".join(key[1:])) for key in keys], lookup)

    @property
    def n_held(self) -> int:
        """Rows that were answered with their values from before a change."""
        return 0 if self._held is None else self._held.n_held

    def note(self, ask: Ask, admission: Admission, absent: Sequence[int]) -> None:
        """Record what will be answered; ``absent`` are places of rows that are not known."""
        at, missing = self._now(), {*absent}
        contents, start = [], 0
        for name, outcome, rows, campaign in zip(
            admission.names, admission.outcomes, admission.rows, admission.campaigns, strict=True
        ):
            if missing and outcome == ANSWERED and missing.issuperset(range(start, start + rows)):
                outcome = UNKNOWN  # noqa: PLW2901  (of the same user)
            contents.append(
                Content(
                    at=at,
                    user=name,
                    round=ask.round,
                    purpose=DECISION,
                    outcome=outcome,
                    rows=rows,
                    campaign=campaign,
                )
            )
            start += rows
        self.record.append(contents)
        # Counted in batches: every answer waits for this code.
        self._uncounted.append(contents)
        if len(self._uncounted) >= COUNT_AFTER:
            self._count()

    def _now(self) -> float:
        """To the millisecond; ``round`` would take longer."""
        return int(self._clock() * 1e3 + 0.5) / 1e3

    @property
    def counts(self) -> AccessCounts:
        """What was answered so far."""
        self._count()
        return self._counts

    def _count(self) -> None:
        counts = self._counts
        each = [[content.outcome for content in contents] for contents in self._uncounted]
        counts.users.update(chain.from_iterable(each))
        some = chain.from_iterable(self._uncounted)
        counts.rows += sum([one.rows for one in some if one.outcome == ANSWERED])
        is_declined = {ANSWERED, UNKNOWN}.isdisjoint
        counts.asks.update([DECLINED if is_declined(one) else ANSWERED for one in each])
        self._uncounted.clear()

    def note_trial(self, ask: Ask) -> None:
        """Record an answer with invented rows, which belong to no user."""
        content = Content(
            at=self._now(),
            user="",
            round=ask.round,
            purpose=TRIAL,
            outcome=TRIAL,
            rows=ask.n_rows,
        )
        self.record.append([content])
        self._counts.asks[TRIAL] += 1

    def note_failure(self) -> None:
        """Count an ask that is not answered because something failed."""
        self._counts.asks[FAILED] += 1

    def close(self) -> None:
        """Release the files."""
        self.record.close()
        if self._held is not None:
            self._held.close()


def open_gate(settings: AccessSettings, folder: Path, *, digest: str = "") -> AccessGate:
    """The gate of a participant, whose record is in ``folder``; ``digest`` is of its scaling."""
    record = AccessRecord(folder, keep_days=settings.keep_days)
    try:
        allowed = None if settings.allow is None else _allowed(settings.allow, record.key)
        limits = AccessLimits(
            users_per_day=settings.users_per_day,
            asks_per_user_per_day=settings.asks_per_user_per_day,
            rows_per_second=settings.rows_per_second,
            allowed=allowed,
            campaigns=None if settings.campaigns is None else frozenset(settings.campaigns),
        )
        held = None
        if settings.changed_after_s is not None:
            held = HeldRows(folder / HELD_ROWS, after_s=settings.changed_after_s, digest=digest)
        needs_consent = settings.consent is not None
        return AccessGate(record, limits, needs_consent=needs_consent, held=held)
    except BaseException:
        record.close()
        raise


def _allowed(path: Path, key: bytes) -> frozenset[str]:
    """The users of a list, one in each line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"access.allow must be a text file with a user in each line, got {path}: {why}"
        ) from error
    return frozenset(user_hash(key, line.strip()) for line in lines if line.strip())
