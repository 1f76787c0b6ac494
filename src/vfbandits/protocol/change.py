"""A change of masks, and perhaps of members, while the federation goes on deciding.

Each participant that stays sends its part S'_j S_j' (core/remask.py).  The change comes into force
when all parts have come, or not at all.  Once they have, nothing that a participant does can stop
it: one that was disconnected has its new share on disk and enters the epoch when it is back.
A helper without features takes part in the same way; its part has no rows and no columns.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from vfbandits.core.arrays import Matrix
from vfbandits.core.mask import MaskShare
from vfbandits.core.move import Remask
from vfbandits.core.remask import add_parts, kept_features, place_parts, remask_part
from vfbandits.core.secure_sum import MIN_SENDERS
from vfbandits.errors import HandshakeError
from vfbandits.protocol.gathering import Gathering, Wanted
from vfbandits.protocol.instructions import Changed
from vfbandits.protocol.messages import Abort, Prepare, change_keys, digest_of
from vfbandits.protocol.roster import Roster


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """From ``before`` to ``after``; the shares are the active participant's own."""

    epoch: int
    before: Roster
    after: Roster
    old_share: MaskShare = field(repr=False)
    share: MaskShare = field(repr=False)
    gathering: Gathering
    signed_roster: bytes = field(default=b"", repr=False)
    envelopes: dict[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def is_ready(self) -> bool:
        """Whether all parts have come, so that it can be put into force."""
        return self.gathering.is_complete

    def needs(self, name: str) -> bool:
        """Whether it fails if this participant leaves now."""
        return not self.is_ready and name in self.gathering.asked

    def waits_for(self, name: str) -> bool:
        """Whether the part of this participant has not come yet."""
        return name in self.gathering.waiting_for

    def refuse_unless_from(self, roster: Roster, share: MaskShare, *, epoch: int) -> None:
        """Refuse to start from other masks or another roster than those in force."""
        if self.epoch <= epoch:
            raise HandshakeError(f"epoch: wanted one after {epoch}, got {self.epoch}")
        if self.before.digest != roster.digest:
            raise HandshakeError(
                f"wanted a change from the roster in force, {roster.digest[:12]}…, "
                f"got one from {self.before.digest[:12]}…"
            )
        if self.old_share is not share:
            raise HandshakeError(
                "wanted a change from the masks in force, got one from older masks"
            )

    def start(self, next_round: int, *, deadline: float) -> int:
        """Give it a number that no round has, and a deadline; returns the number."""
        self.gathering.round = max(self.gathering.round, next_round)
        self.gathering.deadline = deadline
        return self.gathering.round

    def prepares(self) -> Iterator[tuple[str, Prepare]]:
        """The message for each participant that stays."""
        asked = self.gathering.asked
        senders = asked if self.gathering.wanted.secure else ()
        for name in asked:
            envelope = self.envelopes.get(name, b"")
            yield (
                name,
                Prepare(self.epoch, self.gathering.round, senders, self.signed_roster, envelope),
            )

    def abort(self) -> Abort:
        """The message for them when the change fails."""
        return Abort(self.epoch)

    def changed(self) -> Changed:
        """The instruction once all parts have come; MaskError if they do not fit together."""
        return Changed(self.epoch, self.remask())

    def remask(self) -> Remask:
        """The change that all parts make together; MaskError if they do not fit."""
        own: Matrix = remask_part(self.old_share, self.share)
        before, after = self.before.split, self.after.split
        came = {name: part for name, part in self.gathering.came.items() if name in before.names}
        if self.before.terms.mask == "blockwise":
            return place_parts({before.active: own, **came}, before, after)
        if self.gathering.wanted.secure:
            return add_parts(own + self.gathering.total(), before, after)
        # In the order of the roster: sums of floats depend on it.
        total = sum((came[name] for name in before.names if name in came), start=own)
        return add_parts(total, before, after)


def plan_change(  # noqa: PLR0913  (one argument for each thing that changes)
    *,
    epoch: int,
    round_number: int,
    before: Roster,
    after: Roster,
    old_share: MaskShare,
    share: MaskShare,
    signed_roster: bytes = b"",
    envelopes: dict[str, bytes] | None = None,
) -> Change:
    """A change that has not started, from round number ``round_number`` on.

    Refuses one in which a participant changes its width or the federation its terms.
    """
    helpers = _helpers(before)
    stay = (*_stay(before, after), *helpers)
    secure = before.terms.aggregation == "secure"
    rows, columns = ({**_part_width(one), **dict.fromkeys(helpers, 0)} for one in (after, before))
    wanted = Wanted(epoch, columns, before.terms.bound, secure, len(before.passive))
    digest = digest_of(change_keys(epoch, stay if secure else ()))
    n_rows = {name: rows[name] for name in stay}
    digests = dict.fromkeys(stay, digest)
    gathering = Gathering(round_number, wanted, stay, n_rows, digests, deadline=0.0)
    return Change(
        epoch=epoch,
        before=before,
        after=after,
        old_share=old_share,
        share=share,
        gathering=gathering,
        signed_roster=signed_roster,
        envelopes=envelopes or {},
    )


def _part_width(roster: Roster) -> dict[str, int]:
    """The width of each participant's part; on secret shares that is of numbers, not of words."""
    return dict(roster.split.items()) if roster.terms.shares is not None else roster.rows_width


def _helpers(roster: Roster) -> tuple[str, ...]:
    """A helper without features, which the terms name and which so stays."""
    return tuple(name for name in roster.stream_members if name not in roster.split.names)


def _stay(before: Roster, after: Roster) -> tuple[str, ...]:
    """The passive participants in both rosters, in the order of the first."""
    for what, old, new in (
        ("federation", before.federation, after.federation),
        ("session", before.session, after.session),
        ("active participant", before.active.name, after.active.name),
        ("helper without features", _helpers(before), _helpers(after)),
        ("terms", *before.lasting_terms(after)),
    ):
        if old != new:
            raise HandshakeError(f"{what}: a live federation has {old!r} and keeps it, got {new!r}")
    kept_features(before.split, after.split)
    stay = tuple(name for name in before.split.passive if name in after.split.passive)
    if before.terms.aggregation == "secure" and len(stay) < MIN_SENDERS:
        raise HandshakeError(
            f"secure sums need {MIN_SENDERS} passive participants that stay, got {len(stay)}: "
            "add the new ones first, then remove the others"
        )
    return stay
