"""Studies to and from TOML.

::

    rounds = 5000                       # every key has the paper's value as its default
    arms = 10
    widths = [20, 20, 20, 20, 20]       # or { shop = 40, bank = 60 }, or dim and participants
    layout = "per_arm"                  # outer (with arm_dim), disjoint
    noise = 0.05                        # standard deviation
    ridge = 1.0
    discount = 1.0
    floor = 0.0
    intercept = false                   # true: a feature that is always 1 (outer, disjoint)
    seeds = 5                           # how many, counted up from seed
    seed = 0

    [[contestant]]
    name = "alone"
    policy = "linucb"                   # with its parameters beside it
    beta = 0.5                          # or { noise = 0.05, norm_bound = 1.0, delta = 0.05 }
    features = ["p1"]                   # or "all", "active", or a ratio
    federated = false                   # true takes mask, aggregation, protection, accept_leak,
                                        # vector_noise

vector_noise is { epsilon = 10.0, delta = 1e-5, clip = 0.5, unit = "vector" }.
"""

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vfbandits.core.noise import describe_noise
from vfbandits.core.policy.registry import describe
from vfbandits.errors import SettingError
from vfbandits.settings.decode import decode
from vfbandits.settings.noise import NoiseSettings
from vfbandits.settings.policy import PolicyName, PolicySettings
from vfbandits.settings.values import Settings
from vfbandits.simulate.contestant import Contestant, Features
from vfbandits.simulate.study import Study
from vfbandits.simulate.world import WorldSettings, even_widths

_DEFAULTS: dict[str, Any] = {
    field.name: field.default for field in (*fields(Study), *fields(WorldSettings))
}


class ContestantTable(PolicySettings, frozen=True, kw_only=True):
    """A table [[contestant]]."""

    name: str
    policy_name: PolicyName = msgspec.field(name="policy")
    features: Features = "all"
    federated: bool = False
    mask: str | None = None
    aggregation: str | None = None
    vector_noise: NoiseSettings | None = None
    protection: str | None = None
    accept_leak: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Refuse what makes no contestant."""
        super().__post_init__()
        for key in ("mask", "aggregation", "protection", "accept_leak"):
            if getattr(self, key) is not None and not self.federated:
                raise SettingError(f"{key} goes with federated = true, got federated = false")
        self.contestant()

    def contestant(self) -> Contestant:
        """The contestant of this table."""
        mask, aggregation = self.mask or "blockwise", self.aggregation or "plain"
        return Contestant(
            self.name,
            self.policy,
            features=self.features,
            federated=self.federated,
            mask=mask,
            aggregation=aggregation,
            vector_noise=None if self.vector_noise is None else self.vector_noise.terms,
            protection=self.protection,
            accept_leak=self.accept_leak or (),
        )


class StudyFile(Settings, frozen=True, kw_only=True):
    """The keys above."""

    rounds: int = _DEFAULTS["horizon"]
    arms: int = _DEFAULTS["n_arms"]
    widths: tuple[int, ...] | dict[str, int] | None = None
    dim: int | None = None
    participants: int | None = None
    layout: str = _DEFAULTS["layout"]
    arm_dim: int = _DEFAULTS["arm_dim"]
    noise: float = _DEFAULTS["noise"]
    ridge: float = _DEFAULTS["ridge"]
    discount: float = _DEFAULTS["discount"]
    floor: float = _DEFAULTS["floor"]
    intercept: bool = _DEFAULTS["intercept"]
    seeds: int = _DEFAULTS["n_seeds"]
    seed: int = _DEFAULTS["first_seed"]
    contestant: Annotated[tuple[ContestantTable, ...], Meta(min_length=1)] | None = None

    def named_widths(self) -> Mapping[str, int]:
        """How many features each participant has."""
        if self.widths is None:
            dim = 100 if self.dim is None else self.dim
            return even_widths(dim, 5 if self.participants is None else self.participants)
        for key in ("dim", "participants"):
            if getattr(self, key) is not None:
                raise SettingError(f"widths replaces dim and participants, got widths and {key}")
        if isinstance(self.widths, dict):
            return self.widths
        return {f"p{place + 1}": width for place, width in enumerate(self.widths)}


def read_study(
    document: Mapping[str, object], *, contestants: tuple[Contestant, ...] | None = None
) -> Study:
    """A study from the keys above; ``contestants`` may come from elsewhere, but not from both.

    >>> read_study({"rounds": 100}).horizon
    100
    """
    file = decode(document, StudyFile, error=SettingError)
    if file.contestant is not None:
        if contestants is not None:
            raise SettingError("contestants must come from the file or from flags, got both")
        contestants = tuple(table.contestant() for table in file.contestant)
    world = WorldSettings(
        widths=file.named_widths(),
        n_arms=file.arms,
        layout=file.layout,
        arm_dim=file.arm_dim,
        noise=file.noise,
    )
    return Study(
        contestants=contestants or _DEFAULTS["contestants"],
        world=world,
        horizon=file.rounds,
        ridge=file.ridge,
        discount=file.discount,
        floor=file.floor,
        intercept=file.intercept,
        n_seeds=file.seeds,
        first_seed=file.seed,
    )


def write_study(study: Study) -> str:
    """The TOML text from which ``read_study`` makes an equal study."""
    world = study.world
    if not isinstance(world, WorldSettings):
        raise SettingError("a study in a file plays in a synthetic world, got a table")
    lines = [
        f"rounds = {study.horizon}",
        f"arms = {world.n_arms}",
        f"widths = {_value(dict(world.widths))}",
        f"layout = {_value(world.layout)}",
        f"arm_dim = {world.arm_dim}",
        f"noise = {_value(world.noise)}",
        f"ridge = {_value(study.ridge)}",
        f"discount = {_value(study.discount)}",
        f"floor = {_value(study.floor)}",
        f"intercept = {_value(study.intercept)}",
        f"seeds = {study.n_seeds}",
        f"seed = {study.first_seed}",
    ]
    for contestant in study.contestants:
        lines += ["", "[[contestant]]", *(f"{k} = {_value(v)}" for k, v in _keys(contestant))]
    return "\n".join(lines) + "\n"


def _keys(contestant: Contestant) -> list[tuple[str, object]]:
    policy = describe(contestant.policy)
    keys: list[tuple[str, object]] = [
        ("name", contestant.name),
        ("policy", policy.pop("name")),
        *policy.items(),
        ("features", contestant.features),
        ("federated", contestant.federated),
    ]
    if contestant.federated:
        keys += [("mask", contestant.mask), ("aggregation", contestant.aggregation)]
    if contestant.protection is not None:
        keys.append(("protection", contestant.protection))
    if contestant.accept_leak:
        keys.append(("accept_leak", contestant.accept_leak))
    if contestant.vector_noise is not None:
        keys.append(("vector_noise", describe_noise(contestant.vector_noise)))
    return keys


def _value(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    # Text, numbers, true and false: TOML writes them as JSON does.
    return json.dumps(value, ensure_ascii=False)
