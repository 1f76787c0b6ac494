"""Contestants of a study: a policy, the features it gets, and how it gets them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from vfbandits.core.bandit import Bandit, BanditOptions
from vfbandits.core.context import Split
from vfbandits.core.noise import UNIT, VectorNoise
from vfbandits.core.policy.base import Policy
from vfbandits.core.round import Federation
from vfbandits.errors import SettingError
from vfbandits.simulate.regret import CentralPlayer, FederatedPlayer, Player

Features: TypeAlias = str | float | tuple[str, ...]
ACTIVE = "active"
SHARES = "shares"
PAPER_RATIOS: tuple[Features, ...] = (0.2, 0.8)
PAPER_NAMES = {"LinUCB": "VFUCB", "LinTS": "VFTS"}


@dataclass(frozen=True, slots=True)
class Contestant:
    """One line of a regret figure.

    Attributes
    ----------
    features
        "all"; "active", for the columns of the active participant; a ratio ρ in (0, 1], for the
        first ⌈ρ·dim⌉ columns as in the paper's partial bandits; or names of participants, whose
        columns count.
    federated
        Behind masks or not.  ``mask``, ``aggregation``, ``protection`` and ``accept_leak`` are as
        for ``Federation``; on secret shares the first passive participant is the helper.
    vector_noise
        Noise of the passive participants of a federated contestant.
    """

    name: str
    policy: Policy
    features: Features = "all"
    federated: bool = False
    mask: str = "blockwise"
    aggregation: str = "plain"
    vector_noise: VectorNoise | None = None
    protection: str | None = None
    accept_leak: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names and features that cannot be used."""
        if not isinstance(self.name, str) or not self.name.strip() or not self.name.isprintable():
            raise SettingError(f"name must be printable text on one line, got {self.name!r}")
        _refuse_features(self.features)
        if self.vector_noise is not None and not self.federated:
            raise SettingError("vector_noise goes with federated = true, got federated = false")
        if self.federated and not isinstance(self.features, str | tuple):
            raise SettingError(
                "features of a federated contestant must be 'all' or names of participants, "
                f"since a ratio may cut a block in two; got {self.features!r}"
            )

    @property
    def family(self) -> str:
        """The kind of policy: contestants of one family are compared with each other."""
        return type(self.policy).__name__

    def participants(self, split: Split) -> tuple[str, ...]:
        """Its participants, in the world's order; refuses names that the world does not have."""
        if self.features == ACTIVE:
            return (split.active,)
        if not isinstance(self.features, tuple):
            return split.names
        unknown = [name for name in self.features if name not in split.names]
        if unknown:
            raise SettingError(
                f"features must name some of {', '.join(split.names)}, got {', '.join(unknown)}"
            )
        if self.federated and split.active not in self.features:
            raise SettingError(
                f"features of a federated contestant must hold the active participant "
                f"{split.active!r}, got {', '.join(self.features)}"
            )
        return tuple(name for name in split.names if name in self.features)

    def columns(self, split: Split) -> NDArray[np.intp]:
        """The columns of the whole context that count, in order."""
        everything = np.arange(split.dim)
        if isinstance(self.features, float):
            # Rounded first: 0.07·100 is a little above 7 in floating point.
            return everything[: math.ceil(round(self.features * split.dim, 9))]
        parts = [everything[split.columns(name)] for name in self.participants(split)]
        return np.concatenate(parts)

    def seat(
        self, split: Split, seed: np.random.SeedSequence, options: BanditOptions, *, n_arms: int
    ) -> Player:
        """An untaught player.  Its mask comes from ``seed`` as well: in a study nothing is secret.

        Contestants with equal policies and seeds share their random draws, so that a masked one
        differs from a central one by the mask alone.  On secret shares the noise of LinTS is drawn
        by the servers, from the same law.
        """
        rng = np.random.default_rng(seed)
        options = {**options, "seed": int(rng.integers(2**62))}
        if not self.federated:
            columns = self.columns(split)
            return CentralPlayer(Bandit(self.policy, dim=len(columns), **options), columns)
        widths = {n: w for n, w in split.items() if n in self.participants(split)}
        if self.protection == SHARES:
            options = {**options, "max_arms": n_arms}
        return FederatedPlayer(
            Federation(
                self.policy,
                widths=widths,
                mask=self.mask,
                aggregation=self.aggregation,
                protection=self.protection,
                helper=next(iter([*widths][1:]), None) if self.protection == SHARES else None,
                accept_leak=self.accept_leak,
                noise=self.vector_noise,
                entropy=rng.bytes,
                **options,
            )
        )


def line_up(
    policy: Policy,
    *,
    partial: Sequence[Features] = PAPER_RATIOS,
    mask: str = "blockwise",
    aggregation: str = "plain",
    protection: str | None = None,
    accept_leak: tuple[str, ...] = (),
) -> tuple[Contestant, ...]:
    """The paper's comparison for one policy: central, masked, and partial bandits.

    >>> from vfbandits.core.policy import LinUCB
    >>> [contestant.name for contestant in line_up(LinUCB(beta=0.5))]
    ['central LinUCB', 'masked LinUCB (VFUCB)', 'partial LinUCB 0.2', 'partial LinUCB 0.8']
    """
    kind = type(policy).__name__
    name = f"masked {kind}"
    if protection == SHARES:
        name = f"shared {kind}"
    elif kind in PAPER_NAMES:
        name = f"masked {kind} ({PAPER_NAMES[kind]})"
    return (
        Contestant(f"central {kind}", policy),
        Contestant(
            name,
            policy,
            federated=True,
            mask=mask,
            aggregation=aggregation,
            protection=protection,
            accept_leak=accept_leak,
        ),
        *(Contestant(f"partial {kind} {_spell(part)}", policy, features=part) for part in partial),
    )


def line_up_noise(
    policy: Policy,
    noises: Sequence[VectorNoise],
    *,
    mask: str = "blockwise",
    aggregation: str = "plain",
    protection: str | None = None,
    accept_leak: tuple[str, ...] = (),
) -> tuple[Contestant, ...]:
    """Central, federations with noise, and the active participant alone.

    >>> from vfbandits.core.policy import LinUCB
    >>> [one.name for one in line_up_noise(LinUCB(), [VectorNoise(10.0, 1e-5, clip=0.5)])]
    ['central LinUCB', 'LinUCB, ε = 10 per vector', 'active LinUCB alone']
    """
    kind = type(policy).__name__
    return (
        Contestant(f"central {kind}", policy),
        *(
            Contestant(
                f"{kind}, ε = {noise.epsilon:g} per {UNIT}",
                policy,
                federated=True,
                mask=mask,
                aggregation=aggregation,
                vector_noise=noise,
                protection=protection,
                accept_leak=accept_leak,
            )
            for noise in noises
        ),
        Contestant(f"active {kind} alone", policy, features=ACTIVE),
    )


def _spell(features: Features) -> str:
    return "+".join(features) if isinstance(features, tuple) else str(features)


def _refuse_features(features: object) -> None:
    if isinstance(features, str):
        good = features in ("all", ACTIVE)
    elif isinstance(features, float):
        good = 0.0 < features <= 1.0
    else:
        names = features if isinstance(features, tuple) else ()
        good = bool(names) and all(isinstance(name, str) for name in names)
        good = good and len(set(names)) == len(names)
    if not good:
        raise SettingError(
            "features must be 'all', 'active', a ratio between 0 and 1, or names of participants, "
            f"each once; got {features!r}"
        )
