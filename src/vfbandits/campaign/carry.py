"""Contexts of decisions that were made behind older masks, carried to those in force now."""

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from vfbandits.campaign.events import Decided, MasksChanged, Offered
from vfbandits.campaign.model import remask
from vfbandits.core.bandit import Bandit
from vfbandits.core.layout import LayoutSettings
from vfbandits.core.move import Move
from vfbandits.core.policy import LinGreedy
from vfbandits.core.reward import Observation
from vfbandits.errors import ContextError


def carried(
    one: Decided, moves: Iterable[MasksChanged], *, epoch: int, layout: LayoutSettings
) -> Decided:
    """The same decision behind the masks of ``epoch``, by those of ``moves`` that lie between.

    An untaught bandit carries it, as the bandit of the campaign carried its own decisions.
    """
    if one.epoch == epoch:
        return one
    between = [moved for moved in moves if one.epoch < moved.epoch <= epoch]
    if not between or [moved.epoch for moved in between] != list(range(one.epoch + 1, epoch + 1)):
        raise ContextError(
            f"a decision behind masks of epoch {one.epoch} cannot be carried to {epoch}: the "
            "journal no longer has the changes between them"
        )
    bandit = Bandit(
        LinGreedy(),
        dim=between[0].matrix.shape[1],
        layout=layout.layout,
        arm_dim=layout.arm_dim,
        intercept=layout.intercept,
    )
    name = str(one.event_id)
    bandit.recall(name, Observation(one.x, one.model))
    offered = one.offered
    for moved in between:
        move = remask(moved.matrix)
        bandit.move(move)
        offered = None if offered is None else moved_offer(offered, move)
    return replace(one, x=bandit.observation(name).x, epoch=epoch, offered=offered)


def moved_offer(offered: Offered, move: Move) -> Offered:
    """The same arms with their contexts carried along."""
    return replace(offered, rows=np.ascontiguousarray(move.vector(offered.rows.T).T))
