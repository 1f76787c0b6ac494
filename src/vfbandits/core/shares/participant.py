"""A participant that shares its block of the contexts, turned by a private rotation first."""

import math

import numpy as np

from vfbandits.core.arrays import PlainBlock
from vfbandits.core.mask import MaskShare
from vfbandits.core.ring import Layout, add, encode
from vfbandits.core.shares.dealer import ParticipantSecrets, of_window, sheet_name
from vfbandits.core.shares.messages import Contribution, Place
from vfbandits.core.shares.terms import ShareTerms, input_part
from vfbandits.errors import ArmError, SharesError


class SharingParticipant:
    """One participant's end.

    Its rotation is known to nobody else.  Were A and the dealer to put together what they have,
    they would see rotated blocks, as A does at protection level "mask".
    """

    def __init__(
        self, number: int, *, terms: ShareTerms, secrets: ParticipantSecrets, rotation: MaskShare
    ) -> None:
        self.number = number
        self.terms = terms
        self._secrets = secrets
        self._rotation = rotation
        self._layout = Layout(terms.input_words(number))
        self._sent: dict[int, Contribution] = {}
        self._window = 0

    def __repr__(self) -> str:
        """Its number; no secret."""
        return f"SharingParticipant({self.number})"

    def check(self, block: PlainBlock) -> None:
        """Refuse rows (n_arms, width) that are too many, too long or not finite."""
        terms = self.terms
        if terms.input_rows == 1 and len(block) != 1:
            raise ArmError(f"a decision in layout {terms.layout!r} has one row, got {len(block)}")
        if len(block) > terms.input_rows:
            raise ArmError(
                f"a decision on secret shares has at most max_arms={terms.max_arms} arms, got "
                f"{len(block)}: words are dealt for that many ahead of time"
            )
        longest = math.sqrt(float(np.vecdot(block, block).max(initial=0.0)))
        if not longest <= terms.bound * (1.0 + 1e-12):
            came = "one that is not finite" if not math.isfinite(longest) else "a longer one"
            raise SharesError(
                f"rows of a block must be at most {terms.bound:g} long, the declared bound, got "
                f"{came}; nothing was shared"
            )

    def share(self, place: Place, block: PlainBlock) -> Contribution:
        """The block of one decision under masks of both servers; once for each slot.

        The same block in the same slot gives the same bytes; another block is refused, since the
        difference of two messages under one mask is in the clear.
        """
        self.check(block)
        if place.window > self._window:
            self._sent.clear()
            self._window = place.window
        rows = self._rotation.mask(block) / self.terms.unit
        words = encode(rows, bound=self.terms.max_length, what="rows of a block")
        if place.slot >= self.terms.decisions:
            raise SharesError(f"a window has {self.terms.decisions} slots, got slot {place.slot}")
        name = sheet_name("input", of_window(place))
        for source in (self._secrets.active, self._secrets.helper):
            masks = source.part(name, self._layout, input_part(place.slot))
            words = add(words, masks[:, : len(block)])
        message = Contribution(place, participant=self.number, contexts=words)
        before = self._sent.get(place.slot)
        if place.window < self._window or (
            before is not None and before.to_bytes() != message.to_bytes()
        ):
            raise SharesError(f"slot {place.slot} of window {place.window} was used before")
        self._sent[place.slot] = message
        return message
