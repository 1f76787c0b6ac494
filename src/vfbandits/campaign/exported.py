"""A model on its own: what was learnt up to a position of a journal, to be kept or put back.

No decision is in it, open or settled, so no context of a user either.  It is a bandit, and
``vfb.load`` reads its file.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from vfbandits.campaign.events import Event, Found, MasksChanged, Restored, Retracted, Rewarded
from vfbandits.campaign.model import Model
from vfbandits.core.bandit import Bandit
from vfbandits.core.reward import Observation
from vfbandits.core.snapshot import Record, Snapshot
from vfbandits.errors import ConflictError, SettingError, SnapshotError

MAX_MODEL_BYTES: Final = 512 << 20  # of a record: SQLite takes up to a billion bytes in one
_LEARNT = "learner/"


@dataclass(frozen=True, slots=True)
class ExportedModel:
    """What was learnt up to ``position`` of a journal.

    Attributes
    ----------
    snapshot
        The bandit, without decisions.
    position, check
        Of which record of its journal, and a digest of that one; empty at position 0.
    epoch, signed_roster
        Of the masks that its contexts were behind, and what the journal kept with them.
    n_retracted
        Rewards that were taken back by then.
    """

    snapshot: Snapshot = field(repr=False)
    position: int
    check: str
    epoch: int
    signed_roster: bytes = field(repr=False)
    n_retracted: int

    @classmethod
    def of(cls, model: Model, *, check: str) -> "ExportedModel":
        """The model as it is now; ``check`` is the digest of the record that it ends with."""
        snapshot = learnt_by(model.bandit)
        return cls(
            snapshot=snapshot,
            position=model.position,
            check=check,
            epoch=model.epoch,
            signed_roster=model.signed_roster,
            n_retracted=model.n_retracted,
        )

    def pack(self) -> Snapshot:
        """For a file."""
        about = {
            "position": self.position,
            "check": self.check,
            "epoch": self.epoch,
            "signed_roster": base64.b64encode(self.signed_roster).decode(),
            "n_retracted": self.n_retracted,
        }
        return Snapshot({**self.snapshot.header, "exported": about}, self.snapshot.held)

    @classmethod
    def unpack(cls, packed: Snapshot) -> "ExportedModel":
        """The model that was packed."""
        if not packed.record.has("exported"):
            raise SnapshotError(
                "wanted a model that `vfb model export` wrote, got a snapshot of a "
                f"{packed.record.text('kind')}"
            )
        about = packed.record.child("exported")
        arrays = packed.arrays
        broken = [name for name, array in arrays.items() if not np.isfinite(array).all()]
        if broken:
            raise SnapshotError(
                f"a model has finite numbers, got NaN or infinity in the array {broken[0]!r}"
            )
        _refuse_large(packed.record)
        header = {name: part for name, part in packed.header.items() if name != "exported"}
        for state in Bandit.restore(Snapshot(header, arrays)).states.values():
            state.refuse_impossible()
        try:
            signed_roster = base64.b64decode(about.text("signed_roster"), validate=True)
        except ValueError as error:
            raise SnapshotError(f"a model needs base64 at 'signed_roster': {error}") from error
        return cls(
            snapshot=Snapshot(header, arrays),
            position=about.integer("position"),
            check=about.text("check"),
            epoch=about.integer("epoch"),
            signed_roster=signed_roster,
            n_retracted=about.integer("n_retracted"),
        )


def _refuse_large(record: Record) -> None:
    """Refuse a model that is too large to be put back, before anything is made of it."""
    options = record.child("options")
    arm_dim = options.integer("arm_dim") if options.has("arm_dim") else 0
    width = (record.integer("dim") + 1) * (arm_dim + 1)
    if width**2 * 8 > MAX_MODEL_BYTES:
        raise SnapshotError(
            f"a model that is put back has at most {MAX_MODEL_BYTES} bytes, got one for contexts "
            f"of {width} numbers"
        )


def learnt_by(bandit: Bandit) -> Snapshot:
    """A bandit without its decisions; later rewards do not show in it."""
    if bandit.slots is not None:
        raise SettingError(
            "protection 'shares' has no model to export: what was learnt is in shares of two "
            "servers, and no party has it"
        )
    whole = bandit.snapshot()
    held = {
        name: part.copy(order="K") if isinstance(part, np.ndarray) else [row.copy() for row in part]
        for name, part in whole.held.items()
        if name.startswith(_LEARNT)
    }
    return Snapshot({**whole.header, "open": [], "settled": []}, held)


def put_back(
    exported: ExportedModel,
    model: Model,
    later: Iterable[tuple[int, Event]],
    *,
    rewards: dict[int, int],
    at: float,
) -> Restored:
    """The event by which ``model`` becomes an earlier one of the same journal; changes nothing.

    ``later`` are the records after the earlier one.  What they did to masks is done to it as well,
    and rewards that were retracted since are taken out of it: ``rewards`` has the position of the
    reward of each ``Retracted`` by the position of that.
    """
    bandit = Bandit.restore(exported.snapshot)
    epoch, n_retracted = exported.epoch, exported.n_retracted
    for position, event in later:
        if isinstance(event, MasksChanged):
            if event.epoch != epoch + 1:
                break
            bandit.move(model.make_move(event.matrix))
            epoch = event.epoch
        elif isinstance(event, Retracted):
            learnt_at = rewards.get(position)
            if learnt_at is None:
                break
            if model.holds(learnt_at, until=exported.position):
                if not event.x.size:
                    break
                bandit.retract(Observation(event.x, event.model), event.value)
            n_retracted += 1
    if epoch != model.epoch:
        raise ConflictError(
            f"a model behind masks of epoch {exported.epoch} must be carried to epoch "
            f"{model.epoch}, got the mask changes up to {epoch} only: the journal no longer has "
            "the others; nothing was changed"
        )
    if n_retracted != model.n_retracted:
        raise ConflictError(
            f"{model.n_retracted - n_retracted} rewards were retracted or unlearnt since position "
            f"{exported.position} whose records the journal no longer has: the model would bring "
            "them back; nothing was changed"
        )
    return Restored(learnt_by(bandit), epoch, exported.position, at)


def put_in(exported: ExportedModel, model: Model, *, at: float) -> Restored:
    """The event by which ``model`` takes what a model of another journal has learnt.

    Both must be behind the same masks, which the caller must ensure.
    """
    if (exported.epoch, exported.signed_roster) != (model.epoch, model.signed_roster):
        raise ConflictError(
            f"a model of another journal must be behind masks of epoch {model.epoch} and the same "
            f"roster, got epoch {exported.epoch}"
            + ("" if exported.epoch != model.epoch else " and another roster")
            + "; nothing was changed"
        )
    return Restored(exported.snapshot, model.epoch, None, at)


def reward_of(retracted_at: int, records: Found) -> int | None:
    """Position of the reward that the ``Retracted`` at a position takes back, if it is known."""
    found = (at for at, one in records if isinstance(one, Rewarded) and at < retracted_at)
    return max(found, default=None)
