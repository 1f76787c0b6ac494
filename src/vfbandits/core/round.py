"""One round of a vertical federation, with all roles in this process: the paper's algorithm box.

    1  each participant brings its block of the contexts            context.py, noise.py
    2  and rotates it with its share of the mask                     mask.py
    3  the active participant aggregates the masked blocks           aggregate.py, secure_sum.py
    4  estimates rewards and lets the policy score the arms          estimate.py, policy/
    5  decides, with a stated rule for ties                          decision.py
    6  and when the reward comes, finds the decision it belongs to   reward.py
    7  and learns                                                    state.py

Steps 4 to 7 are a ``Bandit`` that is fed masked contexts.  Across a network the same functions
are called by the roles; here they are called one after the other.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Never

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import block_diag

from vfbandits.core.aggregate import add_blocks, place_blocks
from vfbandits.core.arrays import Matrix, PlainBlock, Vector
from vfbandits.core.bandit import Bandit
from vfbandits.core.blockwise import BlockwiseMasker
from vfbandits.core.context import Split
from vfbandits.core.decision import ArmId, Decision, EventId
from vfbandits.core.fixed_point import FixedPoint
from vfbandits.core.layout import MAX_ARMS
from vfbandits.core.layout.base import as_arms, refuse_empty
from vfbandits.core.mask import Entropy, MaskShare, deal_blockwise, deal_dense
from vfbandits.core.move import Narrowing, Rotation, Widening
from vfbandits.core.noise import KeyedNoise, VectorNoise
from vfbandits.core.pads import Stamp
from vfbandits.core.policy.base import Policy
from vfbandits.core.secure_sum import MIN_SENDERS, Blinder, add_blinded
from vfbandits.core.settings import refuse_unknown
from vfbandits.core.shares.handover.epoch import NEW, plan_handover
from vfbandits.core.shares.learner import SharesLearner
from vfbandits.core.shares.local import LocalShares
from vfbandits.core.shares.released import ReleasedPolicy, learns_of, plan, refuse_leak
from vfbandits.core.shares.terms import DEFAULT_ARMS, ShareTerms, default_window
from vfbandits.core.snapshot import Record, Snapshot, stored
from vfbandits.errors import (
    ContextError,
    SecureSumError,
    SettingError,
    SharesError,
    SnapshotError,
)

MASKS = ("blockwise", "dense")
PROTECTIONS = ("mask", "sum", "shares")
AGGREGATIONS = ("plain", "secure")
IN_ONE_PROCESS = b"rows of a federation in one process"


class Federation:
    """A bandit on features of several participants, behind masks.

    Parameters
    ----------
    policy
        As for ``Bandit``.
    widths
        Participants and the widths of their blocks; the first is the active participant.
    mask
        "blockwise" (each draws its own rotation) or "dense" (shares of one rotation, layered).
    aggregation
        "plain", or "secure": the active participant sees the sum of the passive participants'
        blocks and not the parts.  Secure sums need dense masks and two passive participants.
    protection
        "mask", "sum" (secure aggregation) or "shares": contexts and all that is learnt are
        secret-shared between the active participant and ``helper`` (experimental; see
        docs/shares.md).  None is what ``aggregation`` says.
    helper
        The second server under "shares": a passive participant, or a party without features, whose
        name is not in ``widths``.
    release
        What the active participant learns of a decision under "shares": "arm" (None is the same),
        or "statistics", the means and, where the policy reads them, widths or covariances of all
        arms.  ``learns`` says it in words.
    accept_leak
        Passive participants whose rows may be read from what is released under "shares": in
        layouts "disjoint" and "outer" the numbers of all arms are equations in one row, and as many
        of them as the row has features are refused otherwise.
    arm_bound
        Most that the length of a row of arm features may be in layout "outer" under "shares", 1
        unless given.
    bound
        Largest size of a masked value that a secure sum takes, 64 unless given; ‖block row‖ bounds
        it.  Under "shares" the most that ‖block row‖ may be, 1 unless given.
    noise
        Gaussian noise on each row of the passive participants before it is masked, each with a key
        of its own; None for none.  Equal rows get equal noise: here a row has no user.
    entropy
        Source of the secret bits of masks and noise; tests may give their own.
    layout, arm_dim, intercept, ridge, discount, floor, seed
        As for ``Bandit``, and so are the others.  Under "shares" ``max_arms`` is the most arms of a
        decision, 16 unless given.

    Examples
    --------
    >>> import vfbandits as vfb
    >>> federation = vfb.Federation(vfb.LinUCB(beta=0.5), widths={"shop": 1, "bank": 1})
    >>> decision = federation.decide({"shop": [[1.0], [0.0]], "bank": [[0.0], [1.0]]})
    >>> decision.arm, decision.contributors
    (0, ('shop', 'bank'))
    >>> federation.reward(decision, 1.0)
    True
    """

    def __init__(  # noqa: PLR0913  (settings, by name)
        self,
        policy: Policy,
        *,
        widths: Mapping[str, int],
        mask: str = "blockwise",
        aggregation: str = "plain",
        protection: str | None = None,
        helper: str | None = None,
        release: str | None = None,
        accept_leak: Sequence[str] = (),
        arm_bound: float | None = None,
        bound: float | None = None,
        noise: VectorNoise | None = None,
        entropy: Entropy = os.urandom,
        layout: str = "per_arm",
        arm_dim: int | None = None,
        intercept: bool = False,
        ridge: float = 1.0,
        discount: float = 1.0,
        floor: float = 0.0,
        seed: int | None = None,
        max_open: int = 100_000,
        max_settled: int = 10_000,
        max_arms: int = MAX_ARMS,
        penalty: str = "l2",
        scaling: str = "none",
        **unknown: Never,
    ) -> None:
        refuse_unknown(Federation, unknown)
        self.split = Split.of(widths)
        refuse_combination(mask, aggregation, self.split)
        self.mask = mask
        self.aggregation = aggregation
        self.protection = protection_of(protection, aggregation)
        self.helper = helper
        is_shared = self.protection == "shares"
        if is_shared:
            refuse_for_shares(mask, discount, self.split, helper)
        else:
            given = {"helper": helper, "release": release, "arm_bound": arm_bound}
            for what, got in (*given.items(), ("accept_leak", tuple(accept_leak) or None)):
                if got is not None:
                    article = "an" if what[0] in "aeiou" else "a"
                    raise SettingError(
                        f"only protection 'shares' has {article} {what}, got {what} {got!r}"
                    )
        self.release = (release or "arm") if is_shared else None
        self.accept_leak = tuple(accept_leak)
        shared = plan(policy, self.release, layout) if self.release else None
        self.bound = bound if bound is not None else 1.0 if is_shared else 64.0
        self.noise = noise
        self.clipped = 0
        self.bandit = Bandit(
            shared.policy if shared else policy,
            dim=self.split.dim,
            layout=layout,
            arm_dim=arm_dim,
            intercept=intercept,
            ridge=ridge,
            discount=discount,
            floor=floor,
            seed=seed,
            max_open=max_open,
            max_settled=max_settled,
            max_arms=max_arms,
            penalty=penalty,
            scaling=scaling,
        )
        self._entropy = entropy
        self._ndim = 2 if self.bandit.layout.layout == "per_arm" else 1
        self._epoch = 0
        self._round = 0
        self._noises: dict[str, KeyedNoise] = {}
        self._deal()
        self._draw_noises()
        self._learner: SharesLearner | None = None
        if shared and self.release:
            terms = ShareTerms(
                widths=self.split.widths,
                max_arms=DEFAULT_ARMS if max_arms == MAX_ARMS else max_arms,
                ridge=self.bandit.settings.ridge,
                posterior_scale=shared.posterior_scale,
                bound=self.bound,
                release=self.release,
                reads=shared.reads,
                beta=shared.beta,
                window=default_window(shared.reads),
                decisions=default_window(shared.reads),
                layout=layout,
                arm_dim=arm_dim or 0,
                arm_bound=1.0 if arm_bound is None else arm_bound,
                intercept=intercept,
            )
            refuse_leak(terms, self.split.names, self.accept_leak)
            rotations = list(self._shares.values())
            local = LocalShares(terms, rotations=rotations, entropy=entropy, max_open=max_open)
            self._learner = SharesLearner(local)
            self.bandit.learn_with(self._learner)

    def __repr__(self) -> str:
        """Settings and counts; no mask, no key."""
        widths = dict(self.split.items())
        return (
            f"Federation({self.bandit.policy!r}, widths={widths}, mask={self.mask!r}, "
            f"aggregation={self.aggregation!r}, epoch={self._epoch}"
            f"{self._shown_shares()}"
            f"{f', noise={self.noise}' if self.noise else ''})"
        )

    def _shown_shares(self) -> str:
        if self._learner is None:
            return ""
        brings = "" if self.helper in self.split.names else " (without features)"
        return (
            f", protection={self.protection!r}, helper={self.helper!r}{brings}, "
            f"release={self.release!r} ({self.learns})"
            + (f", accept_leak={self.accept_leak}" if self.accept_leak else "")
        )

    @property
    def learns(self) -> str:
        """What the active participant learns of a decision, in words.

        >>> import vfbandits as vfb
        >>> federation = vfb.Federation(
        ...     vfb.LinUCB(), widths={"shop": 1, "bank": 1}, protection="shares", helper="bank")
        >>> federation.learns
        'the arm and the widths of all arms of a decision'
        """
        if self._learner is None:
            return "rotated contexts of a decision"
        terms = self._learner.local.terms
        return learns_of(terms.release, terms.reads, terms.layout)

    def decide(
        self,
        blocks: Mapping[str, ArrayLike],
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
        event_id: str | None = None,
    ) -> Decision:
        """Choose an arm from each participant's block of the contexts.

        Blocks are (n_arms, width) in layout "per_arm" and (width,) in the others.  A passive
        participant that is missing, or None, counts as zeros; ``decision.contributors`` says who
        counted.
        """
        if self._learner is not None:
            return self._decide_on_shares(self._learner, blocks, arms, arm_features, event_id)
        contexts, contributors = self._gather(blocks, ndim=self._ndim)
        try:
            return self.bandit.decide(
                contexts,
                arms=arms,
                arm_features=arm_features,
                event_id=event_id,
                contributors=contributors,
            )
        except ContextError:
            self.split.blame(blocks)
            raise

    def decide_many(
        self,
        blocks: Mapping[str, ArrayLike],
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
    ) -> list[Decision]:
        """Choose an arm for each of several users, the first axis of every block."""
        self._refuse_on_shares("decide_many")
        contexts, contributors = self._gather(blocks, ndim=self._ndim + 1)
        try:
            return self.bandit.decide_many(
                contexts, arms=arms, arm_features=arm_features, contributors=contributors
            )
        except ContextError:
            self.split.blame(blocks)
            raise

    def fit(
        self,
        blocks: Mapping[str, ArrayLike],
        rewards: Sequence[float] | Vector,
        *,
        arms: Sequence[ArmId] | None = None,
        arm_features: ArrayLike | None = None,
    ) -> "Federation":
        """Learn from history, of which each participant has its columns; as ``Bandit.fit``.

        >>> import vfbandits as vfb
        >>> federation = vfb.Federation(vfb.LinGreedy(), widths={"shop": 1, "bank": 1})
        >>> _ = federation.fit({"shop": [[1.0], [0.0]], "bank": [[0.0], [1.0]]}, [0.0, 1.0])
        >>> federation.decide({"shop": [[1.0], [0.0]], "bank": [[0.0], [1.0]]}).arm
        1
        """
        self._refuse_on_shares("fit")
        contexts, _ = self._gather(blocks, ndim=2)
        try:
            self.bandit.fit(contexts, rewards, arms=arms, arm_features=arm_features)
        except ContextError:
            self.split.blame(blocks)
            raise
        return self

    def reward(self, decision: Decision | EventId, value: float) -> bool:
        """Learn the reward of a decision; as ``Bandit.reward``."""
        return self.bandit.reward(decision, value)

    def reward_many(self, decisions: Iterable[Decision | EventId], values: Iterable[float]) -> int:
        """Learn several rewards as one update; as ``Bandit.reward_many``."""
        return self.bandit.reward_many(decisions, values)

    def twin(self) -> Bandit:
        """A new plain bandit with this federation's settings and seed: what it must agree with.

        Under protection "shares" its draws must be set to those of the servers, decision by
        decision: ``draw_from`` and ``noise_of``.
        """
        policy = self.bandit.policy
        plain = policy.plain() if isinstance(policy, ReleasedPolicy) else policy
        return Bandit(plain, dim=self.split.dim, **self.bandit.options)

    def noise_of(self, decision: Decision) -> Vector:
        """The normals that LinTS on secret shares drew for its latest decision.

        Ask before the next reward.  Each server drew half, and only a federation in one process can
        add them; parity reports and tests need it.  The rotations are undone: with these normals
        the plain twin chooses the same arm.  They are z, (dim,), in layout "per_arm", one for each
        arm in "disjoint" and one for each feature of an arm in "outer".
        """
        if self._learner is None:
            raise SettingError("only protection 'shares' draws noise in two halves")
        behind = self._learner.noise_of(self.bandit.observation(decision))
        if self._ndim == 1:  # inner products, which no rotation changes
            return behind
        return np.asarray(behind @ self.reveal_mask())

    def estimate_norm(self) -> float:
        """‖theta‖: the same number behind any mask.

        Under protection "shares" both servers' parts are put together for it, which only a
        federation in one process can do.
        """
        if self._learner is None:
            return self.bandit.estimate_norm()
        return float(np.linalg.norm(self._learner.local.reveal()[0]))

    def rekey(self) -> None:
        """Draw new masks and carry all that was learnt over to them.

        Under protection "shares" the dealer draws new secrets, and the servers hand what was
        learnt, and contexts that wait for a reward, over to them; rotations stay.
        """
        if self._learner is not None:
            self._hand_over(self._learner, self.split, dict(self._shares), self.accept_leak)
            return
        before = self.reveal_mask()
        self._epoch += 1
        self._deal()
        self.bandit.move(Rotation(self.reveal_mask() @ before.T))

    def join(self, name: str, width: int, *, accept_leak: bool = False) -> None:
        """Let a participant join: its features start unknown, nothing else is lost.

        ``accept_leak`` accepts that its rows can be read from what is released, as the argument of
        that name of ``Federation`` does for those that are there from the start.
        """
        if name in self.split.names:
            raise SettingError(f"a participant that joins needs a new name, got {name!r}")
        split = Split.of({**dict(self.split.items()), name: width})
        if self._learner is not None:
            (rotation,) = deal_blockwise((width,), entropy=self._entropy)
            accepted = (*self.accept_leak, name) if accept_leak else self.accept_leak
            self._hand_over(self._learner, split, {**self._shares, name: rotation}, accepted)
            return
        if accept_leak:
            raise SettingError("accept_leak goes with protection 'shares'")
        self.bandit.move(Widening(width))
        self._change(split, block_diag(self.reveal_mask(), np.eye(width)))

    def leave(self, name: str) -> None:
        """Let a passive participant leave: what was learnt from its features goes with it.

        Under protection "shares" the active participant learns one number for each of its features
        (and each arm, or arm feature, in layouts "disjoint" and "outer"), a variance times a secret
        factor (docs/shares.md); the helper cannot leave.
        """
        if name not in self.split.passive:
            passive = ", ".join(self.split.passive)
            raise SettingError(f"one of {passive} may leave, got {name!r}")
        columns = self.split.columns(name)
        split = Split.of({n: w for n, w in self.split.items() if n != name})
        refuse_combination(self.mask, self.aggregation, split)
        if self._learner is not None:
            if name == self.helper:
                raise SettingError(
                    f"the helper cannot leave under protection 'shares', got {name!r}"
                )
            rotations = {n: share for n, share in self._shares.items() if n != name}
            accepted = tuple(n for n in self.accept_leak if n != name)
            self._hand_over(self._learner, split, rotations, accepted)
            return
        # Undo the mask first: behind a dense one, no coordinate belongs to one participant.
        self.bandit.move(Rotation(self.reveal_mask().T))
        self.bandit.move(Narrowing(columns.start, columns.stop))
        self._change(split, np.eye(split.dim))

    def reveal_mask(self) -> Matrix:
        """The whole secret Q, (dim, dim).

        Only a federation in one process can do this; parity reports and tests need it.
        """
        columns = [share.columns for share in self._shares.values()]
        return np.hstack(columns) if self.mask == "dense" else block_diag(*columns)

    def _decide_on_shares(
        self,
        learner: SharesLearner,
        blocks: Mapping[str, ArrayLike],
        arms: Sequence[ArmId] | None,
        arm_features: ArrayLike | None,
        event_id: str | None,
    ) -> Decision:
        came = self.split.check(blocks, ndim=self._ndim)
        if self._ndim == 1:
            came = _as_rows(came)
        if self.noise is not None:
            came = self._with_noise(came)
        n_rows = len(came[self.split.active])
        refuse_empty(came[self.split.active])
        if arms is not None and self._ndim == 2:
            arms = as_arms(arms, n_rows)
        # A participant without this user shares zeros, as it would any other rows.
        rows = [
            came.get(name, PlainBlock(np.zeros((n_rows, width))))
            for name, width in self.split.items()
        ]
        try:
            reference = learner.gather(rows, arms, arm_features)
        except SharesError:
            self.split.blame(came)
            raise
        return self.bandit.decide(
            reference,
            arms=arms,
            event_id=event_id,
            contributors=tuple(came),
        )

    def _hand_over(
        self,
        learner: SharesLearner,
        split: Split,
        rotations: dict[str, MaskShare],
        accepted: tuple[str, ...],
    ) -> None:
        """New secrets of the dealer, and perhaps other participants, for all that was learnt."""
        names = self.split.names
        origins = [names.index(name) if name in names else NEW for name in split.names]
        terms, _ = plan_handover(learner.local.terms, split.widths, origins)
        refuse_leak(terms, split.names, accepted)
        learner.hand_over(split.widths, origins, list(rotations.values()))
        self._epoch += 1
        self.split, self.accept_leak = split, accepted
        self._take(rotations)
        self._draw_noises()

    def _refuse_on_shares(self, what: str) -> None:
        if self._learner is not None:
            raise SettingError(f"{what} is not built for protection 'shares' yet")

    def _deal(self) -> None:
        deal = deal_dense if self.mask == "dense" else deal_blockwise
        shares = deal(self.split.widths, entropy=self._entropy)
        self._take(dict(zip(self.split.names, shares, strict=True)))
        if self.aggregation == "secure":
            self._code = FixedPoint(n_terms=len(self.split.passive), bound=self.bound)
            self._blinders = {name: Blinder(name, self._code) for name in self.split.passive}
            public_keys = {name: end.public_key for name, end in self._blinders.items()}
            for end in self._blinders.values():
                end.meet(public_keys)

    def _take(self, shares: dict[str, MaskShare]) -> None:
        self._shares = shares
        self._blockwise = (
            BlockwiseMasker(list(shares.values())) if self.mask == "blockwise" else None
        )

    def _change(self, split: Split, before: Matrix) -> None:
        """New participants need new masks; ``before`` is the mask that the state is behind."""
        self.split = split
        self._epoch += 1
        self._deal()
        self._draw_noises()
        self.bandit.move(Rotation(self.reveal_mask() @ before.T))

    def _gather(
        self, blocks: Mapping[str, ArrayLike], *, ndim: int
    ) -> tuple[Matrix, tuple[str, ...]]:
        came = self.split.check(blocks, ndim=ndim)
        if self.aggregation == "secure" and len(came) <= MIN_SENDERS:
            # One passive participant alone would be seen as it is: it is left out from the start.
            came = {self.split.active: came[self.split.active]}
        blocks_of_rows = came if ndim == 2 else _as_rows(came)
        if self.noise is not None:
            blocks_of_rows = self._with_noise(blocks_of_rows)
        names = self.split.names
        if self._blockwise is not None and len(came) == len(names):
            rows = self._blockwise.mask(blocks_of_rows)
        else:
            names = tuple(came)
            try:
                rows = self._mask_and_aggregate(blocks_of_rows)
            except SecureSumError:
                self.split.blame(came)
                raise
        if ndim == 2:
            return rows, names
        shape = came[self.split.active].shape[:-1]
        return rows.reshape(*shape, self.split.dim), names

    def _draw_noises(self) -> None:
        """Give each passive participant a key, if there is noise; those with a key keep it."""
        if self.noise is not None:
            self._noises = {
                name: self._noises.get(name) or KeyedNoise.draw(self.noise, entropy=self._entropy)
                for name in self.split.passive
            }

    def _with_noise(self, blocks: dict[str, PlainBlock]) -> dict[str, PlainBlock]:
        """Blocks of passive participants with noise; ``clipped`` counts rows that were too long."""
        noisy = dict(blocks)
        for name in blocks.keys() & self._noises.keys():
            unnamed = [()] * len(blocks[name])
            noisy[name], clipped = self._noises[name].add(blocks[name], unnamed)
            self.clipped += clipped
        return noisy

    def _mask_and_aggregate(self, blocks: dict[str, PlainBlock]) -> Matrix:
        masked = {name: self._shares[name].mask(block) for name, block in blocks.items()}
        if self.mask == "blockwise":
            return place_blocks(self.split, masked)
        if self.aggregation == "plain" or len(masked) == 1:
            return add_blocks(masked.values())
        self._round += 1
        stamp = Stamp(self._epoch, self._round)
        senders = [name for name in masked if name != self.split.active]
        # One process has everybody's rows: nobody can be asked for others under this stamp.
        messages = [
            self._blinders[name].blind(masked[name], stamp, senders, asked=IN_ONE_PROCESS)
            for name in senders
        ]
        return masked[self.split.active] + add_blinded(messages, self._code)

    def __reduce__(self) -> Never:
        """Refuse to be pickled or copied: the masks would go where nobody looks for secrets."""
        if self._learner is not None:
            self._learner.pack()
        raise SnapshotError(
            "a federation holds the masks of all participants, and is not pickled or copied; "
            "wanted vfb.save(), whose file only its owner can read"
        )

    def snapshot(self) -> Snapshot:
        """All that ``restore`` needs, masks included: keep it as secret as the masks.

        Refused under protection "shares": a restored copy would use the same words again.
        """
        inner = self.bandit.snapshot()
        header: dict[str, object] = {
            "kind": "federation",
            "widths": dict(self.split.items()),
            "mask": self.mask,
            "aggregation": self.aggregation,
            "bound": self.bound,
            "epoch": self._epoch,
            "round": self._round,
            "bandit": inner.header,
        }
        if self.noise is not None:
            keys = {name: noise.key.hex() for name, noise in self._noises.items()}
            header["noise"] = {**asdict(self.noise), "keys": keys}
        arrays = {f"bandit/{name}": array for name, array in inner.arrays.items()}
        arrays.update({f"share/{n}": share.columns for n, share in self._shares.items()})
        return Snapshot(header, arrays, secret=True)

    @classmethod
    def restore(cls, snapshot: Snapshot) -> "Federation":
        """The federation that the snapshot was taken of; pads start from new keys."""
        record = snapshot.record
        header = record.plain("bandit")
        bandit = Bandit.restore(Snapshot(header, snapshot.below("bandit/")))
        widths = record.child("widths")
        federation = cls(
            bandit.policy,
            widths={name: widths.integer(name) for name in widths.values},
            mask=record.text("mask"),
            aggregation=record.text("aggregation"),
            bound=record.number("bound"),
            noise=_stored_noise(record) if record.has("noise") else None,
            **bandit.options,
        )
        federation.bandit = bandit
        federation._epoch = record.integer("epoch")
        federation._round = record.integer("round")
        if federation.noise is not None:
            keys = record.child("noise").child("keys")
            for name in federation.split.passive:
                key = _stored_key(keys, name)
                federation._noises[name] = KeyedNoise(federation.noise, key=key)
        shares = snapshot.below("share/")
        federation._take(
            {
                name: MaskShare(stored(shares, name, share.columns.shape))
                for name, share in federation._shares.items()
            }
        )
        return federation


def _stored_noise(record: Record) -> VectorNoise:
    noise = record.child("noise")
    return VectorNoise(noise.number("epsilon"), noise.number("delta"), noise.number("clip"))


def _stored_key(keys: Record, name: str) -> bytes:
    try:
        return bytes.fromhex(keys.text(name))
    except ValueError as error:
        raise SnapshotError(f"wanted a key of noise in hex at {name!r}") from error


def _as_rows(blocks: dict[str, PlainBlock]) -> dict[str, PlainBlock]:
    return {name: PlainBlock(b.reshape(-1, b.shape[-1])) for name, b in blocks.items()}


def protection_of(protection: str | None, aggregation: str) -> str:
    """The level of protection; ``aggregation`` alone says which of "mask" and "sum" it is."""
    level = "sum" if aggregation == "secure" else "mask"
    if protection is None:
        return level
    if protection not in PROTECTIONS:
        known = ", ".join(PROTECTIONS)
        raise SettingError(f"protection must be one of {known}, got {protection!r}")
    if protection != level and (protection != "shares" or aggregation == "secure"):
        raise SettingError(
            f"protection {protection!r} does not go with aggregation={aggregation!r}: 'mask' and "
            "'shares' have plain aggregation, 'sum' has a secure one"
        )
    return protection


def refuse_for_shares(mask: str, discount: float, split: Split, helper: str | None) -> None:
    """Let only settings through that protection "shares" is built for."""
    if not isinstance(helper, str) or helper in ("", split.active):
        passive = " or ".join(split.passive)
        why = (
            ": the active participant is the other server, and would hold both shares"
            if helper == split.active
            else ""
        )
        raise SettingError(
            f"protection 'shares' needs helper, {passive} or a party without features, got "
            f"{helper!r}{why}"
        )
    if mask != "blockwise":
        raise SettingError(
            "protection 'shares' needs mask='blockwise': each participant has a rotation of its "
            f"own under the shares, got {mask!r}"
        )
    if discount != 1.0:
        raise SettingError(
            "protection 'shares' cannot forget: the prior would have to be put back, which takes "
            f"an inversion; wanted discount 1, got {discount}"
        )


def refuse_combination(mask: str, aggregation: str, split: Split) -> None:
    """Let only those masks and aggregations through that hide what they promise."""
    if mask not in MASKS:
        raise SettingError(f"mask must be one of {', '.join(MASKS)}, got {mask!r}")
    if aggregation not in AGGREGATIONS:
        known = ", ".join(AGGREGATIONS)
        raise SettingError(f"aggregation must be one of {known}, got {aggregation!r}")
    if aggregation == "plain":
        return
    if mask == "blockwise":
        raise SettingError(
            "secure aggregation needs mask='dense': blockwise blocks are side by side, so the "
            "active participant sees each of them and there is no sum to hide in"
        )
    if len(split.passive) < MIN_SENDERS:
        raise SettingError(
            "secure aggregation needs at least two passive participants, got one: the active "
            "participant would subtract its own part and see the other"
        )
