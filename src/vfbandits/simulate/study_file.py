"""Studies as TOML, there and back.

::

    rounds = 5000                       # every key has the paper's value as its default
    arms = 10
    widths = [20, 20, 20, 20, 20]       # or { shop = 40, bank = 60 }, or dim and participants
    layout = "per_arm"                  # outer (with arm_dim), disjoint
    noise = 0.05                        # standard deviation
    ridge = 1.0
    discount = 1.0
    floor = 0.0
    seeds = 5                           # how many, counted up from seed
    seed = 0

    [[contestant]]
    name = "alone"
    policy = "linucb"                   # its parameters stand beside it
    beta = 0.5                          # or { noise = 0.05, norm_bound = 1.0, delta = 0.05 }
    features = ["p1"]                   # or "all", or a ratio
    federated = false                   # true takes mask and aggregation
"""

import json
from collections.abc import Mapping
from dataclasses import fields

from vfbandits.core.policy.registry import POLICIES, describe
from vfbandits.errors import SettingError, VFBanditsError
from vfbandits.settings.policy import policy_from
from vfbandits.settings.table import Table
from vfbandits.simulate.contestant import Contestant, Features
from vfbandits.simulate.study import Study
from vfbandits.simulate.world import WorldSettings, even_widths


def read_study(
    document: Mapping[str, object], *, contestants: tuple[Contestant, ...] | None = None
) -> Study:
    """A study from the keys above; ``contestants`` may come from elsewhere, but not from both.

    >>> read_study({"rounds": 100}).horizon
    100
    """
    table = Table(document)
    default = Study()
    settings = WorldSettings(
        widths=_widths(table),
        n_arms=table.whole("arms", default.world.n_arms),
        layout=table.text("layout", default.world.layout),
        arm_dim=table.whole("arm_dim", default.world.arm_dim),
        noise=table.number("noise", default.world.noise),
    )
    study = Study(
        contestants=_contestants(table, contestants) or default.contestants,
        world=settings,
        horizon=table.whole("rounds", default.horizon),
        ridge=table.number("ridge", default.ridge),
        discount=table.number("discount", default.discount),
        floor=table.number("floor", default.floor),
        n_seeds=table.whole("seeds", default.n_seeds),
        first_seed=table.whole("seed", default.first_seed),
    )
    table.close()
    return study


def write_study(study: Study) -> str:
    """The TOML text that ``read_study`` makes this very study of."""
    world = study.world
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
    return keys


def _value(value: object) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    # Text, numbers, true and false: TOML writes them as JSON does.
    return json.dumps(value, ensure_ascii=False)


def _widths(table: Table) -> Mapping[str, int]:
    if not table.has("widths"):
        table.take("widths", None)
        return even_widths(table.whole("dim", 100), table.whole("participants", 5))
    for key in ("dim", "participants"):
        if table.has(key):
            raise SettingError(f"widths says it all already, got {key} as well")
    widths = table.take("widths", None)
    if isinstance(widths, list):
        widths = {f"p{place + 1}": width for place, width in enumerate(widths)}
    if not isinstance(widths, dict):
        raise table.wrong("widths", "a list or a table of whole numbers", widths)
    return widths


def _contestants(
    table: Table, given: tuple[Contestant, ...] | None
) -> tuple[Contestant, ...] | None:
    if given is not None and table.has("contestant"):
        raise SettingError("contestants must come from the file or from flags, got both")
    if not table.has("contestant"):
        table.take("contestant", None)
        return given
    tables = table.take("contestant", None)
    if not isinstance(tables, list) or not all(isinstance(item, dict) for item in tables):
        raise table.wrong("contestant", "a list of tables, [[contestant]]", tables)
    if not tables:
        raise table.wrong("contestant", "a list of at least one table", tables)
    return tuple(_contestant(item, place) for place, item in enumerate(tables, start=1))


def _contestant(values: dict[str, object], place: int) -> Contestant:
    where = f"contestant {place}"
    table = Table(values, where=where)
    for key in ("name", "policy"):
        if not table.has(key):
            raise SettingError(f"{where}: wanted a {key}, got none")
    name, kind = table.text("name", ""), table.text("policy", "")
    features = _features(table)
    federated = table.flag("federated", default=False)
    for key in ("mask", "aggregation"):
        if table.has(key) and not federated:
            raise SettingError(f"{where}: {key} goes with federated = true, got {key} without")
    mask, aggregation = table.text("mask", "blockwise"), table.text("aggregation", "plain")
    if kind not in POLICIES:
        raise table.wrong("policy", f"one of {', '.join(POLICIES)}", kind)
    parameters = table.rest(tuple(field.name for field in fields(POLICIES[kind])))
    table.close()
    try:
        policy = policy_from(kind, parameters)
        return Contestant(name, policy, features, federated, mask, aggregation)
    except VFBanditsError as error:
        raise SettingError(f"{where}: {error}") from error


def _features(table: Table) -> Features:
    value = table.take("features", "all")
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, str | float):
        raise table.wrong("features", "'all', a ratio, or a list of participants", value)
    return value
