"""Erase a user: identity, answers and contexts leave the journal, its snapshots and its inbox.

What was learnt stays, as sums over all contexts, unless it is to be unlearnt.  Every record of the
user's decisions becomes an ``Erased``, which keeps the event's id: so the event is not ranked a
second time, and accepts no reward.  The steps:

1. Pending decisions of the user are closed, and rewards to unlearn are retracted.
2. Two snapshots are taken, which cover all records to erase; older ones are deleted, except the
   first.
3. An ``Administered`` between them records who asked for it, and why.
4. The user's records are erased from the inbox, then from the journal.

If the process is killed at any point, the journal still verifies, and calling again finishes.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from vfbandits.campaign.events import (
    ERASURE,
    Administered,
    ArmsDropped,
    Decided,
    Erased,
    Event,
    Forgotten,
    Found,
    MasksChanged,
    Restored,
    Retracted,
    Rewarded,
    SetAside,
)
from vfbandits.campaign.history import History
from vfbandits.campaign.machine import Campaign
from vfbandits.campaign.model import Model
from vfbandits.campaign.settings import CampaignSettings
from vfbandits.core.decision import EventId
from vfbandits.errors import ConflictError, JournalError, SettingError
from vfbandits.journal.base import Journal
from vfbandits.journal.inbox.base import Inbox
from vfbandits.journal.lookup import event_id_of
from vfbandits.journal.recover import own_model
from vfbandits.journal.verify import verify

NAMES_PER_BATCH = 1_000
_WITH_A_USER = "a model that was restored, erased with a user that was unlearnt"


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """The user to erase, the reason, who asks for it, and when, in seconds since 1970.

    The journal keeps all of it except the user, so a reason that names the user is refused.
    """

    user: str = field(repr=False)
    reason: str
    by: str
    at: float

    def __post_init__(self) -> None:
        """Refuse what cannot be carried out."""
        if not self.user:
            raise SettingError("wanted the id of a user, got none")
        if not self.reason.strip():
            raise SettingError("wanted the reason for an erasure, got none")
        if self.is_named_in(self.reason):
            raise SettingError(
                "the reason for an erasure stays in the journal: wanted one that does not name the "
                "user, got one that does"
            )

    def is_named_in(self, text: str) -> bool:
        """Whether a text has the user's id in it, as a word."""
        return re.search(rf"(?<!\w){re.escape(self.user)}(?!\w)", text) is not None


@dataclass(frozen=True, slots=True)
class Erasure:
    """Counts of what was erased: decisions of the user, and records.

    The records include those with a context whose decision is no longer in the journal, since they
    may belong to any user.  ``unlearnt`` counts the rewards taken out of the model.  ``naming``
    counts the event ids that contain the user's id; these stay.
    """

    decisions: int
    records: int
    unlearnt: int
    naming: int


@dataclass(slots=True)
class _Found:
    """The user's decisions in a journal, each with its records, and what unlearning them needs.

    ``orphans`` are records with a context whose decision is no longer in the journal: they may
    belong to any user.
    """

    decisions: list[Found] = field(default_factory=list)
    mask_changes: list[tuple[int, MasksChanged]] = field(default_factory=list)
    dropped: list[tuple[int, ArmsDropped]] = field(default_factory=list)
    orphans: list[tuple[int, EventId]] = field(default_factory=list)
    restored: list[int] = field(default_factory=list)
    n_set_aside: int = 0

    def histories(self, model: Model) -> Iterator[History]:
        """Of each decision, with all that ``Campaign.retract`` asks for."""
        for records in self.decisions:
            past = History.found(records)
            if past is None:
                raise RuntimeError("a decision begins with its record")
            past.mask_changes = self.mask_changes
            past.is_arm_dropped = any(
                at > past.learnt_at and past.decided.model in event.arms and model.holds(at)
                for at, event in self.dropped
            )
            yield past


def erase_user(
    journal: Journal,
    request: ErasureRequest,
    *,
    unlearn: bool = False,
    inbox: Inbox | None = None,
    on_step: Callable[[int], None] = lambda done: None,
) -> Erasure:
    """Erase a user; ``unlearn`` subtracts the contexts that were rewarded, exactly.

    Refused, with nothing changed, for a journal with problems and where unlearning cannot be exact.
    ``on_step`` gets the position up to which the journal was verified.

    >>> import numpy as np, vfbandits as vfb
    >>> from vfbandits.journal.memory import MemoryJournal
    >>> journal = MemoryJournal()
    >>> journal.save_snapshot(0, Model(vfb.Bandit(vfb.LinUCB(), dim=1)).snapshot())
    >>> journal.append([Decided("a", 0, 0, np.ones(1), user="ann")])
    1
    >>> erase_user(journal, ErasureRequest("ann", "she asked", "ops", 0.0)).decisions
    1
    >>> [type(event).__name__ for _, event in journal.read()]
    ['Erased', 'Forgotten', 'Administered']
    """
    found = verify(journal, on_step=on_step)
    if found.problems:
        raise JournalError(
            f"a journal must verify to erase from it, got {len(found.problems)} problems, "
            f"the first: {found.problems[0]}"
        )
    mine = _survey(journal, request.user)
    model = own_model(journal)
    arriving = [] if inbox is None else inbox.decisions_of(request.user)
    if unlearn:
        _refuse_inexact(journal, model, mine)
    known = {_name(records) for records in mine.decisions}
    new = [name for name in dict.fromkeys(arriving) if name not in known]
    logged = journal.find_many(new)
    new = [name for name in new if not logged[name]]  # others are tombstones already
    retracted = list(_retractions(model, mine, request)) if unlearn else []
    if not unlearn:
        mine.restored.clear()  # what was learnt stays
    events: list[Event] = [Erased(name, None) for name in new]
    events += [*_closings(model, mine), *retracted]
    if mine.decisions or mine.orphans or events:
        done = Erasure(
            decisions=len(mine.decisions) + len(new),
            records=sum(map(len, mine.decisions)) + len(mine.orphans) + len(new),
            unlearnt=sum(one.x.size > 0 for one in retracted),
            naming=sum(request.is_named_in(str(name)) for name in (*known, *new)),
        )
        replaced = _write(journal, model, events, mine, _note(done, request))
    else:
        done, replaced = Erasure(0, 0, 0, 0), {}
    if inbox is not None:
        inbox.erase([*known, *arriving])
    journal.erase(replaced)
    return done


def _survey(journal: Journal, user: str) -> _Found:
    """All that the journal has of a user's decisions, in one pass."""
    found = _Found()
    by_name: dict[EventId, Found] = {}  # an id may be used again: the latest decision with it
    for position, event in chain(journal.remains(), journal.read(journal.compacted_to)):
        if isinstance(event, MasksChanged):
            found.mask_changes.append((position, event))
        elif isinstance(event, ArmsDropped):
            found.dropped.append((position, event))
        elif isinstance(event, Restored):
            found.restored.append(position)
        elif isinstance(event, SetAside):
            found.n_set_aside += event.why != _WITH_A_USER
        elif isinstance(event, Decided):
            by_name.pop(event.event_id, None)
            if event.user == user:
                by_name[event.event_id] = [(position, event)]
                found.decisions.append(by_name[event.event_id])
        else:
            name = event_id_of(event)
            if name is not None and name in by_name:
                by_name[name].append((position, event))
            elif name is not None and _has_context(event):
                found.orphans.append((position, name))
    found.orphans = [*_orphans(journal, found.orphans)]
    return found


def _has_context(event: Event) -> bool:
    return isinstance(event, Retracted) or (
        isinstance(event, Rewarded) and event.recalled is not None
    )


def _orphans(journal: Journal, records: list[tuple[int, EventId]]) -> Iterator[tuple[int, EventId]]:
    """The ``records`` whose decision is not in the journal."""
    for start in range(0, len(records), NAMES_PER_BATCH):
        some = records[start : start + NAMES_PER_BATCH]
        found = journal.find_many([*dict.fromkeys(name for _, name in some)])
        for position, name in some:
            if not any(isinstance(one, Decided) for at, one in found[name] if at < position):
                yield position, name


def _refuse_inexact(journal: Journal, model: Model, mine: _Found) -> None:
    """Refuse to unlearn unless the journal has all contexts, and each counts with full weight."""
    discount = model.bandit.settings.discount
    if discount < 1.0:
        raise SettingError(
            f"to unlearn a user exactly, the discount must be 1, got {discount}; "
            "nothing was changed"
        )
    if journal.compacted_to or mine.n_set_aside:
        where = f"one compacted up to {journal.compacted_to}"
        if not journal.compacted_to:
            where = f"one with {mine.n_set_aside} records set aside"
        raise ConflictError(
            "to unlearn a user exactly, the journal must have all of its contexts, got "
            f"{where}: contexts may be missing; nothing was changed"
        )


def _closings(model: Model, mine: _Found) -> Iterator[Forgotten]:
    """Events that remove the user's pending decisions from the model."""
    for records in mine.decisions:
        name, position = _name(records), records[0][0]
        pending = model.pending.get(name)
        if pending is not None and pending.position == position:
            yield Forgotten(name)
        elif model.cold.due(position) is not None:
            yield Forgotten(name, position)


def _retractions(model: Model, mine: _Found, request: ErasureRequest) -> Iterator[Retracted]:
    """Events that remove what was learnt from the user from the model."""
    bandit = model.bandit
    settings = CampaignSettings(bandit.policy, bandit.floor, reward_wait_s=None)
    campaign = Campaign(model, settings)
    for past in mine.histories(model):
        if past.learnt is None:
            continue
        decided = past.decided
        if past.is_arm_dropped or not model.holds(past.learnt_at):
            # Its model was dropped or replaced since, but that model may have been exported.
            yield Retracted(
                event_id=decided.event_id,
                value=past.learnt,
                x=np.empty(0),
                model=decided.model,
                epoch=model.epoch,
                at=request.at,
                by=request.by,
            )
        else:
            name = str(decided.event_id)
            event = campaign.retract(name, by=request.by, now=request.at, past=past).event
            if isinstance(event, Retracted):
                yield event


def _note(done: Erasure, request: ErasureRequest) -> Administered:
    what = f"{done.decisions} decisions of a user, {done.unlearnt} rewards unlearnt"
    return Administered(ERASURE, f"{what}: {request.reason}", request.by, request.at)


def _write(
    journal: Journal, model: Model, events: list[Event], mine: _Found, note: Administered
) -> dict[int, Erased | SetAside]:
    """Append, take the snapshots that cover the erased records, and return the replacements."""
    first = journal.last_position + 1
    for position, event in enumerate(events, start=first):
        model.enter(position, event)  # before anything is written: one that does not fit is refused
    covered_by = journal.append(events)
    journal.save_snapshot(covered_by, model.snapshot())
    position = journal.append([note])
    model.enter(position, note)
    journal.save_snapshot(position, model.snapshot())
    gone = dict(mine.orphans)
    for records in mine.decisions:
        gone |= dict.fromkeys((at for at, _ in records), _name(records))
    appended = enumerate(events, start=first)
    unlearnt = {at: one.event_id for at, one in appended if isinstance(one, Retracted)}
    erased: dict[int, Erased | SetAside] = {
        at: Erased(name, covered_by) for at, name in (gone | unlearnt).items()
    }
    aside = SetAside(_WITH_A_USER, covered_by, note.by, note.at)
    return erased | dict.fromkeys(mine.restored, aside)


def _name(records: Found) -> EventId:
    name = event_id_of(records[0][1])
    if name is None:
        raise RuntimeError("a decision begins with its record")
    return name
